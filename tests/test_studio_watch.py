"""Watching the agent, the history of prompts, and the report, in a real browser: what is seen, heard by those who do
not see, and reached by keyboard. Pictures are kept as in test_studio_browser.py. No time is asserted."""
import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import write_notebook

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.results.report import write_report

SHOW = """
from envgen_nb.studio.conversation import history_view
from envgen_nb.studio.session import Session
from envgen_nb.studio.play import watch_view
session = Session("runs/small")
watch_view(session)
"""


@pytest.fixture(scope="module")
def run(desk) -> RunFolder:
    """A small run in JupyterLab's folder."""
    folder = desk.lab.folder / "watch" / "runs" / "small"
    create_run(make_settings(num_cycles=2, num_worlds=2, cycle_steps=8192, final_steps=0, evaluation_runs=1,
                             evaluation_episodes=4, threads=1), folder)
    for _ in run_cycles(folder):
        pass
    return RunFolder(folder)


@pytest.fixture(scope="module")
def seen(desk, run):
    write_notebook(desk.lab.folder / "watch" / "watch.ipynb", SHOW, "history_view(session)")
    desk.open("watch/watch.ipynb")
    desk.run_all()
    desk.page.get_by_role("button", name="Watch", exact=False).first.wait_for()
    return desk


def serious(page, context: str | None = None) -> list[str]:
    """What axe-core calls serious or critical."""
    found = Axe().run(page, context=context).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found
            if one["impact"] in ("serious", "critical")]


@pytest.mark.long
def test_the_agent_is_watched_before_beside_after(seen):
    page = seen.page
    page.get_by_label("Steps", exact=True).fill("40")
    page.keyboard.press("Tab")
    started = time.perf_counter()
    page.get_by_role("button", name=re.compile(r"Watch$")).click()
    page.locator(".envgen-watch-film").nth(1).wait_for()
    seen.timed("two episodes of 40 steps recorded and shown", started)
    titles = page.locator(".envgen-watch-title").all_inner_texts()
    assert "before training, the original game" in titles[0] and "after cycle 2" in titles[1]
    lines, slider = page.locator(".envgen-watch-line"), page.get_by_label("Step", exact=True)
    lines.first.filter(has_text="Step 1 of 40").wait_for()
    page.get_by_role("button", name="Next ▶").click()
    lines.first.filter(has_text="Step 2 of 40").wait_for()
    said = page.locator(".envgen-watch-said").all_inner_texts()           # in words, and the options
    assert "Nearest: " in said[0] and "explore" in said[1]
    slider.focus()
    page.keyboard.press("End")                                            # by keyboard to the last step
    lines.nth(1).filter(has_text="Step 40 of 40").wait_for()
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2             # no shortcut of JupyterLab's
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_label("Speed").select_option("32")
    page.get_by_role("button", name="▶ Play").click()
    page.get_by_role("button", name="❚❚ Pause").wait_for()
    lines.first.filter(has_text="Step 40 of 40").wait_for()
    page.get_by_role("button", name="▶ Play").wait_for()                  # at the end it pauses
    chosen = page.locator(".envgen-watch-film").nth(1).locator(".envgen-watch-chance.chosen")
    assert chosen.count() == 1 and re.search(r"\d+%", chosen.inner_text())
    drawn = page.locator(".envgen-watch-film canvas").first.evaluate(
        "one => new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size")
    assert drawn > 20                                                     # a picture, not a plain area
    assert page.locator(".envgen-watch-goals tbody tr").count() == 22
    seen.shot("watch", page.locator(".envgen-watch"))
    assert serious(page, ".envgen-watch") == []


@pytest.mark.long
def test_prompts_are_rows_and_begin_new_runs(seen, run):
    page = seen.page
    table = page.get_by_role("region", name="prompts")
    table.wait_for()
    assert table.locator("tbody tr").count() == 2 and "as the kit's own" in table.inner_text()
    table.get_by_text("lines").first.click()
    seen.shot("history", table)
    page.get_by_role("button", name=re.compile("Start a run from this prompt$")).click()
    page.wait_for_function("() => document.querySelector('select[multiple]')?.options.length === 2")
    new, = [path for path in run.path.parent.iterdir() if path.name != "small" and (path / "run.json").exists()]
    assert RunFolder(new).settings == run.settings.model_copy(update={"threads": None})
    assert (new / "templates" / "first.md").read_text() == (run.path / "templates" / "first.md").read_text()
    assert serious(page, "[aria-label='prompts']") == []


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_can_be_read_by_everybody(desk, run, theme):
    report = write_report(run)
    page = desk.page.context.browser.new_page(color_scheme=theme)
    page.goto(f"file://{report}")
    for width in (1440, 1024, 390, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=desk.shots / f"report-{theme}-{width}.png", full_page=True)
    found = Axe().run(page).response["violations"]
    page.close()
    assert [one["id"] for one in found] == []


@pytest.mark.long
def test_nobody_complained(seen):
    """The last of this file: nothing in the browser's console, nothing in the logs of server and kernel."""
    assert seen.errors == [] and seen.lab.complaints() == []


FRAMES = """
from envgen_nb.studio.frames import frames_view
from envgen_nb.studio.session import Session
frames_view(Session("runs/small"))
"""


@pytest.mark.long
def test_frames_show_their_labels_and_are_exported(desk, run):
    write_notebook(desk.lab.folder / "watch" / "frames.ipynb", FRAMES)
    desk.open("watch/frames.ipynb")
    desk.run_all()
    page = desk.page
    page.get_by_role("button", name=re.compile(r"Show$")).click(timeout=90_000)
    page.get_by_role("img", name=re.compile("^frame 0: .*player")).wait_for(timeout=120_000)
    page.get_by_role("button", name=re.compile(r"Next$")).click()
    page.get_by_role("img", name=re.compile("^frame 1: ")).wait_for()
    page.get_by_role("status").filter(has_text="Frame 1, the last is 99").wait_for()
    frame = page.locator(".envgen-labelled")
    lines = frame.locator("tbody tr").all_inner_texts()                  # each class by its name
    assert any("player" in line and "health 9" in line for line in lines) and any("grass" in line for line in lines)
    assert frame.locator("rect").count() == frame.locator("text").count() > 0
    page.get_by_label("Classes").uncheck()
    page.locator(".envgen-over").wait_for(state="detached")
    page.get_by_label("Classes").check()
    page.locator(".envgen-over").wait_for(state="attached")
    desk.shot("frames", frame)
    page.get_by_label("Frames", exact=True).fill("20")
    page.get_by_label("Called").fill("mine")
    page.keyboard.press("Tab")
    for answer in ("", "Leave it"):
        page.get_by_role("button", name=re.compile(r"Export$")).click()
        if answer:
            page.get_by_role("alert").filter(has_text="is there already").wait_for()
            page.get_by_role("button", name=answer).click()
        else:
            page.get_by_role("status").filter(has_text="20 frames are in").wait_for(timeout=120_000)
    assert (run.path.parent / "mine" / "README.md").exists()
    assert serious(page, ".jp-OutputArea") == []
    assert desk.errors == [] and desk.lab.complaints() == []
