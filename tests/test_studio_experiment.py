"""The experiment's notebook in a real JupyterLab: the board fills, is stopped, goes on, and the answer appears."""
import re
from pathlib import Path

import nbformat
import pytest
from browser import Browser
from playwright.sync_api import Locator
from test_experiment import written

LAB = Path(__file__).parent.parent / "nbs" / "lab" / "experiment.ipynb"


@pytest.fixture(scope="module")
def seen(desk):
    folder = desk.lab.folder / "experiment"
    written(folder, [0], steps=16_384)
    notebook = nbformat.read(LAB, 4)
    cell, = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    for name, value in {"file": "small.toml", "folder": "out", "jobs": 2}.items():
        cell.source, count = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value!r}  ", cell.source, flags=re.M)
        assert count == 1, name
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []                    # those that are stored are of a recorded experiment
    nbformat.write(notebook, folder / "experiment.ipynb")
    desk.open("experiment/experiment.ipynb")
    return desk


def board(seen: Browser, text: str, seconds: float = 120) -> None:
    """Wait for what the line above the board says, the first on the page."""
    seen.page.get_by_text(re.compile(text)).first.wait_for(timeout=1000 * seconds)


def button(seen: Browser, name: str) -> Locator:
    return seen.page.get_by_role("button", name=re.compile(rf"\b{name}$")).first            # its icon comes before


def test_the_board_before_anything_was_run(seen):
    seen.run_all()
    board(seen, "0 of 2 runs done, 2 waiting")
    seen.page.get_by_text("No run has ended yet.").first.wait_for()
    seen.shot("experiment-before", button(seen, "Run"))


@pytest.mark.long
def test_runs_are_stopped(seen):
    button(seen, "Run").click()
    board(seen, "2 running")
    seen.page.get_by_text(re.compile(r"^[1-9]\d?%$")).first.wait_for()       # a square that fills
    seen.shot("experiment-running", button(seen, "Run"))
    button(seen, "Stop").click()
    board(seen, "2 waiting")


@pytest.mark.long
def test_they_go_on_and_the_answer_appears(seen):
    button(seen, "Run").click()
    board(seen, "2 of 2 runs done", 300)
    seen.page.locator(".envgen-chart").nth(2).wait_for()
    seen.page.get_by_text("fewer than 5 allow no conclusion").first.wait_for()
    seen.shot("experiment-done", button(seen, "Run"), height=2400)


def test_nobody_complained(seen):
    """The last of this file: nothing in the browser's console, nothing in the logs of server and kernel."""
    assert seen.errors == [] and seen.lab.complaints() == []
