"""Every notebook of the package runs from top to bottom: `nbdev-test`, one notebook at a time for the timing."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook(path):
    command = [Path(sys.executable).with_name("nbdev-test"), path, "--n-workers", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
