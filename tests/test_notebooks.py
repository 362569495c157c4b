"""Every notebook of the package runs from top to bottom, each in a process of its own.

The processes are forked from one that has imported what most notebooks need: that would take longer than they do.
"""
import multiprocessing
import os
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbdev.test import test_nb as run_cells

ROOT = Path(__file__).parent.parent
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["nbdev.test", "envgen_nb.cli", "envgen_nb.batch", "envgen_nb.studio.studio",
                              "envgen_nb.crafter.simulator", "envgen_nb.heist.simulator", "openai", "tensorboard"])


def run_notebook(path: Path, told: Path) -> None:
    """As nbdev-test does it; what is said goes into a file."""
    os.chdir(ROOT)
    with open(told, "w") as file:
        for stream in (sys.__stdout__, sys.__stderr__):
            os.dup2(file.fileno(), stream.fileno())
        passed, _ = run_cells(path, cell_timeout=900)
    os._exit(not passed)


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook(path, tmp_path):
    process = FORKS.Process(target=run_notebook, args=(path, tmp_path / "told"))
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "told").read_text()[-6000:]


WORKSHOP = sorted((ROOT / "nbs" / "workshop").glob("*.ipynb"))


@pytest.mark.parametrize("path", WORKSHOP, ids=lambda path: path.stem)
def test_workshop(path, tmp_path):
    """A workshop runs without a person, in its own folder, with its defaults."""
    papermill.execute_notebook(path, tmp_path / path.name, kernel_name="python3", progress_bar=False, cwd=path.parent)


def test_the_first_workshop_trains_in_worlds_of_ones_own(tmp_path):
    """What a participant writes comes to the prompt, and what a chat window answers comes to the run."""
    one = 'Environment {0}:\n```json\n{{"inventory_settings": {{"wood": {0}}}}}\n```\nPurpose: mine.\n'
    (tmp_path / "reply.md").write_text("".join(one.format(k) for k in range(1, 5)))
    papermill.execute_notebook(
        WORKSHOP[0], tmp_path / "done.ipynb", kernel_name="python3", progress_bar=False, cwd=tmp_path,
        parameters={"my_reply": "reply.md", "my_wish": "Teach it to be brave.", "steps": 4096})
    shown = str(nbformat.read(tmp_path / "done.ipynb", 4))
    for text in ("Teach it to be brave.", "Your answer gives 4 worlds.", "score of the policy"):
        assert text in shown, text
