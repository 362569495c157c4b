"""The lab notebook in a real JupyterLab: prompt, generate, train, pause, stop, reload, open a finished run.

Pictures of every stage and the figures measured are kept as in test_studio_browser.py. No time is asserted.
"""
import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import THEMES, Browser
from playwright.sync_api import TimeoutError

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import Labels, label_run, read_labels
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.files import read_jsonl
from envgen_nb.results import kept_summary
from envgen_nb.studio.editor import read_editing
from envgen_nb.studio.studio import PAGES

ROOT = Path(__file__).parent.parent
SMALL = {"seed": 3, "num_cycles": 2, "num_worlds": 2, "cycle_steps": 200_000, "final_steps": 0, "evaluation_runs": 2,
         "evaluation_episodes": 4, "threads": 1}


def lab_notebook(path: Path, **parameters) -> Path:
    """The lab notebook with other values in its parameters cell."""
    notebook = nbformat.read(ROOT / "nbs" / "lab" / "envgen.ipynb", 4)
    cell, = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    for name, value in parameters.items():
        cell.source, count = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value!r}  ", cell.source, flags=re.M)
        assert count == 1, name
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def place(desk) -> Path:
    folder = desk.lab.folder / "lab"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def seen(desk, place):
    shutil.copy(ROOT / "tests" / "recordings" / "crafter-first.md", place / "recorded.md")
    lab_notebook(place / "crafter.ipynb", folder="runs/first", **SMALL)
    return desk


def studio(seen: Browser):
    return seen.page.locator(".envgen-studio").first


def press(seen: Browser, name: str, seconds: float = 120) -> None:
    found = studio(seen).get_by_role("button", name=re.compile(rf"\b{name}$")).first         # its icon comes before
    found.click(timeout=1000 * seconds)


def status(seen: Browser, text: str, seconds: float = 120) -> None:
    studio(seen).get_by_role("status").filter(has_text=text).first.wait_for(timeout=1000 * seconds)


def begin(seen: Browser, name: str) -> None:
    """Press until work begins: a click on a page whose parts are moving, as when a run is closed, can miss."""
    for _ in range(5):
        with contextlib.suppress(TimeoutError):
            press(seen, name, 5)                                                  # of no use while work goes on
        with contextlib.suppress(TimeoutError):
            return status(seen, "Working", 10)
    raise AssertionError(f"{name} begins nothing:\n{studio(seen).get_by_role('status').first.inner_text()}")


def in_front(seen: Browser, name: str) -> None:
    """The page of this name comes to the front by itself."""
    studio(seen).locator(f"[role=tab][aria-label={name}][aria-selected=true]").wait_for(timeout=240_000)


def next_step(seen: Browser, name: str) -> None:
    """The one filled button is this."""
    studio(seen).locator(".mod-primary:visible", has_text=name).wait_for(timeout=240_000)
    assert studio(seen).locator(".mod-primary:visible").count() == 1


def tab(seen: Browser, name: str) -> None:
    found = studio(seen).get_by_role("tab", name=name, exact=True)
    for attempt in range(40):                                 # a click that meets a page being drawn anew is lost
        found.click()
        seen.page.wait_for_timeout(250)
        if found.get_attribute("aria-selected") == "true":
            return
        if attempt >= 20:                                     # the cell leaves the page, and comes back
            seen.page.mouse.wheel(0, 20_000)
            seen.page.wait_for_timeout(500)
    seen.page.screenshot(path=seen.shots / f"tab-{name}-stuck.png")
    bar = found.locator("xpath=ancestor::*[@role='tablist']")
    raise AssertionError(f"the tab {name} does not open:\n{bar.evaluate('bar => bar.outerHTML')}\n{seen.errors}")


def last_step(seen: Browser) -> int:
    """The step at which the curves end that are to be seen."""
    drawing = studio(seen).locator(".envgen-curves[data-last]:visible")
    drawing.wait_for()
    return int(drawing.get_attribute("data-last"))


def curves_end_at(seen: Browser, step: int) -> None:
    """The curves that are to be seen are those that end there, as soon as they are drawn."""
    until = time.monotonic() + 30
    while (found := last_step(seen)) != step:
        assert time.monotonic() < until, f"the curves end at {found}, not at {step}"
        seen.page.wait_for_timeout(200)


def chosen_in(menu) -> str:
    """What a menu shows; ipywidgets puts spaces in it that do not break."""
    return menu.locator("option:checked").inner_text().replace("\xa0", " ")


def template(seen: Browser):
    return studio(seen).get_by_role("textbox", name="the template")


def run(place: Path, name: str = "first") -> RunFolder:
    return RunFolder(place / "runs" / name)


def wait_for_checkpoint(seen: Browser, folder: Path) -> None:
    """Until a stop would keep some of the training, even one that breaks a slow rollout off."""
    run, begun, until = RunFolder(folder), None, time.monotonic() + 120

    def written() -> int:
        path = run.file(run.CHECKPOINT)
        return path.stat().st_mtime_ns if path.exists() else 0

    while begun is None or written() == begun:
        assert time.monotonic() < until, "no checkpoint is written"
        if begun is None and run.metrics("cycle-1"):
            begun = written()
        seen.page.wait_for_timeout(100)


def reload(seen: Browser) -> None:
    """The page anew, the kernel as it was."""
    seen.command("docmanager:save")
    seen.page.wait_for_timeout(1500)
    seen.page.reload()
    seen.page.wait_for_selector(".jp-Notebook .jp-Cell")
    seen.page.wait_for_timeout(3000)
    seen.page.mouse.move(700, 700)
    seen.page.mouse.wheel(0, 900)                                                 # cells out of sight are not drawn
    studio(seen).get_by_role("button", name=re.compile(r"\bTrain$")).wait_for()


def test_the_studio_appears(seen, place):
    seen.open("lab/crafter.ipynb")
    for _ in range(3):                                                            # up to the studio's cell
        seen.command("notebook:run-cell-and-select-next")
    seen.page.wait_for_function(                                                  # a folded cell shows no number
        "() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.executionCount === 2")
    started = time.perf_counter()
    seen.command("notebook:run-cell-and-select-next")
    studio(seen).get_by_role("button", name="Generate").wait_for()
    seen.timed("studio appears", started)
    seen.command("notebook:run-all-below")
    assert seen.page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert not seen.page.locator(".envgen-still").first.is_visible()
    seen.shot("lab-prompt", studio(seen))


def test_the_template_is_edited_and_the_prompt_follows(seen):
    area = template(seen)
    area.click()
    seen.page.keyboard.press("Control+End")
    started = time.perf_counter()
    seen.page.keyboard.type("Be bold, and mind the {{num_worlds}}!")
    studio(seen).get_by_label("the filled-in prompt").filter(has_text="and mind the 2!").wait_for()
    seen.timed("40 letters typed, and seen in the prompt", started)


@pytest.mark.long
def test_a_broken_placeholder_is_named(seen):
    text = template(seen).input_value()
    template(seen).fill(text.replace("{{task}}", "{{tsak}}"))
    studio(seen).get_by_text("did you mean {{task}}?").wait_for()
    studio(seen).get_by_text("✗ missing").first.wait_for()
    seen.shot("lab-broken", template(seen))
    press(seen, "Generate")                                                       # is refused, in words
    studio(seen).get_by_role("alert").filter(has_text="cannot be used").first.wait_for()
    template(seen).fill(text)
    studio(seen).get_by_text("All placeholders are in their places").wait_for()
    studio(seen).get_by_role("alert").filter(has_text="cannot be used").wait_for(state="detached")     # mended


@pytest.mark.long
def test_what_is_typed_is_kept_and_nothing_is_discarded_unasked(seen, place):
    """A template by its true name; prices as numbers, and an error that goes when it is mended."""
    names = studio(seen).get_by_label("Template", exact=True)
    assert chosen_in(names) == "default, changed"
    until = time.monotonic() + 30
    while "Be bold" not in str(read_editing(run(place).path / "templates")) and time.monotonic() < until:
        seen.page.wait_for_timeout(100)
    assert "Be bold" in read_editing(run(place).path / "templates")["draft"]["first"]
    studio(seen).get_by_label("Save as").fill("bold")
    seen.page.keyboard.press("Tab")
    press(seen, "Save")
    studio(seen).get_by_role("status").filter(has_text="Saved as").wait_for()
    assert chosen_in(names) == "bold"
    template(seen).click()
    seen.page.keyboard.type(" ")
    names.locator("option", has_text="bold, changed").wait_for(state="attached")
    names.select_option("default")
    question = studio(seen).get_by_role("alert").filter(has_text="changes that are not saved")
    question.wait_for()
    assert chosen_in(names) == "bold, changed"
    press(seen, "Keep them")
    question.wait_for(state="detached")
    names.select_option("default")
    press(seen, "Discard them")
    names.locator("option:checked", has_text="default").wait_for(state="attached")
    names.select_option("bold")
    studio(seen).get_by_label("the filled-in prompt").filter(has_text="and mind the 2!").wait_for()
    studio(seen).get_by_label("Designer").first.select_option("openai")
    for label, text in (("Price in", "2"), ("Price out", "8 dollars")):
        studio(seen).get_by_label(label).fill(text)
        seen.page.keyboard.press("Tab")
    wrong = studio(seen).get_by_role("alert").filter(has_text="price_out")
    wrong.wait_for()
    studio(seen).get_by_label("Price out").fill("8")
    seen.page.keyboard.press("Tab")
    wrong.wait_for(state="detached")
    studio(seen).get_by_text(re.compile("about 0.[0-9]+ USD")).first.wait_for()
    seen.shot("lab-names", names)


def test_generate_with_replay(seen, place):
    studio(seen).get_by_label("Designer").first.select_option("replay")
    studio(seen).get_by_label("Recorded replies").fill("recorded.md")
    studio(seen).get_by_role("spinbutton", name="Worlds", exact=True).fill("4")
    seen.page.keyboard.press("Tab")
    press(seen, "Generate")
    status(seen, "the agent is to train")
    in_front(seen, "Worlds")
    tab(seen, "Generate")
    assert "mind the 4!" in run(place).text("cycle-1", "prompt.md")
    studio(seen).get_by_text("accepted ✓").wait_for()
    seen.shot("lab-generated", studio(seen).get_by_text("The conversation"))


@pytest.mark.long
def test_the_page_is_reloaded_before_training(seen):
    reload(seen)
    status(seen, "the agent is to train")
    in_front(seen, "Generate")
    studio(seen).get_by_text("accepted ✓").wait_for()
    next_step(seen, "Train")


@pytest.mark.long
def test_generate_by_hand(seen, place):
    tab(seen, "Prompt")
    studio(seen).get_by_label("Designer").first.select_option("manual")
    press(seen, "Generate")
    box = studio(seen).get_by_placeholder("Paste the whole reply")
    box.wait_for()
    studio(seen).get_by_role("button", name="Copy the prompt").click()
    seen.shot("lab-manual", box)
    box.fill((place / "recorded.md").read_text())
    press(seen, "Hand in the reply")
    status(seen, "the agent is to train")
    assert (run(place).path / "cycle-1" / "drafts" / "1" / "reply.md").exists()   # what replay had said is kept


def test_a_world_is_edited(seen, place):
    tab(seen, "Worlds")
    card = seen.page.locator(".envgen-card").first
    card.get_by_role("button", name="Edit").click()
    menu = card.get_by_label("target biome")
    menu.wait_for()
    before = card.locator("img").first.get_attribute("src")
    started = time.perf_counter()
    menu.select_option("beaches")
    seen.page.wait_for_function("before => document.querySelector('.envgen-studio .envgen-card img')"
                                ".getAttribute('src') !== before", arg=before)
    seen.timed("from edit to new picture, in the studio", started)
    for _ in range(300):
        if "beaches" in (run(place).text("cycle-1", "edited.md") or ""):
            break
        time.sleep(0.1)
    assert "beaches" in run(place).text("cycle-1", "edited.md")
    seen.shot("lab-worlds", card)


def test_train_pause_and_stop(seen, place):
    press(seen, "Train")
    status(seen, "steps/s")
    in_front(seen, "Train")
    wait_for_checkpoint(seen, run(place).path)
    studio(seen).locator(".envgen-curves svg path.line.designed").first.wait_for(state="attached")
    seen.shot("lab-training", studio(seen))
    started = time.perf_counter()
    press(seen, "Pause")
    status(seen, "Paused")
    seen.timed("from Pause to paused, as it is seen", started)
    seen.page.wait_for_timeout(1200)                                              # news come once a second
    done = studio(seen).locator("progress").first.get_attribute("value")
    seen.page.wait_for_timeout(1500)
    assert studio(seen).locator("progress").first.get_attribute("value") == done
    press(seen, "Resume")
    status(seen, "Working")
    started = time.perf_counter()
    press(seen, "Stop")
    status(seen, "Waiting")
    seen.timed("from Stop to stopped, as it is seen", started)
    curves_end_at(seen, run(place).metrics("cycle-1")[-1]["step"])


@pytest.mark.long
def test_the_page_is_reloaded(seen, place):
    reload(seen)
    status(seen, "training is to go on")
    tab(seen, "Train")
    curves_end_at(seen, run(place).metrics("cycle-1")[-1]["step"])
    studio(seen).locator("text=measured, original game, 95% interval").first.wait_for()
    seen.page.wait_for_timeout(1000)
    seen.shot("lab-reloaded", studio(seen))
    press(seen, "Whole cycle")
    status(seen, "Working")
    status(seen, "cycle 2", 180)
    assert run(place).evaluation("cycle-1") is not None
    in_front(seen, "Measure")
    seen.shot("lab-measured", studio(seen))
    reload(seen)                                                                  # measured
    status(seen, "cycle 2: the worlds are to be generated")
    in_front(seen, "Measure")
    next_step(seen, "Generate")


@pytest.mark.long
def test_all_cycles_and_the_comparison(seen, place):
    tab(seen, "Prompt")
    studio(seen).get_by_label("Designer").first.select_option("rules")
    press(seen, "All cycles")
    status(seen, "steps/s", 120)
    press(seen, "Pause")
    reload(seen)                                                                  # paused
    status(seen, "Paused")
    press(seen, "Resume")
    status(seen, "the run is finished", 300)
    studio(seen).get_by_text("The run is finished. Next:").wait_for()
    next_step(seen, "Make its report")
    studio(seen).get_by_role("button", name="Make its report").click()
    studio(seen).get_by_role("link", name="runs/first/report.html").wait_for()
    tab(seen, "Compare")
    folder = studio(seen).get_by_label("Folder", exact=True)
    folder.fill(str(place / "nowhere"))
    seen.page.keyboard.press("Tab")
    studio(seen).get_by_role("alert").filter(has_text="There is no folder").wait_for()
    assert studio(seen).get_by_text("0 of 0").count() == 0
    folder.fill("")
    seen.page.keyboard.press("Tab")
    studio(seen).get_by_role("alert").filter(has_text="There is no folder").wait_for(state="detached")
    studio(seen).get_by_text("Score of the policy in the original game").first.wait_for()
    seen.page.wait_for_timeout(1500)
    seen.shot("lab-compare", studio(seen), height=2400)


@pytest.mark.long
def test_a_finished_run_is_opened(seen, place):
    reload(seen)                                                                  # finished
    status(seen, "the run is finished")
    tab(seen, "Train")
    whole = run(place).metrics("cycle-2")[-1]["step"]
    curves_end_at(seen, whole)
    press(seen, "New run")
    status(seen, "the agent is to be measured")
    studio(seen).get_by_text("No training yet").first.wait_for(state="attached")         # no other run's curves
    begin(seen, "Whole cycle")
    wait_for_checkpoint(seen, next((place / "runs").glob("crafter-*")))
    press(seen, "Stop")
    status(seen, "Waiting")
    assert 0 < last_step(seen) < whole
    studio(seen).get_by_label("Run", exact=True).select_option("first")
    press(seen, "Open")
    status(seen, "the run is finished")
    tab(seen, "Measure")
    studio(seen).locator("td").filter(has_text="collect_wood").first.wait_for()
    tab(seen, "Train")
    curves_end_at(seen, whole)


def tab_to(seen: Browser, name: str, key: str = "Tab") -> None:
    """With the Tab key alone to a button."""
    for _ in range(60):
        if seen.page.evaluate("() => document.activeElement.innerText?.trim()") == name:
            return
        seen.page.keyboard.press(key)
    raise AssertionError(f"the Tab key does not lead to {name!r}")


@pytest.mark.long
def test_from_the_prompt_to_a_trained_agent_with_the_keyboard_alone(seen, place):
    """The road, a preset, every next step, and a name for the run; the page that follows comes to the front."""
    lab_notebook(place / "keys.ipynb", folder="runs/keys", seed=4, threads=1, num_worlds=2)
    seen.open("lab/keys.ipynb")
    seen.run_all()
    studio(seen).get_by_role("button", name="Generate").wait_for()
    in_front(seen, "Prompt")
    seen.page.wait_for_timeout(1500)
    top = studio(seen).bounding_box()["y"]
    assert 0 <= top < 300, f"the studio begins at {top}"                          # the first thing on the screen
    studio(seen).locator("[role=tab][aria-label=Prompt]").focus()
    for name in ("Generate", "Worlds", "Train"):
        seen.page.keyboard.press("ArrowRight")
        in_front(seen, name)
    studio(seen).get_by_role("button", name="Half a minute").wait_for()
    tab_to(seen, "Half a minute")
    seen.page.keyboard.press("Enter")
    studio(seen).get_by_role("status").filter(has_text="49,152 steps of training").first.wait_for()
    for button, page in (("Generate", "Worlds"), ("Train", "Train"), ("Measure", "Measure")):
        next_step(seen, button)
        tab_to(seen, button, "Shift+Tab")
        seen.page.keyboard.press("Enter")
        in_front(seen, page)
    next_step(seen, "Generate")
    settings = run(place, "keys").settings
    assert (settings.cycle_steps, settings.num_cycles, settings.seed) == (24_576, 2, 4)
    assert run(place, "keys").evaluation("cycle-1") is not None
    seen.page.wait_for_timeout(500)
    tab_to(seen, "Label", "Shift+Tab")
    seen.page.keyboard.press("Enter")
    studio(seen).get_by_role("textbox", name="Name", exact=True).wait_for()
    seen.page.keyboard.press("Tab")
    while seen.page.evaluate("() => document.activeElement.tagName") != "INPUT":
        seen.page.keyboard.press("Tab")
    seen.page.keyboard.type("before lunch")
    seen.page.keyboard.press("Tab")
    studio(seen).get_by_label("Run", exact=True).locator("option", has_text="before lunch (keys)").first.wait_for(
        state="attached")
    assert read_labels(place / "runs" / "keys").name == "before lunch"


@pytest.mark.long
def test_a_page_that_a_person_chose_stays(seen, place):
    press(seen, "Whole cycle")
    status(seen, "steps/s", 120)
    tab(seen, "Worlds")
    status(seen, "the run is finished", 240)
    seen.page.wait_for_timeout(1000)
    in_front(seen, "Worlds")
    assert studio(seen).locator("[role=tab][data-state=done]").count() == 5


@pytest.mark.long
def test_a_panel_for_each_objective_or_for_those_that_changed_most(seen, place):
    tab(seen, "Train")
    panels = studio(seen).locator(".envgen-curves .envgen-curve:not(.wide)")
    panels.first.wait_for()
    every = panels.count()
    assert studio(seen).locator(".envgen-curves .envgen-key").is_visible()
    assert studio(seen).locator(".envgen-curves rect.band").count() > 0           # the time in designed worlds
    seen.shot("lab-panels", studio(seen).locator(".envgen-curves"))
    studio(seen).get_by_role("button", name="that changed most").click()
    studio(seen).get_by_text("those that changed most at the last measurement").wait_for()
    assert 0 < panels.count() <= min(6, every)
    studio(seen).get_by_role("button", name="all that were reached").click()
    studio(seen).get_by_text("those that changed most at").wait_for(state="detached")
    assert panels.count() == every


@pytest.mark.long
def test_a_run_is_tagged_noted_and_put_away(seen, place):
    """In labels.json; run.json stays as it is."""
    folder = place / "runs" / "keys"
    before = (folder / "run.json").read_bytes()
    for label, text in (("Tags", "class 3, wood"), ("Note", "the first try")):
        studio(seen).get_by_role("textbox", name=label, exact=True).fill(text)
        seen.page.keyboard.press("Tab")
    studio(seen).get_by_label("Archived", exact=True).check()
    until = time.monotonic() + 30
    while not read_labels(folder).archived and time.monotonic() < until:
        seen.page.wait_for_timeout(100)
    assert read_labels(folder) == Labels("before lunch", "the first try", ("class 3", "wood"), True)
    menu = studio(seen).get_by_label("Run", exact=True)
    menu.select_option("first")
    press(seen, "Open")
    menu.locator("option", has_text="keys").wait_for(state="detached")            # no longer offered
    status(seen, "first")
    label_run(folder, archived=False)
    press(seen, "Refresh")
    menu.locator("option", has_text="keys").wait_for(state="attached")
    menu.select_option("before lunch (keys)")
    press(seen, "Open")
    status(seen, "keys")
    assert (folder / "run.json").read_bytes() == before
    studio(seen).locator("summary", has_text="Keyboard").click()
    studio(seen).get_by_text("on the road: the page before, the next one").wait_for()
    studio(seen).locator("summary", has_text="Keyboard").click()


@pytest.mark.long
def test_a_run_is_shared(seen, place):
    """One zip with the report, which the browser loads."""
    press(seen, "Share")
    link = studio(seen).get_by_role("link", name="runs/keys.zip")
    link.wait_for()
    seen.shot("lab-shared", link)
    with seen.page.expect_download() as loading:
        link.click()
    with zipfile.ZipFile(loading.value.path()) as whole:
        assert {"keys/run.json", "keys/report.html", "keys/labels.json"} <= set(whole.namelist())


@pytest.mark.long
def test_two_hundred_runs_are_compared(seen, place):
    """Filtered, sorted, chosen, and set beside a baseline; seeds of one kind are one line."""
    for k in range(200):
        folder = place / "runs" / f"copy-{k:03}"
        shutil.copytree(place / "runs" / "keys", folder, ignore=shutil.ignore_patterns("*.pt", "tensorboard", "*.png"))
        info = json.loads((folder / "run.json").read_text())
        info["settings"] |= {"seed": k // 2, "mixture_ratio": (0.5, 0.25)[k % 2]}
        (folder / "run.json").write_text(json.dumps(info))
        label_run(folder, name=f"share {k % 2}", tags=("even",) if k % 2 == 0 else (), archived=k >= 190)
        kept_summary(folder)
    started = time.perf_counter()
    tab(seen, "Compare")
    board = studio(seen).locator(".envgen-runs")
    board.get_by_text(re.compile("^19[0-9] of 20[0-9] runs")).wait_for()
    seen.timed("Compare with 200 runs appears", started)
    board.get_by_label("archived ones too").check()
    board.get_by_text(re.compile("^20[0-9] of 20[0-9] runs")).wait_for()
    board.get_by_text("Columns", exact=True).click()
    board.get_by_label("tokens", exact=True).uncheck()                            # a column that is hidden
    board.get_by_role("columnheader", name="tokens").wait_for(state="detached")
    board.get_by_text("Columns", exact=True).click()
    started = time.perf_counter()
    board.get_by_label("Filter").fill("even copy-1")
    board.get_by_text(re.compile("^50 of")).wait_for()
    seen.timed("200 runs filtered", started)
    board.get_by_role("button", name="mixture ratio").wait_for()                  # a setting in which they differ
    board.get_by_role("button", name=re.compile("^seed")).click()
    assert board.locator("th[aria-sort=descending]").inner_text().startswith("seed")
    for k in (100, 102):
        board.get_by_label(f"show share 0 (copy-{k})").check()
    board.get_by_label("Filter").fill("copy-1")
    for k in (101, 103):
        board.get_by_label(f"show share 1 (copy-{k})").check()
    board.get_by_label("share 0 (copy-100) is the baseline").check()
    studio(seen).locator("td", has_text="the baseline").first.wait_for()
    studio(seen).locator("td", has_text="2 seeds").first.wait_for()               # paired by seed
    assert studio(seen).locator(".envgen-curve.wide:visible").count() == 2
    seen.shot("lab-compare-200", board)


@pytest.mark.long
def test_a_room_of_learners_is_one_board(seen, place):
    """A shared folder, in which everybody has one."""
    for who, source in (("anna", "copy-000"), ("ben", "copy-001"), ("ben", "copy-002")):
        shutil.copytree(place / "runs" / source, place / "room" / who / "runs" / source)
    board, folder = studio(seen).locator(".envgen-runs"), studio(seen).get_by_label("Folder", exact=True)
    board.get_by_label("Filter").fill("")
    folder.fill(str(place / "room"))
    seen.page.keyboard.press("Tab")
    board.get_by_text(re.compile("^3 of 3 runs")).wait_for()
    board.get_by_role("columnheader", name="learner").wait_for()
    assert sorted(board.locator("tbody tr").evaluate_all(
        "all => all.map(one => one.cells[3].textContent)")) == ["anna", "ben", "ben"]
    seen.shot("lab-room", board)
    folder.fill("")
    seen.page.keyboard.press("Tab")
    board.get_by_text(re.compile("^20[0-9] of 20[0-9] runs")).wait_for()


@pytest.mark.long
def test_no_serious_finding_of_axe_and_no_scroll_bar_within(seen):
    """On every page of the studio, light, dark and in large text."""
    axe, found = Axe(), {}
    for theme in THEMES.values():
        seen._theme(theme)
        for name in PAGES:
            tab(seen, name)
            seen.page.wait_for_timeout(400)
            for one in axe.run(seen.page, context=".envgen-studio").response["violations"]:
                if one["impact"] in ("serious", "critical"):
                    found.setdefault(one["id"], []).append((theme, name, [n["html"][:200] for n in one["nodes"]][:3]))
    seen._theme(THEMES["light"])
    assert found == {}
    studio(seen).get_by_role("button", name="Large text").click()
    for name in PAGES:
        tab(seen, name)
        seen.page.wait_for_timeout(300)
        small = seen.page.evaluate("""() => [...document.querySelectorAll('.envgen-large *')].filter(e => {
            const drawing = e.ownerSVGElement, wide = drawing?.viewBox.baseVal?.width;       // which stretches
            return e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) &&
                e.tagName !== 'title' &&
                parseFloat(getComputedStyle(e).fontSize) * (wide ? drawing.clientWidth / wide : 1) < 14;
        }).map(e => e.outerHTML.slice(0, 120))""")
        assert small == [], name
        seen.page.screenshot(path=seen.shots / f"lab-large-{name.lower()}.png")
    studio(seen).get_by_role("button", name="Leave large text").click()
    tab(seen, "Train")
    bars = seen.page.evaluate("""() => [...document.querySelectorAll('.envgen-studio *')].filter(e =>
        e.checkVisibility() && !e.matches('textarea, .envgen-text, .envgen-purpose, .envgen-runs-place') &&
        getComputedStyle(e).overflowY !== 'visible' && e.scrollHeight > e.clientHeight + 2 && e.clientHeight > 0)
        .map(e => e.className)""")
    assert bars == []


@pytest.mark.long
def test_without_a_kernel_a_picture_stands_there(seen, place):
    seen.command("docmanager:save")
    seen.page.wait_for_timeout(2000)
    outputs = [o for c in nbformat.read(place / "crafter.ipynb", 4).cells for o in c.get("outputs", [])]
    still, = [o for o in outputs if "envgen-still" in str(o.get("data", {}).get("text/html"))]
    # A page that was loaded again is not told of changes to what an earlier page displayed: it has the state of then,
    # which is before the first training.
    assert "the agent is to train" in still.data["text/html"] and "data:image/svg+xml" in still.data["text/html"]


@pytest.mark.long
def test_a_run_from_the_studio_beside_one_without(seen, place):
    """The seconds of the runs are those of their own events; how they compare is recorded."""
    settings = SMALL | {"num_cycles": 1, "cycle_steps": 160_000}

    def seconds(folder: Path) -> float:
        return [event["seconds"] for event in read_jsonl(folder / "events.jsonl") if event["event"] == "Finished"][-1]

    def headless(name: str) -> float:
        create_run(make_settings(**settings), place / "runs" / name)
        code = "import sys; from envgen_nb.cycle.run import run_cycles; list(run_cycles(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, place / "runs" / name], check=True)
        return seconds(place / "runs" / name)

    before = headless("before")
    lab_notebook(place / "pace.ipynb", folder="runs/pace", **settings)
    seen.open("lab/pace.ipynb")
    seen.run_all()
    studio(seen).get_by_role("button", name="Generate").wait_for()
    seen.page.wait_for_timeout(15_000)           # the cells below are run, too, and the browser tidies up after loading
    tab(seen, "Train")
    press(seen, "All cycles")
    until = time.monotonic() + 300
    while time.monotonic() < until and not run(place, "pace").finished():         # the page is not asked meanwhile
        seen.page.wait_for_timeout(500)
    status(seen, "the run is finished")
    assert run(place, "pace").finished()
    ours, without = seconds(place / "runs" / "pace"), (before + headless("after")) / 2
    seen.note("a run from the studio, times one without", ours / without)


@pytest.mark.long
def test_a_finished_run_goes_on(seen, place):
    """With a cycle more, in its folder; the plan before is kept."""
    status(seen, "the run is finished")
    cycles = run(place, "pace").settings.num_cycles
    more = studio(seen).get_by_label("More cycles")
    more.fill("1")
    seen.page.keyboard.press("Tab")
    seen.shot("lab-finished", studio(seen).get_by_text("The run is finished. Next:").locator(".."))
    studio(seen).get_by_role("button", name="Go on").click()
    status(seen, "the agent is to be measured")
    more.wait_for(state="hidden")
    begin(seen, "All cycles")
    status(seen, "the run is finished", 240)
    later = run(place, "pace")
    assert later.settings.num_cycles == cycles + 1 and [plan["num_cycles"] for plan in later.plans()] == [cycles]


def test_nobody_complained(seen):
    """The last of this file: nothing in the browser's console, nothing in the logs of server and kernel."""
    assert seen.errors == [] and seen.lab.complaints() == []
