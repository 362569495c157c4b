"""Every notebook of the package runs from top to bottom: `nbdev-test`, one notebook at a time for the timing."""
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook(path):
    command = [Path(sys.executable).with_name("nbdev-test"), path, "--n-workers", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]


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
