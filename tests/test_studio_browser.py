"""The studio in a real JupyterLab, with a real browser: what a person sees, clicks and types.

With `--long` there are more stages, and pictures of each (light and dark, wide and narrow). They and the figures
measured are kept in the folder that ENVGEN_SCREENSHOTS names, else in pytest's temporary folder. No time is asserted.
"""
import io
import re
import time
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import Browser, write_notebook
from PIL import Image

from envgen_nb.agent.clips import animate
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Accepted
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings

IMPORTS = """
from envgen_nb.designer.reply import Design
from envgen_nb.studio.worlds import Worlds, worlds_view
from envgen_nb.game.simulator import get_simulator
"""
MAKE = """
game = get_simulator("{game}")
purposes = ["{one}", "<b>not bold</b> <img src=x onerror=alert(1)>"]
found = [game.practice(name, "{vocabulary}")[0] for name in ("{one}", "{two}")]
worlds = Worlds(game, "{vocabulary}", designs=tuple(map(Design, found, purposes)), previous=(Design(found[1]),))
"""
SHOW = "worlds_view(worlds)"
TABLE = """
import ipywidgets as widgets

from envgen_nb.studio.compare import RunTable
from envgen_nb.studio.elements import STYLE

def cells(k):
    return {"run": [f"run {k}", f"run {k}"], "score": [k / 3, f"{k / 3:.1f}"], "words": ["", 'a, "b"'],
            "game": ["", ("crafter", "heist")[k % 2]], "steps": [1000 * k, f"{1000 * k:,}"]}

columns = [["run", "run", "text"], ["score", "score, %", "number"], ["game", "game", "text"],
           ["words", "words", "text"], ["steps", "steps", "number"]]
runs = RunTable(group="game", columns=columns, rows=[
    {"id": f"{k}", "name": f"run {k}", "archived": k == 6, "cells": cells(k)} for k in range(7)])
view = widgets.VBox([widgets.HTML(STYLE), runs])
view
"""
CURVES = """
import math

import ipywidgets as widgets

from envgen_nb.results.charts import COLOURS, Series
from envgen_nb.results.statistics import Estimate, mean
from envgen_nb.studio.elements import STYLE, Curves, chart_line, chart_panel, estimate_line

steps = list(range(0, 100_001, 1000))
waves = [60 + 20 * math.sin(k) if k % 20 > 9 else None for k in range(101)]
slope = [80 - 0.3 * k if k % 20 < 10 else None for k in range(101)]
lines = [chart_line("training, original game", steps, waves, "original", smooth=True),
         chart_line("training, designed worlds", steps, slope, "designed", smooth=True),
         estimate_line(Series("measured, original game", [0, 50_000, 100_000],
                              [Estimate(v, v - 5, v + 5, 60) for v in (2.0, 40.0, 70.0)]), "measured", "episode")]
bands = [(k, k + 9000) for k in range(0, 100_000, 20_000)]
arms = [Series(name, steps[::20], [mean([k * at + more for more in (0, 3, 5, 6, 9)]) for k in range(6)], colour)
        for name, at, colour in (("plain", 4, COLOURS[0]), ("rules", 6, COLOURS[1]))]
charts = Curves(last=100_000, clock=[[step, step / 500 + step ** 2 / 1e8] for step in steps[1:]], panels=[
    chart_panel("Reward of an episode", lines, "2.0 → 70.0", wide=True, bands=bands),
    chart_panel("collect wood", lines, "2 → 70%", "%", scale=(0, 100), bands=bands),
    chart_panel("place table", lines, "2 → 70%", "%", scale=(0, 100), bands=bands),
    chart_panel("Score", map(estimate_line, arms), wide=True)])
view = widgets.VBox([widgets.HTML(STYLE), charts])
view
"""


@pytest.fixture(scope="module")
def seen(desk):
    """A browser before a JupyterLab with the notebooks of this test."""
    folder = desk.lab.folder
    write_notebook(folder / "worlds.ipynb", IMPORTS,
                   MAKE.format(game="crafter", vocabulary="extended", one="place_table", two="eat_plant"), SHOW)
    write_notebook(folder / "heist.ipynb", IMPORTS,
                   MAKE.format(game="heist", vocabulary="default", one="open_lock_1", two="take_gem"), SHOW)
    return desk


def cards(seen: Browser):
    return seen.page.locator(".envgen-card")


@pytest.mark.long
def test_a_widget_that_a_busy_page_loads_late_hears_the_kernel(seen):
    """Whatever takes the page's time while a widget is loaded: it shows what the kernel says, and nothing is logged."""
    write_notebook(seen.lab.folder / "busy.ipynb", "from envgen_nb.studio.elements import CopyButton",
                   "button = CopyButton(label='before')\nbutton", "button.label = 'after'")
    seen.open("busy.ipynb")
    seen.page.evaluate("""() => {
        const make = URL.createObjectURL;                     // what is called to load the code of a widget
        URL.createObjectURL = (blob) => {
            for (const end = performance.now() + 2500; performance.now() < end;);
            return make.call(URL, blob);
        };
    }""")
    for label in ("before", "after"):
        for _ in range(2 if label == "before" else 1):
            seen.command("notebook:run-cell-and-select-next")
        seen.page.get_by_role("button", name=label, exact=True).wait_for()
    assert seen.errors == []


def test_the_gallery_appears(seen):
    seen.open("worlds.ipynb")
    started = time.perf_counter()
    seen.run_all()
    cards(seen).nth(1).locator("img").wait_for()
    seen.timed("gallery appears, imports included", started)
    assert cards(seen).count() == 2 and cards(seen).first.locator("img").get_attribute("alt")
    assert "<b>not bold</b>" in cards(seen).nth(1).inner_text()               # text stays text
    seen.shot("gallery", cards(seen).first)


def test_a_setting_is_edited_and_the_picture_follows(seen):
    card = cards(seen).first
    started = time.perf_counter()
    card.get_by_role("button", name="Edit").click()
    menu = card.get_by_label("target biome")
    menu.wait_for()
    seen.timed("controls of a world appear", started)
    for biome in ("beaches", "grassland", "mountain"):
        before = card.locator("img").first.get_attribute("src")
        started = time.perf_counter()
        menu.select_option(biome)
        seen.page.wait_for_function("before => document.querySelector('.envgen-card img').src !== before", arg=before)
        seen.timed(f"from edit to new picture, {biome}", started)
    card.get_by_text("target biome: mountain").wait_for()
    seen.shot("edit", card)


@pytest.mark.long
def test_the_map_explains_itself(seen):
    """The start marked, distances in steps, a legend, several seeds at once; what it is for beside what it has."""
    card = cards(seen).first
    card.get_by_text("Steps to the nearest").wait_for()
    told = card.inner_text()
    assert re.search(r"trees \d+", told) and "place_table" in told and "None here:" in told
    marked = seen.page.evaluate("""() => {
        const image = document.querySelector('.envgen-card img'), canvas = document.createElement('canvas');
        canvas.width = image.naturalWidth, canvas.height = image.naturalHeight;
        const at = canvas.getContext('2d');
        at.drawImage(image, 0, 0);
        const half = canvas.height / 2;                                   // the map is the left square of the two
        return [...at.getImageData(half - half / 4, half - half / 4, half / 2, half / 2).data].reduce(
            (white, value, k, all) => white + (k % 4 === 0 && value + all[k + 1] + all[k + 2] === 765), 0);
    }""")
    assert marked > 20                                       # the white frame around the start
    legend = seen.page.locator("details", has_text="Legend")
    legend.locator("summary").click()
    assert {"water", "tree", "diamond", "you", "ripe plant"} <= set(
        map(str.strip, legend.locator("span").all_inner_texts()))
    assert legend.locator("img").first.is_visible()
    seen.page.get_by_label("Seeds at once").select_option("4")
    card.locator("figure", has_text="seed 3").wait_for()
    pictures = card.locator("figure img").evaluate_all("all => all.map(one => one.src)")
    assert len(pictures) == len(set(pictures)) == 4
    seen.shot("seeds", card)
    seen.page.get_by_label("Seeds at once").select_option("1")
    card.locator("figure").first.wait_for(state="detached")
    legend.locator("summary").click()


@pytest.mark.long
def test_a_wrong_combination_is_told_beside_the_control(seen):
    card = cards(seen).first
    card.get_by_label("zombies").select_option("very common")
    card.get_by_label("peaceful").select_option("yes")
    told = card.get_by_role("alert").filter(has_text="peaceful worlds have no zombies")
    told.wait_for()
    seen.shot("complaint", told)
    card.get_by_label("peaceful").select_option("as in the game")
    told.wait_for(state="hidden")
    close(card, "edit")


def close(card, panel: str):
    """Close a panel of a card: the kernel does it, so it takes a moment."""
    card.get_by_role("button", name=f"Close {panel}").click()
    card.get_by_role("button", name=re.compile(rf"\b{panel.capitalize()}$")).wait_for()    # its icon comes before


def focus(seen: Browser):
    """What has the keyboard's focus: its kind, and what it says."""
    return seen.page.evaluate("() => [document.activeElement.tagName, document.activeElement.getAttribute('role')]")


@pytest.mark.long
def test_a_setting_is_edited_with_the_keyboard_alone(seen):
    card = cards(seen).first
    card.get_by_role("button", name="Edit").focus()
    seen.page.keyboard.press("Enter")
    card.get_by_role("button", name="Close edit").wait_for()
    card.get_by_label("target biome").wait_for()
    while focus(seen)[0] != "SELECT":
        seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("b")                            # to JupyterLab: a new cell below
    card.get_by_text("target biome: beaches").wait_for()
    seen.page.keyboard.press("ArrowUp")                      # the cell above
    card.get_by_text("target biome: mountain").wait_for()
    assert seen.page.locator(".jp-Notebook .jp-Cell").count() == 3
    close(card, "edit")


def test_a_world_is_played_with_the_keyboard(seen):
    card = cards(seen).first
    card.get_by_role("button", name="Play").focus()
    seen.page.keyboard.press("Enter")
    card.get_by_role("application").wait_for()
    seen.page.wait_for_function("() => document.activeElement.getAttribute('role') === 'application'")
    status, frames = card.locator(".envgen-play-status"), []
    moves = ["ArrowLeft", "ArrowDown", "ArrowRight", "t", " ", "1", "ArrowUp"]
    for number, key in enumerate([*moves, "d", "d", "a"], start=1):            # the last three are no keys of the game
        started = time.perf_counter()
        seen.page.keyboard.press(key)
        if number <= len(moves):
            status.filter(has_text=f"Step {number},").wait_for()
            seen.timed("from a key to the next picture", started)
            frames.append(np.asarray(Image.open(io.BytesIO(card.locator('.envgen-play').screenshot())).convert("RGB")))
    (seen.shots / "play.webp").write_bytes(animate(frames, fps=2, shrink=1))
    assert seen.page.locator(".jp-Notebook .jp-Cell").count() == 3            # `d d` deleted no cell, `a` made none
    card.get_by_role("button", name="noop").click()
    status.filter(has_text="Step 8,").wait_for()
    assert card.locator(".envgen-play-goals .reached").filter(has_text="✓ place table").count() == 1
    seen.shot("play", card)
    card.get_by_role("button", name="Start again").click()
    status.filter(has_text="Step 0,").wait_for()
    seen.page.keyboard.press("6")
    status.filter(has_text="Make iron sword needs: ").wait_for()
    seen.page.keyboard.press("q")
    status.filter(has_text="q is no key of this game").wait_for()
    seen.page.keyboard.press("Escape")                                        # leaves the game, to its button
    card.get_by_role("application").wait_for(state="detached")
    assert "Play" in seen.page.evaluate("() => document.activeElement.innerText")


def test_a_panel_that_is_opened_comes_into_view(seen):
    """Also on a low screen; and the keys play at once, and do not scroll the page."""
    card, page = cards(seen).first, seen.page
    page.set_viewport_size({"width": 1400, "height": 700})
    for name, inside in (("Edit", "select"), ("Clip", ".envgen-panel .widget-html"), ("Play", "[role=application]")):
        pressed = card.get_by_role("button", name=re.compile(rf"\b{name}$"))
        pressed.scroll_into_view_if_needed()
        pressed.click()
        card.locator(inside).first.wait_for()
        page.wait_for_function("""inside => {
            const box = document.querySelector('.envgen-card').querySelector(inside).getBoundingClientRect();
            return box.top >= 0 && Math.min(box.bottom, box.top + 150) <= window.innerHeight;
        }""", arg=inside)
        if name != "Play":
            close(card, name.lower())
    where = "() => document.querySelector('.envgen-play').getBoundingClientRect().top"
    before = page.evaluate(where)
    page.keyboard.press("ArrowDown")
    card.locator(".envgen-play-status").filter(has_text="Step 1,").wait_for()
    assert page.evaluate(where) == before
    page.keyboard.press("Escape")
    card.get_by_role("application").wait_for(state="detached")
    page.set_viewport_size({"width": 1400, "height": 1500})


@pytest.mark.long
def test_a_clip_is_made(seen):
    card = cards(seen).nth(1)
    started = time.perf_counter()
    card.get_by_role("button", name="Clip").click()
    card.locator("img[src^='data:image/webp']").wait_for()
    seen.timed("a clip of 100 steps", started)
    card.get_by_text("Actions at random, 100 steps").first.wait_for()
    seen.shot("clip", card)


@pytest.mark.long
def test_worlds_are_duplicated_moved_dropped_and_brought_back(seen):
    cards(seen).first.get_by_role("button", name="Duplicate").click()
    cards(seen).nth(2).wait_for()
    cards(seen).nth(2).get_by_title("Move world 3 one place to the front").click()
    cards(seen).nth(1).filter(has_text="not bold").wait_for()
    cards(seen).first.get_by_role("button", name="Drop").click()
    cards(seen).nth(2).wait_for(state="detached")
    undo = seen.page.get_by_role("button", name="Undo")
    undo.click()
    cards(seen).nth(2).wait_for()                            # not dropped
    undo.click()
    cards(seen).nth(2).filter(has_text="not bold").wait_for()                 # not moved
    undo.click()
    cards(seen).nth(2).wait_for(state="detached")            # not duplicated
    assert cards(seen).count() == 2 and "not bold" in cards(seen).nth(1).inner_text()


@pytest.mark.long
def test_heist_shows_its_way_and_is_played(seen):
    pytest.importorskip("procgen")                           # there is no build of it for every Python
    seen.open("heist.ipynb")
    seen.run_all()
    card = cards(seen).first
    card.locator("img").wait_for()
    before = card.locator("img").get_attribute("src")
    seen.page.get_by_label("Show the way").check()
    seen.page.wait_for_function("before => document.querySelector('.envgen-card img').src !== before", arg=before)
    card.get_by_role("button", name="Edit").click()
    card.get_by_label("keys held").select_option("3")
    card.get_by_role("alert").filter(has_text="keys_held is 3").wait_for()
    seen.shot("heist", card)
    card.get_by_role("button", name="Play").click()
    card.get_by_role("application").click()
    seen.page.keyboard.press("ArrowUp")
    card.locator(".envgen-play-status").filter(has_text="Step 1,").wait_for()
    seen.shot("heist-play", card)


def test_nobody_complained(seen):
    """The last of this file: nothing in the browser's console, nothing in the logs of server and kernel."""
    assert seen.errors == [] and seen.lab.complaints() == []


@pytest.mark.long
def test_a_stage_is_chosen_in_its_row_and_edited(desk):
    """A click or an arrow key chooses; a copy is put behind it, and taken back; the rows follow the run."""
    run = create_run(make_settings(designer="ladders", vocabulary="extended", num_cycles=1, cycle_steps=8192,
                                   evaluation_runs=1, evaluation_episodes=2, threads=1), desk.lab.folder / "ladders")
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    write_notebook(desk.lab.folder / "ladders.ipynb", "from envgen_nb.studio.studio import Studio",
                   "studio = Studio('ladders')\nstudio.open_page('Worlds')\nstudio")
    desk.open("ladders.ipynb")
    desk.run_all()
    stages = desk.page.locator("li[role=option]")
    stages.nth(1).wait_for()
    goals = [design.goal for design in run.designs("cycle-1")]
    count, first = len(goals), next(k for k, goal in enumerate(goals) if goals.count(goal) > 2)
    assert stages.count() == count and cards(desk).count() == 1
    stages.nth(first + 1).click()
    title = cards(desk).first.locator("b").first
    title.filter(has_text="Stage 2 of").wait_for()
    desk.page.keyboard.press("ArrowRight")
    title.filter(has_text="Stage 3 of").wait_for()
    assert stages.nth(first + 2).get_attribute("aria-selected") == "true"
    assert stages.nth(first + 2).evaluate("one => one === document.activeElement")
    desk.shot("stages", desk.page.locator(".envgen-ladders"))
    cards(desk).first.get_by_role("button", name="Duplicate").click()
    title.filter(has_text="Stage 4 of").wait_for()
    desk.page.wait_for_function(f"document.querySelectorAll('.envgen-ladders li').length === {count + 1}")
    worlds = run.worlds("cycle-1")
    assert worlds[first + 2] == worlds[first + 3] and run.designs("cycle-1")[first + 3].goal == goals[first]
    cards(desk).first.get_by_role("button", name="Play").click()
    cards(desk).first.get_by_role("button", name="Close play").click()
    desk.page.get_by_role("button", name="Undo").click()
    desk.page.wait_for_function(f"document.querySelectorAll('.envgen-ladders li').length === {count}")
    serious = [one["id"] for one in Axe().run(desk.page, context=".envgen-studio").response["violations"]
               if one["impact"] in ("serious", "critical")]
    assert serious == [] and desk.errors == []


@pytest.mark.long
def test_curves_show_their_values_and_are_zoomed_and_smoothed(seen):
    """With the pointer and with the keyboard; over steps and over time; without the kernel."""
    write_notebook(seen.lab.folder / "curves.ipynb", CURVES)
    seen.open("curves.ipynb")
    seen.run_all()
    charts = seen.page.locator(".envgen-curves")
    first, second = (charts.locator(".envgen-curve").nth(k) for k in range(2))
    first.locator("path.line").first.wait_for(state="attached")
    seen.page.wait_for_timeout(500)
    tip, box = first.locator(".envgen-tip"), first.locator("svg").bounding_box()

    def at(share: float) -> tuple[float, float]:        # a place in the first chart, from its left to its right axis
        return box["x"] + 46 + share * (box["width"] - 60), box["y"] + 0.5 * box["height"]

    seen.page.mouse.move(*at(0.5))
    tip.get_by_text("50k steps").wait_for()
    assert "measured, original game: 40.0 [35.0, 45.0], 60 episodes" in tip.inner_text()
    assert second.locator("path.pointer").count() == 1 and second.locator(".envgen-tip:visible").count() == 0
    seen.shot("curves-pointed", charts)
    seen.page.mouse.move(*at(0.2))
    seen.page.mouse.down()
    seen.page.mouse.move(*at(0.4), steps=5)
    seen.page.mouse.up()
    charts.get_by_role("button", name="Show all").wait_for()
    numbers = second.locator("text.middle").all_text_contents()
    assert set(numbers) <= {"20k", "25k", "30k", "35k", "40k"}, numbers                  # a closer look at all of them
    seen.page.mouse.dblclick(*at(0.5))
    charts.get_by_role("button", name="Show all").wait_for(state="hidden")
    before = first.locator("path.line.original").get_attribute("d")
    charts.get_by_label("Smoothing").fill("0.9")
    assert first.locator("path.line.original").get_attribute("d") != before
    assert first.locator("path.raw.original").get_attribute("d") == before               # what was, is still there
    seen.page.mouse.move(*at(0.65))
    assert "unsmoothed" in tip.inner_text()
    charts.get_by_label("Axis").select_option("time of training")
    first.locator("svg").focus()
    seen.page.keyboard.press("End")
    tip.get_by_text("5:00 of training").wait_for()                                       # 100,000 / 500 + 100 seconds
    assert "5:00 of training" in charts.locator(".envgen-said").inner_text()
    seen.page.keyboard.press("Home")
    tip.get_by_text("0:00 of training").wait_for()
    seen.page.keyboard.press("ArrowDown")                                                # Tab stops at one alone
    assert second.evaluate("figure => figure.contains(document.activeElement)")
    assert charts.locator("svg[tabindex='0']").count() == 1
    seen.page.keyboard.press("ArrowUp")
    seen.page.keyboard.press("End")
    seen.page.keyboard.press("+")
    charts.get_by_role("button", name="Show all").wait_for()
    seen.page.keyboard.press("Escape")
    charts.get_by_role("button", name="Show all").wait_for(state="hidden")
    seen.shot("curves-smoothed", charts)
    found = Axe().run(seen.page, ".envgen-curves")
    assert found.violations_count == 0, found.generate_report()
    assert seen.errors == []


@pytest.mark.long
def test_runs_are_grouped_kept_as_views_and_written(seen):
    """Games apart; a column first; what is shown as CSV; a view is kept under a name, and comes back whole."""
    write_notebook(seen.lab.folder / "table.ipynb", TABLE, "print(runs.views)")
    seen.open("table.ipynb")
    seen.run_all()
    board = seen.page.locator(".envgen-runs")
    board.get_by_text("crafter: 3 runs").wait_for()                       # one is archived
    assert board.get_by_text("heist: 3 runs").count() == 1

    def heads() -> list[str]:
        return [text.strip(" ▲▼") for text in board.locator("thead th").all_inner_texts()[2:]]

    board.get_by_label("Group by").select_option("")
    board.get_by_text("crafter: 3 runs").wait_for(state="detached")
    board.get_by_text("Columns", exact=True).click()
    board.get_by_role("button", name="steps first", exact=True).click()
    board.get_by_label("game", exact=True).uncheck()
    board.get_by_text("Columns", exact=True).click()
    assert heads() == ["steps", "run", "score, %", "words"]
    board.get_by_role("button", name="steps", exact=True).click()
    with seen.page.expect_download() as download:
        board.get_by_role("button", name="CSV", exact=True).click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[:2] == ["steps,run,score,words", '5000,run 5,1.6666666666666667,"a, ""b"""'] and len(lines) == 7
    seen.page.once("dialog", lambda dialog: dialog.accept("by steps"))
    board.get_by_role("button", name="Save view").click()
    board.get_by_label("View", exact=True).select_option("")
    board.get_by_text("crafter: 3 runs").wait_for()
    assert heads() == ["run", "score, %", "game", "words", "steps"]
    board.get_by_label("View", exact=True).select_option("by steps")
    assert heads() == ["steps", "run", "score, %", "words"] and board.get_by_text("crafter: 3 runs").count() == 0
    assert board.locator("th[aria-sort=descending]").inner_text().startswith("steps")
    found = Axe().run(seen.page, ".envgen-runs")
    assert found.violations_count == 0, found.generate_report()
    assert seen.errors == []
