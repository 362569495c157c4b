"""A reader of pictures: the lab's notebook runs without a person, and the recorded replies are worlds."""
from pathlib import Path

import nbformat
import numpy as np
import papermill
import pytest
import reader as study

from envgen_nb.frames.reader import nearest, read_pictures, worlds_for

ROOT = Path(__file__).parent.parent


def test_recorded_replies_are_worlds():
    """Nothing is wrong in them, and each prompt lists what was asked before."""
    worlds = [study.recorded(cycle) for cycle in (1, 2, 3)]
    assert [len(one) for one in worlds] == [study.WORLDS] * study.CYCLES
    for cycle in (2, 3):
        prompt = (study.RECORDINGS / f"cycle-{cycle}" / "prompt.md").read_text()
        assert prompt.count("```json") == study.WORLDS * (cycle - 1) + 1


def test_a_data_set_is_read_as_it_was_written(tmp_path):
    """Cells are those of the state; a data set of another seed has other maps; a split that is not there is named."""
    folders = [study.played(tmp_path, f"{seed}", [None, study.OTHER], seed, 100) for seed in (1, 2)]
    found = [read_pictures(folder, 7) for folder in folders]
    assert found[0].images.shape == (100, 64, 64, 3) and found[0].cells.shape == (100, 9, 9)
    assert (found[0].cells[:, 3, 4] == study.CLASSES.index("player")).all()
    assert (nearest(found[0].cells, [study.CLASSES.index("player")], (3, 4)) == 0).all()
    seeds = [set(one.table["seed"].to_pylist()) for one in found]
    assert not seeds[0] & seeds[1] and {seed % 10 for seed in seeds[0]} >= {8, 9}
    assert len(read_pictures(folders[0], 7, "train").cells) == 80
    with pytest.raises(ValueError, match="no frames of the split night"):
        read_pictures(folders[0], 7, "night")


def test_no_world_is_chosen_twice():
    shown = np.array([[0.9, 0.9, 0.9], [0.1, 0.2, 0.3], [0.0, 0.0, 0.4]])
    assert worlds_for(np.zeros(3), shown, ["a", "b", "c"], 3) == ["a", "b", "c"]


@pytest.mark.long
def test_the_lab_notebook(tmp_path, monkeypatch):
    """With few frames and updates it shows the same tables."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    papermill.execute_notebook(ROOT / "nbs" / "lab" / "frames.ipynb", tmp_path / "done.ipynb", cwd=tmp_path,
                               parameters={"count": 120, "test": 60, "updates": 20, "folder": str(tmp_path / "data")},
                               kernel_name="python3", progress_bar=False)
    told = "\n".join(str(out.get("text")) for cell in nbformat.read(tmp_path / "done.ipynb", 4).cells
                     for out in cell.get("outputs", ()))
    assert told.count("read worst are") == 3 and "other rarities: recall" in told
