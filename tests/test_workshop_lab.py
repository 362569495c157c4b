"""A workshop as a pupil meets it, in a real JupyterLab: all cells are run, exercises answered, solutions unfolded.

Pictures are kept as in test_studio_browser.py.
"""
import re
from pathlib import Path

import nbformat
import pytest
from browser import THEMES, Browser
from playwright.sync_api import Locator

from envgen_nb.studio.elements import STATIC

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent
WORKSHOP = ROOT / "nbs" / "workshop" / "2_what_the_agent_learns_from.ipynb"
CODE = [cell.source for cell in nbformat.read(WORKSHOP, 4).cells if cell.cell_type == "code"]
SMALLER = {"orchard_steps": 20_480, "crafter_steps": 4096}


@pytest.fixture(scope="module")
def seen(desk):
    notebook = nbformat.read(WORKSHOP, 4)
    cell, = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    for name, value in SMALLER.items():
        cell.source, count = re.subn(rf"^{name} = \w+", f"{name} = {value}", cell.source, flags=re.M)
        assert count == 1, name
    (desk.lab.folder / "workshop").mkdir()
    nbformat.write(notebook, desk.lab.folder / "workshop" / WORKSHOP.name)
    desk.open(f"workshop/{WORKSHOP.name}")
    return desk


def at(seen: Browser, text: str) -> Locator:
    """The cell with this text, on the screen: cells that are out of sight are not drawn."""
    seen.page.evaluate("""async text => {
        const notebook = window.jupyterapp.shell.currentWidget.content;
        const at = notebook.widgets.findIndex(cell => cell.model.sharedModel.getSource().includes(text));
        notebook.activeCellIndex = at;
        await notebook.scrollToItem(at, 'start');
    }""", text)
    cell = seen.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    cell.wait_for()
    return cell


def ended(seen: Browser, text: str, runs: int) -> None:
    """The cell with this text has been run, as the kernel's run of this number or a later one."""
    seen.page.wait_for_function("""([text, runs]) =>
        window.jupyterapp.shell.currentWidget.content.widgets.find(
            cell => cell.model.sharedModel.getSource().includes(text)).model.executionCount >= runs""",
                                arg=[text, runs], timeout=240_000)


def output(cell: Locator) -> str:
    return cell.locator(".jp-OutputArea").inner_text()


def bars(text: str) -> dict[int, float]:
    """The advantage of each step, as printed beside its bar."""
    return {int(step): float(value) for step, value in re.findall(r"^ *(\d+) +\w+ +█* ?(-?[\d.]+)$", text, re.M)}


def test_all_cells_run_and_show_what_they_teach(seen):
    seen.run_all()
    ended(seen, CODE[-1], len(CODE))
    wrong = ".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText[data-mime-type$=error]"
    for source in CODE[1:]:
        assert at(seen, source).locator(wrong).count() == 0, source
    picture = at(seen, CODE[2]).locator(".jp-OutputArea img, .jp-OutputArea svg").first
    assert picture.bounding_box()["width"] > 100
    seen.shot("workshop-start", picture)
    assert "the same" in output(at(seen, "after_last, final_values"))
    at(seen, "tried = small.replace").locator(".js-plotly-plot .main-svg").first.wait_for()
    seen.shot("workshop-curve", seen.page.locator(".js-plotly-plot").first)
    seen.page.add_style_tag(path=STATIC / "studio.css")                       # as the studio brings it
    seen._theme(THEMES["dark"])
    page, words = (seen.page.locator(f".js-plotly-plot {one}").first.evaluate("e => getComputedStyle(e).fill")
                   for one in (".bg", ".xtick text"))
    assert page == "rgba(0, 0, 0, 0)" and min(map(int, re.findall(r"[0-9]+", words)[:3])) > 200      # light on dark
    seen._theme(THEMES["light"])
    said = output(at(seen, "trained = evaluate"))
    chance, trained = map(int, re.search(r"chance: (\d+)% of the apples, trained: (\d+)%", said).groups())
    assert trained > chance + 30
    assert "collect wood" in output(at(seen, "order = np.argsort"))


def test_an_exercise_is_answered_and_its_solution_unfolds(seen):
    """What is expected with gamma = 0? The steps before the apple get nothing any more; the solution says so."""
    loop = at(seen, "gamma, lam = ")
    before = bars(output(loop))
    assert sum(value > 0.1 for value in before.values()) > 1
    loop.locator(".cm-line", has_text="gamma, lam = ").click()
    seen.page.keyboard.press("Home")
    seen.page.keyboard.press("Shift+End")
    seen.page.keyboard.type("gamma, lam = 0.0, 0.9")
    seen.page.keyboard.press("Control+Enter")
    ended(seen, "gamma, lam = 0.0", len(CODE) + 1)
    after = bars(output(at(seen, "gamma, lam = 0.0")))
    assert list(after) == list(before)
    *earlier, last = after.values()
    assert last > 0.8 and all(abs(value) < 0.2 for value in earlier), after
    question = at(seen, "What do you expect with `gamma = 0`?")
    solution = question.locator(".jp-RenderedMarkdown p", has_text="the agent learns to step onto an apple beside it")
    assert not solution.is_visible()
    question.locator("summary").click()
    solution.wait_for()
    seen.shot("workshop-solution", solution)


def test_a_solution_is_code_that_runs(seen):
    """It is typed into a cell of one's own below the question, after all cells were run: that is where pupils are."""
    question = at(seen, "One rollout, one update")
    question.locator("summary").click()
    code = question.locator(".jp-RenderedMarkdown pre code").inner_text().strip()
    seen.command("notebook:insert-cell-below")
    seen.page.keyboard.press("Enter")
    seen.page.keyboard.insert_text(code)
    seen.page.keyboard.press("Control+Enter")
    cell = seen.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
    cell.locator(".jp-OutputArea-output", has_text=re.compile(r"^\s*0?\.\d+|^\s*[01]\.")).wait_for()
    assert float(output(cell)) < 0.6                                     # "hardly better" than chance


def test_nobody_complained(seen):
    """The last of this file: nothing in the browser's console, nothing in the logs of server and kernel."""
    assert seen.errors == [] and seen.lab.complaints() == []
