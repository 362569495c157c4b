"""Every notebook of the package runs from top to bottom, each in a process of its own.

The processes are forked from one that has imported what most notebooks need: that would take longer than they do.
"""
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbdev.test import test_nb as run_cells

from envgen_nb.cycle.folder import RunFolder

ROOT = Path(__file__).parent.parent
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["nbdev.test", "envgen_nb.extras.cli", "envgen_nb.experiment.batch",
                              "envgen_nb.studio.studio", "envgen_nb.simulators.crafter.simulator",
                              "envgen_nb.simulators.heist.simulator", "openai", "tensorboard"])


def run_notebook(path: Path, told: Path) -> None:
    """As nbdev-test does it; what is said goes into a file."""
    os.chdir(ROOT)
    with open(told, "w") as file:
        for stream in (sys.__stdout__, sys.__stderr__):
            os.dup2(file.fileno(), stream.fileno())
        passed, _ = run_cells(path, cell_timeout=900)
    os._exit(not passed)


# They compile what their own cells define, measure, or train and draw, which takes from ten seconds to half a minute;
# other tests try the same code in the short form.
LONG = {
        "agent.evaluate", "agent.fused", "agent.networks", "agent.on_policy", "agent.ppo", "agent.train",
        "cycle.edit", "cycle.run", "experiment.file", "experiment.folder", "experiment.run", "experiment.schedule",
        "experiment.batch", "extras.check", "extras.distillation", "extras.memory",
        "extras.rare", "game.examples", "game.files", "extras.sb3", "results.__init__", "results.charts",
        "results.report", "simulators.crafter.env",
        "simulators.crafter.fast.batch", "simulators.crafter.fast.dynamics", "simulators.crafter.fast.engine",
        "simulators.crafter.fast.noise", "simulators.crafter.fast.picture", "simulators.crafter.fast.records",
        "simulators.crafter.fast.random", "simulators.crafter.fast.terrain", "simulators.crafter.fast.threads",
        "simulators.crafter.games", "simulators.crafter.labels", "simulators.crafter.player",
        "simulators.crafter.simulator",
        "simulators.crafter.vector", "simulators.heist.game", "simulators.heist.simulator", "simulators.heist.vector",
        "simulators.minigrid", "simulators.minigrid_tasks", "simulators.road.simulator",
        "studio.compare", "studio.forms", "studio.editor",
        "studio.conversation", "studio.session", "studio.step", "studio.studio", "studio.play",
        "studio.worlds",
}


def module_of(path: Path) -> str:
    """The module that a notebook is exported to; the page on the method is none."""
    found = re.search(r"default_exp ([\w.]+)", path.read_text())
    return found[1] if found else path.stem


NOTEBOOKS = [pytest.param(path, id=module_of(path), marks=[pytest.mark.long] * (module_of(path) in LONG))
             for path in sorted((ROOT / "nbs").rglob("[0-9]*.ipynb"))
             if path.parent.name not in ("lab", "workshop", ".ipynb_checkpoints")]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook(path, tmp_path):
    process = FORKS.Process(target=run_notebook, args=(path, tmp_path / "told"))
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "told").read_text()[-6000:]


WORKSHOP = sorted((ROOT / "nbs" / "workshop").glob("*.ipynb"))


@pytest.fixture
def one_thread(monkeypatch):
    """Several kernels at once, each of whose torch takes all cores, wait for each other most of the time."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def gain(path: Path, **parameters) -> float:
    """The first workshop, executed: how much more reward its agent gets in the last act than before its training."""
    notebook = papermill.execute_notebook(WORKSHOP[0], path, parameters, kernel_name="python3", progress_bar=False,
                                          cwd=path.parent)
    rewards = dict(re.findall(r"reward (before|after) its training: ([\d.]+)", str(notebook)))
    return float(rewards["after"]) - float(rewards["before"])


@pytest.mark.long
def test_the_first_workshop(tmp_path, one_thread):
    """It runs without a person, in its own folder, with its defaults, and shows what it teaches: training helps."""
    assert [path.stem[0] for path in WORKSHOP] == list("12345") and gain(tmp_path / "done.ipynb") > 0.3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
def test_the_first_workshop_shows_it_with_other_seeds_too(seed, tmp_path, one_thread):
    assert gain(tmp_path / "done.ipynb", seed=seed) > 0.3


@pytest.mark.long
def test_the_first_workshop_trains_in_worlds_of_ones_own(tmp_path, one_thread):
    """What a participant writes comes to the prompt, and what a chat window answers comes to the run."""
    one = 'Environment {0}:\n```json\n{{"inventory_settings": {{"wood": {0}}}}}\n```\nPurpose: mine.\n'
    (tmp_path / "reply.md").write_text("".join(one.format(k) for k in range(1, 5)))
    papermill.execute_notebook(
        WORKSHOP[0], tmp_path / "done.ipynb", kernel_name="python3", progress_bar=False, cwd=tmp_path,
        parameters={"my_reply": "reply.md", "my_wish": "Teach it to be brave.", "steps": 4096})
    shown = str(nbformat.read(tmp_path / "done.ipynb", 4))
    for text in ("Teach it to be brave.", "Your answer gives 4 worlds.", "score of the policy"):
        assert text in shown, text


@pytest.mark.long
def test_the_first_workshop_trains_again_and_compares(tmp_path, one_thread):
    """Each time the cells of sections 5 and 6 are run there is a new training, with designed worlds or without."""
    book = nbformat.read(WORKSHOP[0], 4)
    begin = next(k for k, cell in enumerate(book.cells) if "run = open_run(" in cell.source)
    parts = [cell.source for cell in book.cells[begin:] if cell.cell_type == "code"]
    book.cells += map(nbformat.v4.new_code_cell, ["designed = False", *parts, "seed = 1", *parts])
    nbformat.write(book, tmp_path / "thrice.ipynb")
    papermill.execute_notebook(tmp_path / "thrice.ipynb", tmp_path / "done.ipynb", {"steps": 4096}, cwd=tmp_path,
                               kernel_name="python3", progress_bar=False)
    runs = [RunFolder(path.parent) for path in (tmp_path / "runs").glob("*/run.json")]
    assert sorted((run.settings.designer, run.settings.seed) for run in runs) == [
        ("none", 0), ("none", 1), ("replay", 0)] and all(run.finished() for run in runs)
    told = str(nbformat.read(tmp_path / "done.ipynb", 4))
    assert told.count("no designed worlds, seed 0, 4,096 steps: reward") == 2 and "0 of 1 step" not in told


@pytest.mark.parametrize("seed", (0, 1, 2))
def test_the_second_workshop_shows_every_orchard(seed, capsys):
    """Whichever orchard is chosen, the sums by hand are those of the kit; one without an apple is named."""
    code = [cell.source for cell in nbformat.read(WORKSHOP[1], 4).cells if cell.cell_type == "code"]
    first, last = (next(k for k, source in enumerate(code) if text in source)
                   for text in ("with_apple = ", "after_last, final_values"))
    shared = {}
    for source in code[:first]:
        exec(source.replace("seed = 0 ", f"seed = {seed} "), shared)
    checked = 0
    for found in range(8):
        for source in code[first:last + 1]:
            source = re.sub(r"^found = .*", f"found = {found}", source, flags=re.MULTILINE)
            try:
                exec(source, shared)
            except AssertionError as error:
                assert found not in shared["with_apple"] and "no apple was found" in str(error)
                break
        else:
            checked += 1
    assert checked == len(shared["with_apple"]) > 2 and capsys.readouterr().out.count("the same") == checked


def shown(number: int, place: Path, **parameters) -> str:
    """What a workshop shows that is executed with these parameters."""
    papermill.execute_notebook(WORKSHOP[number - 1], place / "done.ipynb", parameters, kernel_name="python3",
                               progress_bar=False, cwd=place)
    cells = nbformat.read(place / "done.ipynb", 4).cells
    return "\n".join(str(o.get("text") or o.get("data")) for c in cells for o in c.get("outputs", ()))


@pytest.mark.long
@pytest.mark.parametrize("seed", (0, 3))
def test_the_second_workshop_shows_that_ppo_learns(seed, tmp_path, one_thread):
    told = shown(2, tmp_path, seed=seed, orchard_steps=20_480, crafter_steps=4096)
    chance, trained = map(int, re.search(r"chance: (\d+)% of the apples, trained: (\d+)%", told).groups())
    assert trained > chance + 30 and "what was done" in told


@pytest.mark.long
def test_the_third_workshop_runs_an_experiment(tmp_path, one_thread):
    told = shown(3, tmp_path, seeds=[0, 1], steps=4096, episodes=4)
    assert "6 trainings" in told and f"kept in {tmp_path}" in told
    assert told.count(": done") == 6 and told.count("lucky differs from the baseline by") == 2


@pytest.mark.long
def test_the_fourth_workshop_has_a_board(tmp_path, one_thread):
    """The first of a room trains plain PPO, the second finds it there."""
    ours = {"board": str(tmp_path / "room"), "steps": 4096, "episodes": 4}
    assert "plain PPO" in shown(4, tmp_path, name="ada", **ours)
    told = shown(4, tmp_path, name="bert", seed=0, **ours)
    assert all(name in told for name in ("ada", "bert", "plain PPO")) and " 3. " in told
    assert re.search("The worlds of: (ada|bert)", told)                     # not of plain PPO, which has none
    assert re.search("2[.] (ada|bert), ladder +make wood pickaxe", told) and "dropped from the cycle before" in told


@pytest.mark.long
def test_the_fifth_workshop_teaches_and_plays(tmp_path, one_thread):
    """Situations are found, answered and trained with; another table needs another name."""
    told = shown(5, tmp_path, folder=str(tmp_path / "runs"), steps=32_768)
    assert "pick up a key that fits" in told and "uniform teacher" in told and "choices: 1" in told
    assert len(json.loads((tmp_path / "runs" / "me.json").read_text())["answers"]) > 10
