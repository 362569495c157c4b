"""The studio without a browser: its state is driven as its buttons drive it."""
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from chat_server import ChatServer, answer, slow, status

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.agent.learner import tree_index
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import change_templates
from envgen_nb.cycle.events import Accepted, worked
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import newest_run, open_run
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.prompt import load_templates
from envgen_nb.designer.reply import Design
from envgen_nb.game.files import hold_folder, read_jsonl, write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results import history
from envgen_nb.results.figures import BEFORE_EDIT, worlds_html
from envgen_nb.studio.classroom import read_name
from envgen_nb.studio.compare import Comparison
from envgen_nb.studio.conversation import conversation_html, drafts_view, manual_view, start_from
from envgen_nb.studio.editor import Editor, apply, show_run
from envgen_nb.studio.forms import editor_view, estimate, names_view, settings_view
from envgen_nb.studio.frames import frames_view
from envgen_nb.studio.play import Play
from envgen_nb.studio.session import Session
from envgen_nb.studio.step import curves_view, status_html
from envgen_nb.studio.studio import PAGES, CycleWorlds, Studio, still_html
from envgen_nb.studio.worlds import Worlds, gallery_html, legend_html, worlds_view

SMALL = dict(num_cycles=2, num_worlds=2, cycle_steps=24_576, final_steps=8_192, evaluation_runs=2,
             evaluation_episodes=2, threads=1, seed=5)
GOOD = """Environment 1:
```json
{"environment_settings": {"target_biome": "grassland"}, "inventory_settings": {"wood": 5}}
```
Purpose: practise place_table with the wood that is given.

Environment 2:
```json
{"inventory_settings": {"sapling": 1}}
```
Purpose: practise place_plant.
"""
BAD = GOOD.replace('"wood": 5', '"wood": 50')


def session_in(folder: Path, **settings) -> Session:
    return Session(create_run(make_settings(**SMALL | settings), folder))


def done(session: Session, seconds: float = 120) -> None:
    assert session.wait(seconds), f"still {session.doing}: {session.said}"
    assert session.error == "", session.error


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "checkpoint.pt")["learner"]["policy"]


def same(some: Path, other: Path) -> bool:
    one, two = weights(some), weights(other)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that nobody watched."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    create_run(make_settings(**SMALL), folder)
    for _ in run_cycles(folder):
        pass
    return folder


def test_a_long_start_is_told_with_a_clock(tmp_path, monkeypatch):
    """The first time on a machine the game is compiled before anything happens in the run."""
    session, said = session_in(tmp_path / "run"), []
    session.observe(lambda change: said.append(change.new), "said")
    opened = run_module.open_context

    def slowly(run, **hooks):
        time.sleep(2.2)
        return opened(run, **hooks)

    monkeypatch.setattr(run_module, "open_context", slowly)
    session.generate()
    done(session)
    assert any("which takes one to three minutes · for" in line for line in said) and "2 worlds" in said[-1], said


@pytest.mark.long
def test_stepped_paused_and_stopped_ends_with_the_same_bits(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    session = session_in(tmp_path / "run")
    session.generate()
    done(session)
    for stop_after in (0.05, 0.3, 0.6):
        session.train()
        time.sleep(stop_after)
        session.pause()
        assert session.paused
        time.sleep(0.1)
        session.go_on()
        time.sleep(0.05)
        start = time.monotonic()
        session.stop()
        done(session, 20)
        print(f"stopped after {time.monotonic() - start:.2f} s, {session.where}")
        if session.where.step != "train":
            break
    session.cycle()
    done(session)
    assert session.where.cycle == "cycle-2"
    session.all()
    done(session)
    assert session.where.step == "done" and same(whole, tmp_path / "run")
    assert session.points == history(session.run)
    but_seconds = [[point._replace(seconds=0.0) for point in points]
                   for points in (session.points, history(RunFolder(whole)))]
    assert but_seconds[0] == but_seconds[1]


@pytest.mark.long
def test_a_stop_in_the_middle_of_a_rollout(tmp_path, whole):
    """With no patience at all the rollout is broken off; the folder is as it was, and nothing changes."""
    session = session_in(tmp_path / "run")
    session.GRACE = 0.0
    session.generate()
    done(session)
    for _ in range(3):
        session.train()
        time.sleep(0.25)
        session.stop()
        done(session, 20)
        kept = session.points[-1].step if session.points else 0
        assert session.training.get("done", 0) <= kept                            # what was broken off is not shown
    session.all()
    done(session)
    assert same(whole, tmp_path / "run")


def test_nothing_happens_during_a_pause(tmp_path):
    session = session_in(tmp_path / "run")
    session.all()
    while not session.training:
        time.sleep(0.01)
    session.pause()
    time.sleep(0.3)
    before = session.training["done"], len(session.run.metrics("cycle-1"))
    time.sleep(0.6)
    assert (session.training["done"], len(session.run.metrics("cycle-1"))) == before and session.busy
    session.stop()
    done(session, 20)


@pytest.mark.long
def test_news_come_at_a_bearable_pace(tmp_path):
    times = []
    session = session_in(tmp_path / "run")
    session.observe(lambda change: times.append(time.monotonic()), "training")
    start = time.monotonic()
    session.all()
    done(session)
    assert len(times) <= (time.monotonic() - start) / session.EVERY + len(session.records)


def test_a_model_that_streams_and_is_corrected(tmp_path):
    with ChatServer(answer(BAD, pause=0.05), answer(GOOD, pause=0.05)) as server:     # longer than a bundle lasts
        session = session_in(tmp_path / "run", designer="openai", designer_options={
            "model": "m", "base_url": server.url, "price_in": 1.0, "price_out": 2.0})
        seen = []
        session.observe(lambda change: seen.append(change["new"]), "text")
        session.generate()
        done(session)
    assert any("Environment" in text for text in seen) and session.text == ""
    assert "50 is not allowed" in session.run.text("cycle-1", "complaints-1.md")
    assert [d.world for d in map(Design, session.run.worlds("cycle-1"))] and session.run.usage().calls == 2


@pytest.mark.parametrize("behaviour", [answer(GOOD * 50, pause=0.05), slow(30, answer(GOOD))],
                         ids=["talks", "is silent"])
def test_a_model_is_stopped(tmp_path, behaviour):
    with ChatServer(behaviour) as server:
        session = session_in(tmp_path / "run", designer="openai",
                             designer_options={"model": "m", "base_url": server.url})
        session.generate()
        while not server.requests:
            time.sleep(0.02)
        time.sleep(0.3)
        start = time.monotonic()
        session.stop()
        done(session, 10)
        print(f"stopped after {time.monotonic() - start:.2f} s")
    assert session.where.step == "design" and session.run.text("cycle-1", "reply.md") is None


def test_errors_are_told_with_what_to_do(tmp_path):
    session = session_in(tmp_path / "run", designer="openai",
                         designer_options={"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0})
    session.generate()
    session.wait(60)
    assert "cannot be reached" in session.error and "generate again" in session.error and not session.busy
    with ChatServer(status(401)) as server:
        editor = Editor()
        show_run(editor, session.run)
        editor.options = {"model": "m", "base_url": server.url}
        apply(editor, session)
        session.generate()
        session.wait(60)
    assert "needs a key" in session.error
    recorded = Path(__file__).parent / "recordings" / "crafter-first.md"
    editor.designer, editor.options = "replay", {"files": str(recorded)}
    editor.num_worlds = 3                                               # it holds four, again and again
    apply(editor, session)
    session.generate()
    session.wait(60)
    assert "run out" in session.error or "3 environments are expected" in session.error
    editor.num_worlds = 4
    apply(editor, session)
    session.generate()
    done(session)
    assert len(session.run.worlds("cycle-1")) == 4
    session.open(tmp_path / "nowhere")
    assert "is not a run" in session.error and session.run.path == tmp_path / "run"     # as it was


def test_a_spent_budget_is_raised(tmp_path):
    with ChatServer(answer(BAD), answer(GOOD)) as server:
        session = session_in(tmp_path / "run", designer="openai", max_calls=1,
                             designer_options={"model": "m", "base_url": server.url})
        editor = Editor()
        show_run(editor, session.run)
        assert (editor.max_calls, editor.max_tokens, editor.max_reasks) == (1, 0, 2)
        session.generate()
        session.wait(60)
        assert "the designer's budget is spent: 1 of 1 (max_calls)" in session.error
        editor.max_calls = 3
        apply(editor, session)
        session.generate()
        done(session)
    assert session.run.settings.max_calls == 3 and session.run.usage().calls == 2      # the conversation went on


def test_accepted_worlds_stay_until_others_are_accepted(tmp_path):
    """Asked again: three replies make no sense, or the request is stopped; then one is accepted, and is taken back."""
    other = GOOD.replace('"wood": 5', '"wood": 6')
    with ChatServer(answer(GOOD), *[answer("no worlds today")] * 3, slow(30, answer(GOOD)), answer(other)) as server:
        session = session_in(tmp_path / "run", designer="openai",
                             designer_options={"model": "m", "base_url": server.url})
        session.generate()
        done(session)
        first = session.run.worlds("cycle-1")
        session.edit([Design(first[1], "mine"), Design(first[0])])
        mine = session.run.worlds("cycle-1")
        session.generate()
        assert session.wait(60) and "no usable worlds" in session.error
        assert session.run.worlds("cycle-1") == mine and session.where.step == "train"
        assert len(session.run.rejected("cycle-1/drafts/1")) == 3
        session.generate()
        while len(server.requests) < 5:
            session.wait(0.1)
        assert session.run.worlds("cycle-1") == mine              # a kill at this moment loses nothing
        session.stop()
        done(session, 20)
        assert session.run.worlds("cycle-1") == mine and session.run.text("cycle-1", "edited.md")
        session.generate()
        done(session)
    assert session.run.worlds("cycle-1") == [first[0].model_copy(update={
        "inventory_settings": first[0].inventory_settings.model_copy(update={"wood": 6})}), first[1]]
    assert session.run.text("cycle-1", "edited.md") is None
    view = drafts_view(session)
    (name, place), = [one for one in view.children[0].options]
    assert "2 worlds" in name and session.run.worlds(place) == mine
    view.children[1].click()
    assert session.error == "" and session.run.worlds("cycle-1") == mine and session.run.text("cycle-1", "edited.md")
    assert session.run.purposes("cycle-1")[0] == "mine"
    session.train()
    done(session)
    assert view.layout.display == "none"
    session.take_back(session.run.drafts("cycle-1")[-1])
    assert "cannot be changed" in session.error or "has begun" in session.error


def test_by_hand_again_asks_again(tmp_path):
    """The replies of the design that is in use are not read a second time; they move with it."""
    session = session_in(tmp_path / "run", designer="manual")
    for text in (GOOD, GOOD.replace('"wood": 5', '"wood": 7')):
        session.generate()
        while session.asked is None and session.busy:
            session.wait(0.1)
        session.answer(text)
        done(session)
    assert session.run.worlds("cycle-1")[0].inventory_settings.wood == 7
    assert session.run.worlds("cycle-1/drafts/1")[0].inventory_settings.wood == 5
    assert session.run.text("cycle-1/drafts/1", "manual-reply-cycle-1.md") == GOOD


def test_another_template_keeps_the_worlds_that_are_trained_in_next(tmp_path):
    studio = Studio(create_run(make_settings(**SMALL), tmp_path / "run"))
    press = {button.description: button for button in studio.buttons.children}
    press["Generate"].click()
    done(studio.session)
    before = studio.run.worlds("cycle-1")
    studio.editor.first += "\nMine."
    studio.editor.num_worlds = 3
    press["Train"].click()
    done(studio.session)
    assert studio.run.worlds("cycle-1") == before and studio.run.settings.num_worlds == 3
    assert not studio.run.text("cycle-1", "prompt.md").endswith("Mine.")
    assert "are expected" not in conversation_html(studio.run, "cycle-1")         # two were, when it was asked


def test_a_cycle_that_is_designed_again_has_worlds_at_every_moment(tmp_path):
    run = create_run(make_settings(**SMALL), tmp_path / "run")
    for again in (False, True):
        for event in run_cycles(run.path, again=again):
            assert not again or len(run.worlds("cycle-1")) == 2
            if type(event).__name__ == "Accepted":
                break
    assert run.drafts("cycle-1") == ["cycle-1/drafts/1"] and len(run.purposes("cycle-1")) == 2
    assert all((run.path / place / "worlds.png").exists() for place in ("cycle-1", "cycle-1/drafts/1"))


def test_a_run_can_be_read_when_its_recordings_are_gone(tmp_path, monkeypatch):
    """A run keeps the replies that it was given: it is looked at and goes on where they are not."""
    recorded = Path(__file__).parent / "recordings" / "crafter-first.md"
    monkeypatch.chdir(tmp_path)
    Path("mine.md").write_text(recorded.read_text())
    session = session_in(tmp_path / "run", designer="replay", designer_options={"files": "mine.md"}, num_worlds=4)
    Path("mine.md").unlink()
    session.open(tmp_path / "run")
    assert session.error == "" and session.run.settings.designer_options == {"files": "mine.md"}
    session.generate()
    session.wait(60)
    assert session.error == "" and len(session.run.worlds("cycle-1")) == 4
    with pytest.raises(SettingsError, match="a recorded reply cannot be read"):
        make_settings(designer="replay", designer_options={"files": "mine.md"})


@contextlib.contextmanager
def held_elsewhere(folder: Path) -> Iterator[int]:
    """Another process holds a folder; its number."""
    code = ("import sys, time; from envgen_nb.game.files import hold_folder\n"
            "with hold_folder(sys.argv[1]): print('held', flush=True); time.sleep(60)")
    other = subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        yield other.pid
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_a_run_that_another_process_holds(tmp_path):
    session = session_in(tmp_path / "run")
    with held_elsewhere(tmp_path / "run") as number:
        session.generate()
        session.wait(30)
        assert f"in use by process {number}" in session.error
    session.generate()
    done(session)


@pytest.mark.long
def test_what_breaks_in_training_is_told(tmp_path, monkeypatch):
    session = session_in(tmp_path / "run")
    session.generate()
    done(session)
    monkeypatch.setattr("envgen_nb.agent.ppo.gae", lambda *arguments: torch.full_like(arguments[0], float("nan")))
    session.train()
    session.wait(60)
    assert "not finite" in session.error and "resumed" in session.error
    monkeypatch.setattr("envgen_nb.cycle.run._make_trainer", lambda *arguments: 1 / 0)
    session.train()
    session.wait(60)
    assert "ZeroDivisionError" in session.error and "should not happen" in session.error
    monkeypatch.undo()
    session.train()
    done(session)


def test_a_finished_run_is_opened(whole, capsys):
    studio = Studio(whole)
    assert studio.page == "Measure"                                      # where the run stands
    for name in PAGES:
        studio.open_page(name)
    assert studio.session.where.step == "done" and len(studio.worlds.state.designs) == 2
    assert not studio.worlds.state.editable and studio.worlds.state.agent is not None
    picture = still_html(studio.session)
    assert studio.session.error == "" and "finished" in picture and picture.count("<img") == 3
    studio.session.train()
    assert "finished" in studio.session.error
    assert capsys.readouterr() == ("", "")                               # nothing is printed


def test_the_curves_are_those_of_the_run_that_is_open(tmp_path, whole):
    """Each time all of them: what a page has heard of an earlier run is of no matter."""
    session = session_in(tmp_path / "run", num_cycles=1, cycle_steps=8_192, final_steps=0)
    _, charts, said = curves_view(session).children
    assert charts.panels == [] and "No training yet" in said.value
    for _ in range(2):
        for path in (whole, tmp_path / "run"):
            session.open(path)
            if path == tmp_path / "run" and not session.points:
                assert charts.panels == [] and "No training yet" in said.value
                session.all()
                done(session)
            assert charts.last == session.points[-1].step
            json.dumps(charts.panels, allow_nan=False)
            *lines, measured = charts.panels[0]["lines"]
            assert len(measured["x"]) == len(session.run.evaluations()) and measured["low"]
            assert sorted({point.step for point in session.points})[-1] == lines[0]["x"][-1]
            assert charts.clock == sorted(charts.clock) and charts.clock[-1][0] == charts.last
            logged = [record for cycle in session.run.cycles for record in session.run.metrics(cycle)]
            seconds = sum(sum(record["seconds"].values()) for record in logged)
            assert charts.clock[-1][1] == pytest.approx(seconds, abs=0.01 * len(logged))


def test_an_edit_that_waits_is_written_into_its_own_run(tmp_path):
    """Edits are written half a second later; another run may be open by then."""
    runs = [create_run(make_settings(**SMALL | {"num_worlds": count}, designer="random"), tmp_path / f"run-{count}")
            for count in (2, 1)]
    for run in runs:
        next(event for event in run_cycles(run.path) if isinstance(event, Accepted))

    async def edit_and_open():                                       # with an event loop, as in JupyterLab
        studio = Studio(runs[0])
        gallery = studio.worlds.state
        gallery.designs = (replace(gallery.designs[0], world=runs[0].original), *gallery.designs[1:])
        assert studio.worlds.changes.items
        studio.session.open(runs[1].path)
        return studio.session.error

    assert asyncio.run(edit_and_open()) == ""
    edited, other = (RunFolder(run.path) for run in runs)
    assert len(edited.worlds("cycle-1")) == 2 and edited.worlds("cycle-1")[0] == edited.original
    assert len(other.worlds("cycle-1")) == 1 and not other.file(RunFolder.EDITED, "cycle-1").exists()


def test_a_damaged_newest_run_is_named_and_the_studio_opens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = open_run("", again=True, **SMALL)
    write_text(run.path / "cycle-0" / "evaluation.json", "{")
    studio = Studio(open_run("", again=True, **SMALL), **SMALL)
    assert studio.session.run is None and "evaluation.json" in studio.session.error


def test_names_are_written_in_all_scripts():
    for name in ("नीता", "அம்மா", "مُحَمَّد", "O’Neill", "Anne-Marie 2"):
        assert read_name(f" {name} ") == name
    assert read_name("Jose\u0301") == "Jos\u00e9"                     # composed: one folder for both
    for name in ("", "../up", "a/b", "-", "x" * 41):
        with pytest.raises(ValueError, match="name"):
            read_name(name)


def test_a_notebook_that_is_run_again_goes_on_with_the_newest_run(tmp_path, monkeypatch):
    """If no other program works on it; other parameters are asked about; papermill has a new run each time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    first = open_run("", again=True, **SMALL)
    second = open_run("", **SMALL)                                       # as papermill does
    os.utime(first.path / "run.json", (1, 1))
    assert first.path != second.path and open_run("", again=True, **SMALL).path == second.path
    with hold_folder(second.path):                                       # by this very notebook
        assert open_run("", again=True, **SMALL).path == second.path
    with held_elsewhere(second.path):
        assert open_run("", again=True, **SMALL).path == first.path
        with held_elsewhere(first.path):
            assert open_run("", again=True, **SMALL).path not in (first.path, second.path)
    assert open_run(tmp_path / "mine", again=True, **SMALL).path == tmp_path / "mine"      # a folder is a folder
    assert newest_run("heist") is None


def test_a_cell_that_is_run_again_while_its_run_trains_shows_that_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = Studio(open_run("", again=True, **SMALL))
    first.session.all()
    try:
        again = open_run("", again=True, **SMALL)                        # the lock on it is this process's own
        assert again.path == first.run.path
        second = Studio(again)
        assert second.session is first.session and second.session.busy
        press = {button.description: button for button in second.buttons.children}
        press["Stop"].click()
    finally:
        first.session.stop()
        assert first.session.wait(60)
    assert first.session.error == "" and len(list((tmp_path / "runs").iterdir())) == 1
    assert Studio(again).session is not first.session                    # it rests: whoever comes next has one anew


def test_a_run_with_other_settings_than_the_notebook_is_asked_about(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = create_run(make_settings(**SMALL), tmp_path / "runs" / "yesterday")
    asking = Studio(run, **SMALL | {"seed": 6, "num_worlds": None}).asking
    assert Studio(run, **SMALL).session.wanted is None and asking.layout.display is None
    table, presses = asking.children[0].value, asking.children[1].children
    for text in ("yesterday", "<td>seed</td><td>5</td><td>6</td>", "<td>num_worlds</td><td>2</td><td>4</td>"):
        assert text in table, text
    assert "cycle_steps" not in table
    presses[0].click()                                                   # go on with it
    assert asking.layout.display == "none" and list((tmp_path / "runs").iterdir()) == [run.path]
    studio = Studio(run, **SMALL | {"seed": 6})
    studio.asking.children[1].children[1].click()  # a new one
    assert studio.run.path != run.path and studio.run.settings.seed == 6 and studio.session.wanted is None
    assert studio.session.error == "" and RunFolder(run.path).settings.seed == 5


@pytest.mark.long
def test_a_pause_is_no_work_and_the_work_of_all_sessions_is_added_up(tmp_path):
    log = tmp_path / "run" / "events.jsonl"
    session = session_in(tmp_path / "run", num_cycles=1, cycle_steps=32_768, final_steps=0)

    def until_it_trains(more: int = 0) -> dict:
        while not [r for r in read_jsonl(log)[more:] if r["event"] == "Training"]:
            time.sleep(0.05)
        return read_jsonl(log)[-1]

    session.all()
    until_it_trains()
    session.pause()
    time.sleep(0.3)                                                      # the step that it was at
    before, speed = read_jsonl(log)[-1], status_html(session)
    time.sleep(3)
    assert "<b>Paused</b>" in speed and speed == status_html(session)
    session.go_on()
    while (after := read_jsonl(log)[-1]) == before:
        time.sleep(0.01)
    assert after["time"] - before["time"] - (after["worked"] - before["worked"]) > 2.5
    session.stop()
    done(session, 20)
    ended = read_jsonl(log)
    assert "steps/s" not in status_html(session).partition("The last that happened")[0]
    time.sleep(2)
    session.all()
    resumed = until_it_trains(len(ended))
    measured = [r["seconds"] for r in ended if r["event"] == "Evaluated"][-1]
    assert resumed["seconds_left"] >= measured                           # one is to come, none was in this session
    done(session)
    records = read_jsonl(log)
    assert records[-1]["event"] == "Finished"
    assert records[-1]["seconds"] == pytest.approx(worked(ended) + records[-1]["worked"], abs=0.2)
    wall = records[0]["worked"] + records[-1]["time"] - records[0]["time"]
    assert records[-1]["seconds"] < wall - 4.5                           # three seconds' pause, two between sessions
    assert "of work, all sessions together" in session.said and "<b>The run is finished</b>" in status_html(session)


def test_what_the_studio_says_is_true_in_every_state(tmp_path, whole):
    """Of what is going on, and of worlds that are not there yet, or never will be."""
    def told(session: Session) -> tuple[str, str]:
        return status_html(session), CycleWorlds(session).status.value

    assert "<b>The run is finished</b>" in told(Session(whole))[0] and "Waiting" not in told(Session(whole))[0]
    assert "the designer &#39;none&#39; makes none" in told(session_in(tmp_path / "none", designer="none"))[1]
    plain = session_in(tmp_path / "plain", mixture_ratio=0.0)
    assert "the original game only" in told(plain)[1]
    plain.generate()
    assert "it needs no worlds" in plain.error and not plain.busy
    session = session_in(tmp_path / "manual", designer="manual")
    assert "<b>Waiting</b>" in told(session)[0] and "Press Generate" in told(session)[1]
    session.generate()
    assert "<b>Working</b>" in told(session)[0] and "Press" not in told(session)[1]
    while session.asked is None:
        session.wait(0.1)
    assert "<b>Your turn</b>" in told(session)[0] and "a reply is awaited" in told(session)[0]
    assert "the reply is awaited" in told(session)[1]
    session.stop()
    done(session, 20)
    with ChatServer(slow(30, answer(GOOD))) as server:
        session = session_in(tmp_path / "slow", designer="openai",
                             designer_options={"model": "m", "base_url": server.url})
        session.generate()
        while not server.requests:
            session.wait(0.1)
        session.wait(0.5)
        assert "The worlds are being generated." in told(session)[1]
        session.stop()
        done(session, 20)


def test_a_wrong_reply_by_hand_stays_with_its_complaints(tmp_path):
    session = session_in(tmp_path / "run", designer="manual")
    view = manual_view(session)
    box, wrong = view.children[3].children
    session.generate()

    def hand_in(text: str) -> None:
        before = session.asked
        while session.asked in (None, before) and session.busy:
            session.wait(0.1)
            if session.asked and box.value != text and session.asked == before:
                box.value = text
                view.children[4].children[0].click()

    while session.asked is None:
        session.wait(0.1)
    twice = BAD.replace('"sapling": 1', '"sapling": 11')
    hand_in(twice)
    assert box.value == twice and "50 is not allowed" in wrong.value and "11 is not allowed" in wrong.value
    other = Session(session.run)                                         # the same after a kernel's end
    session.stop()
    done(session, 20)
    again = manual_view(other)
    other.generate()
    while other.asked is None:
        other.wait(0.1)
    box, wrong = again.children[3].children
    assert box.value.strip() == twice.strip() and "50 is not allowed" in wrong.value
    box.value = GOOD
    again.children[4].children[0].click()
    done(other)
    assert len(other.run.worlds("cycle-1")) == 2 and again.layout.display == "none"


def test_what_others_wrote_is_shown_as_text(tmp_path):
    (tmp_path / "said").mkdir()
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    (tmp_path / "said" / "1.md").write_text(GOOD.replace("practise place_plant", f"practise {evil}"))
    studio = Studio(create_run(make_settings(**SMALL, designer="replay", designer_options={
        "files": str(tmp_path / "said")}), tmp_path / "run"))
    studio.editor.first += evil
    for button in studio.buttons.children:
        if button.description == "Generate":
            button.click()
    done(studio.session)
    for name in PAGES:
        studio.open_page(name)

    def texts(widget):
        yield from [widget.value] if type(widget).__name__ == "HTML" else []
        for child in getattr(widget, "children", ()):
            yield from texts(child)

    shown = [*texts(studio.view), still_html(studio.session)]
    assert evil in studio.run.purposes("cycle-1")[1]
    assert not any("<script>" in text or "<img src=x" in text for text in shown)
    assert sum("&lt;script&gt;" in text for text in shown) >= 3


def test_a_damaged_picture_of_worlds_is_told(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    picture = tmp_path / "run" / "cycle-1" / "worlds.png"
    for left in (b"", b"no picture", picture.read_bytes()[:2000]):
        picture.write_bytes(left)
        shown = worlds_html(RunFolder(tmp_path / "run"))
        assert "The picture cycle-1/worlds.png is damaged" in shown and shown.count("<img") == 1
        assert "worlds.png is damaged" not in worlds_html(RunFolder(whole))


def test_templates_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    editor = Editor()
    editor.first += "\nMine."
    editor.save("bold")
    assert editor.names == ("default", "bold") and (tmp_path / "templates" / "bold" / "first.md").exists()
    for name in ("bold", "../evil", "", "default"):
        with pytest.raises(ValueError):
            editor.save(name)
    editor.load("default")
    assert not editor.first.endswith("Mine.") and editor.difference() == "" and editor.name == "default"
    editor.load("bold")
    assert editor.difference().endswith("+ Mine.")
    editor.first = editor.first.replace("{{task}}", "")
    with pytest.raises(ValueError, match="task"):
        editor.save("bold", replace=True)
    assert "{{task}}" in (tmp_path / "templates" / "bold" / "first.md").read_text()


def test_a_new_run_takes_the_prompt_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studio = Studio(create_run(make_settings(**SMALL), tmp_path / "runs" / "first"))
    studio.editor.first += "\nMine."
    studio.editor.num_worlds = 3
    studio.new()
    assert studio.session.error == "" and studio.run.path.name != "first"
    assert studio.run.settings.num_worlds == 3 and studio.run.settings.seed == 5
    assert studio.editor.first.endswith("Mine.") and "Mine." in (studio.run.path / "templates" / "first.md").read_text()
    studio.session.open(tmp_path / "runs" / "first")
    assert not studio.editor.first.endswith("Mine.") and studio.editor.num_worlds == 2


def buttons_in(widget) -> dict:
    """The buttons of a view by what they say."""
    found = {widget.description: widget} if type(widget).__name__ == "Button" else {}
    for child in getattr(widget, "children", ()):
        found |= buttons_in(child)
    return found


@pytest.mark.long
def test_an_edited_template_is_not_lost(tmp_path, monkeypatch):
    """It has its true name, and a mark; it is there when the cells are run again; nothing is discarded unasked."""
    monkeypatch.chdir(tmp_path)
    run = create_run(make_settings(**SMALL), tmp_path / "runs" / "first")
    studio = Studio(run)
    view = names_view(studio.editor)
    choose, name, save, told = view.children[0].children
    assert choose.label == "default" and "Changed" not in told.value
    studio.editor.first += "\nMine."
    assert choose.label == "default, changed" and "● Changed" in told.value
    choose.value = "default"
    again = Studio(run)                                                  # the cells are run again
    assert again.editor.first.endswith("Mine.") and (again.editor.name, again.editor.changed) == ("default", True)
    assert "Mine." not in (run.path / "templates" / "first.md").read_text()      # it is not used yet
    name.value = "bold"
    save.click()
    assert studio.editor.error == "" and choose.label == "bold" and "Saved as" in told.value and name.value == "bold"
    studio.editor.update += "\nMore."
    assert choose.label == "bold, changed"
    save.click()                                                         # its own name: no question
    assert choose.label == "bold" and "More." in (tmp_path / "templates" / "bold" / "update.md").read_text()
    choose.value = "default"
    assert studio.editor.first == load_templates().first
    choose.value, name.value = "bold", "quiet"
    save.click()
    studio.editor.first += "\nUnsaved."
    choose.value = "bold"                                                # a question first
    assert choose.value == studio.editor.name == "quiet"
    buttons_in(view)["Keep them"].click()
    assert choose.value == "quiet" and studio.editor.first.endswith("Unsaved.")
    name.value = "bold"
    save.click()                                                         # and before another template is replaced
    buttons_in(view)["Keep it"].click()
    assert "Unsaved." not in (tmp_path / "templates" / "bold" / "first.md").read_text()
    choose.value = "bold"
    buttons_in(view)["Discard them"].click()
    assert studio.editor.name == choose.value == "bold" and not studio.editor.changed
    studio.editor.first = "broken {{tsak}}"
    assert Studio(run).editor.first == "broken {{tsak}}"                 # as it was typed, though it cannot be used


@pytest.mark.long
def test_edits_of_two_runs_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (create_run(make_settings(**SMALL), tmp_path / "runs" / name) for name in ("first", "second"))
    studio = Studio(first)
    studio.editor.first += "\nMine."
    studio.session.open(second.path)
    assert not studio.editor.changed
    studio.session.open(first.path)
    assert studio.editor.first.endswith("Mine.")
    studio.editor.load("default", discard=True)
    start_from(studio.session, _asked_with(tmp_path / "runs" / "asked", "\nTheirs."), "cycle-1")
    assert studio.editor.first.endswith("Theirs.") and studio.session.error == ""       # the editor follows


def _asked_with(folder: Path, more: str) -> Path:
    """A run whose template has this at its end, with a prompt."""
    run = create_run(make_settings(**SMALL), folder)
    change_templates(run, replace(load_templates(), first=load_templates().first + more))
    next(event for event in run_cycles(folder) if type(event).__name__ == "Accepted")
    return folder


def test_a_template_of_another_game_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studio = Studio(create_run(make_settings(**SMALL), tmp_path / "runs" / "first"))
    alert = names_view(studio.editor).children[2]
    studio.editor.simulator = "minigrid"
    assert alert.layout.display == "none"                                # the kit's own fits every game
    studio.editor.simulator = "crafter"
    studio.editor.first += "\nMind the cows."
    studio.editor.save("cows")
    studio.editor.simulator = "minigrid"
    assert alert.layout.display is None and "written for crafter" in alert.children[0].value
    buttons_in(alert)["Use the kit's own"].click()
    assert alert.layout.display == "none" and studio.editor.difference() == ""
    studio.editor.load("cows")
    assert alert.layout.display is None
    buttons_in(alert)["Keep this text"].click()
    assert alert.layout.display == "none" and studio.editor.name == "cows"


def test_fields_hold_numbers_and_errors_go_when_they_are_mended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = create_run(make_settings(**SMALL), tmp_path / "runs" / "first")
    studio = Studio(run)
    studio.open_page("Train")
    view = settings_view(studio.editor)
    studio.editor.designer = "openai"
    fields = {field.description: field for field in view.children[1].children}
    for label, text in (("Model", "m"), ("Price in", "2"), ("Price out", "8")):
        fields[label].value = text
    assert studio.editor.error == studio.session.error == ""
    assert (studio.editor.options["price_in"], studio.editor.options["price_out"]) == (2.0, 8.0)
    assert "about 0." in estimate(studio.editor) and "USD" in estimate(studio.editor)
    for wrong in ("2 dollars", "nan"):
        fields["Price in"].value = wrong
        assert "price_in" in studio.editor.error and "price not known" in estimate(studio.editor)
        fields["Price in"].value = "2"
        assert studio.editor.error == "" and "about 0." in estimate(studio.editor)
    studio.editor.designer, text = "rules", studio.editor.first
    studio.editor.first = text.replace("{{task}}", "{{tsak}}")
    press = buttons_in(studio.buttons)
    for name in ("Generate", "Train"):
        press[name].click()
        assert "tsak" in studio.session.error and not studio.session.busy
    studio.editor.first = text
    assert studio.session.error == ""
    options = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "price_in": "2", "price_out": "8"}    # as of old
    old = create_run(make_settings(**SMALL, designer="openai", designer_options=options), tmp_path / "runs" / "old")
    studio.session.open(old.path)
    assert studio.editor.error == "" and "about 0." in estimate(studio.editor)


@pytest.mark.long
def test_two_threads_do_not_meet(tmp_path):
    """Where there is a loop, traits change on its thread only."""
    code = """
import asyncio, json, sys, threading
from envgen_nb.studio.session import Session
async def main():
    session, threads = Session(sys.argv[1]), set()
    session.observe(lambda change: threads.add(threading.current_thread().name), ["training", "said", "busy", "points"])
    session.cycle()
    while session.busy:
        await asyncio.sleep(0.05)
    print(json.dumps([sorted(threads), session.error, session.where.cycle]))
asyncio.run(main())
"""
    create_run(make_settings(**SMALL), tmp_path / "run")
    told = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True, timeout=300)
    assert json.loads(told.stdout) == [["MainThread"], "", "cycle-2"] and told.stderr == ""
    assert threading.active_count() < 50


def test_the_purpose_of_an_edited_world_is_of_before_wherever_it_stands(tmp_path):
    """In the gallery, the strip, the report, and in what the designer is asked next."""
    session = session_in(tmp_path / "run", cycle_steps=8_192, evaluation_runs=1)
    session.generate()
    done(session)
    studio = Studio(session.run)
    studio.open_page("Worlds")
    gallery = studio.worlds.state
    assert BEFORE_EDIT not in gallery_html(gallery) + worlds_html(session.run)
    gallery.edit(0, environment_settings={"target_biome": "grassland", "diamond_rarity": "rare"})
    assert gallery_html(gallery).count(BEFORE_EDIT) == 1 and "no mountains" in gallery_html(gallery)
    run = RunFolder(session.run.path)
    assert worlds_html(run).count(BEFORE_EDIT) == 1
    assert run.purposes("cycle-1") == [design.purpose for design in gallery.designs]         # kept as they were written
    gallery.set_purpose(0, "diamonds, if there were any")
    assert BEFORE_EDIT not in gallery_html(gallery)                                # a person's world and purpose now
    assert RunFolder(session.run.path).purposes("cycle-1")[0] == "diamonds, if there were any"
    gallery.undo()
    studio.session.cycle()
    done(studio.session)
    studio.session.generate()
    done(studio.session)
    prompt = run.text("cycle-2", "prompt.md")
    assert prompt.count("a person changed its settings") == 1
    assert "- Environment 1, environment_settings.diamond_rarity: a grassland world has no mountains" in prompt


def test_what_is_said_of_progress_is_true(tmp_path):
    """Percentages say of what; training alone measures nothing; a stop says how far the run falls back."""
    session = session_in(tmp_path / "run", num_cycles=1, cycle_steps=32_768, final_steps=163_840)
    session.GRACE = 0.0
    session.generate()
    done(session)
    kept = 0
    for _ in range(3):                                # until a stop falls back, as most do
        session.train()
        while not session.training or session.training["done"] <= kept:
            session.wait(0.01)
        time.sleep(0.1)
        session.pause()
        time.sleep(0.2)
        session.pause()                               # shows all that happened until it was held up
        shown = session.training["done"]
        assert f"the whole run: {100 * shown / 196_608:.0f}%, {shown:,} of 196,608 steps" in status_html(session)
        assert f"cycle 1: {100 * session.training['cycle_done'] / 32_768:.0f}% ·" in status_html(session)
        session.stop()
        done(session, 20)
        kept = session.run.metrics("cycle-1")[-1:]
        kept = kept[0]["step"] if kept else 0
        assert kept == shown or f"from step {kept:,}" in session.said and f"{shown - kept:,} steps" in session.said
        if kept < shown:
            break
    assert kept < shown, "no stop fell back"
    session.train()
    done(session)
    assert session.where.step == "evaluate" and session.said.startswith("cycle 1: 100%")
    assert [r["event"] for r in read_jsonl(tmp_path / "run" / "events.jsonl")].count("Evaluating") == 1     # untrained
    session.evaluate()
    done(session)
    assert session.run.evaluation("cycle-1") is not None and session.where.cycle == "final"


def test_a_folder_that_is_not_there_is_told(tmp_path):
    board = Comparison(session_in(tmp_path / "runs" / "one"))
    board.folder = str(tmp_path / "nowhere")
    board.read()
    assert "There is no folder" in board.error and str(tmp_path / "nowhere") in board.error and not board.found
    board.folder = str(tmp_path / "runs")
    board.read()
    assert board.error == "" and len(board.found) == 1


def test_a_finished_run_has_next_steps(tmp_path, whole, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, tmp_path / "runs" / "run")
    studio = Studio(tmp_path / "runs" / "run")
    row, = [child for child in studio.view.children if "is finished. Next" in getattr(
        next(iter(getattr(child, "children", ())), None), "value", "")]
    press = buttons_in(row)
    assert row.layout.display is None and press["Make its report"].button_style == "primary"
    report, place = buttons_in(studio.view)["Report"], studio.view.children[1].children[0].children[-1]
    said = []
    place.observe(lambda change: said.append(change["new"][0]["data"]["text/html"]), "outputs")
    press["Make its report"].click()
    while report.disabled:
        time.sleep(0.05)
    assert "report.html" in said[-1] and (studio.run.path / "report.html").exists()
    assert len([text for text in said if "<progress" in text and "part " in text]) > 5
    planned = studio.run.settings.num_cycles
    press["Go on"].click()
    assert studio.run.settings.num_cycles == planned + 2 and row.layout.display == "none" and studio.session.error == ""
    press["Start another one"].click()
    assert studio.run.path.name != "run" and row.layout.display == "none" and studio.session.error == ""


@pytest.mark.parametrize("name, told", [
    ("crafter", {"place_table": "Place table needs: 2 wood in the bag.", "place_stone": "stone in the bag",
                 "make_iron_sword": "coal in the bag", "do": "one of 10 tries"}),
    ("minigrid", {"drop": "You hold nothing.", "toggle": "no door and no box", "pickup": "cannot be picked up"})])
def test_a_key_that_does_nothing_says_why(name, told):
    game = get_simulator(name)
    play = Play(game)
    for action, why in told.items():
        play.act(action)
        assert why in play.status, action
    way = {"crafter": "move_up", "minigrid": "forward"}[name]
    said = []
    for _ in range(30):                                                  # to whatever stands there
        play.act(way)
        said.append(play.status.partition(". ")[2])
    assert "which is in the way" in said[-1]
    assert game.why_not(way, tree_index(play._seen, 0), ()) == said[-1]
    play.close()


@pytest.mark.parametrize("name", ["crafter", "minigrid", "heist"])
def test_every_game_explains_its_pictures(name):
    pytest.importorskip("procgen") if name == "heist" else None
    game = get_simulator(name)
    found = game.legend()
    assert legend_html(game).count("<img") == len(found) > 8
    assert all(picture.dtype == "uint8" and picture.ndim == 3 for picture in found.values())
    assert len({picture.tobytes() for picture in found.values()}) == len(found)


def test_frames_are_shown_and_exported(tmp_path, whole, monkeypatch):
    """The agent of a run in a world of its designer; an export is asked about, and says which extra is missing."""
    monkeypatch.setenv("ENVGEN_RUNS", str(tmp_path))
    view = frames_view(Session(whole))
    state, press = view.frames, buttons_in(view)

    def export(question: str = "", **modules: None) -> None:
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if modules and name.startswith("envgen_nb.frames.")]:
                patch.delitem(sys.modules, name)                                 # imported anew
            for name in modules:
                patch.setitem(sys.modules, name, None)
            press["Export"].click()
            if question:
                assert question in buttons_in(view)
                buttons_in(view)[question].click()
            state.thread.join()
        assert not state.busy

    state.play("cycle-1:2", "agent", steps=30)
    state.thread.join()
    assert state.error == "" and 0 < len(state.played.place) <= 30 and press["Stop"].disabled
    press["Previous"].click()
    assert state.at == 0
    press["Next"].click()
    assert state.at == 1
    export(pyarrow=None)
    assert "pip install 'envgen_nb[frames]'" in state.error and "should not" not in state.error
    assert not list(tmp_path.iterdir())
    state.export(state.folder("mine"), [None], "random", 20, length=10)
    state.thread.join()
    assert state.error == "" and "20 frames are in" in state.said and (tmp_path / "mine" / "README.md").exists()
    state.folder = lambda name: tmp_path / "mine"
    export("Go on")
    assert "other settings" in state.error
    export("Leave it")
    assert state.error == "" and "Leave it" not in buttons_in(view)
    state.play("", "random", steps=30)
    state.session.run = None                                            # closed while its episode is being played
    state.thread.join()
    assert state.played is None and state.error == ""


def test_a_closed_panel_leaves_no_widgets():
    from ipywidgets.widgets.widget import _instances
    crafter = get_simulator("crafter")
    view = worlds_view(Worlds(crafter, designs=(Design(crafter.world_class()()),)))
    edit, left = buttons_in(view)["Edit"], []
    for _ in range(3):
        edit.click()
        assert len(_instances) > 100
        edit.click()
        left.append(len(_instances))
    assert left == [left[0]] * 3


def test_a_control_offers_what_it_was_made_with(tmp_path, monkeypatch):
    "Pairs of label and value are known by their values: no value is added beside them."
    monkeypatch.chdir(tmp_path)
    kind = editor_view(Editor()).children[0]
    assert [label for label, _ in kind.options] == ["First prompt", "Later prompts"] and kind.value == 0
