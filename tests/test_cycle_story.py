"""What a run says of itself: who designed which cycle, what a person edited, on which machines it ran."""
import json
import shutil

import pytest
from forms import first

from envgen_nb.cycle import ask, create, edit
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.context import as_taken, is_edited
from envgen_nb.cycle.create import check_free, create_run
from envgen_nb.cycle.edit import EditError, change_settings, edit_worlds
from envgen_nb.cycle.events import Accepted, Evaluated, Started
from envgen_nb.cycle.folder import RunFolder, designed_by, designer_names, machines
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.base import Reply, Usage, designers
from envgen_nb.designer.design import BudgetError
from envgen_nb.designer.prompt import load_templates, save_templates
from envgen_nb.designer.records import BaseGameStats
from envgen_nb.designer.reply import Design, format_reply
from envgen_nb.designer.rules import Rules
from envgen_nb.game.files import read_jsonl, write_json, write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world_files import save_worlds
from envgen_nb.results import kept_summary, report
from envgen_nb.results.progress import say
from envgen_nb.results.report import by_hand, write_report
from envgen_nb.studio.compare import groups, run_table
from envgen_nb.studio.conversation import conversation_html

SMALL = dict(num_cycles=2, num_worlds=2, cycle_steps=1_024, final_steps=0, evaluation_runs=1, evaluation_episodes=2,
             threads=1, preset_options={"num_envs": 8, "rollout_steps": 64})


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    """A run in which the first cycle is designed, and no training has begun."""
    run = create_run(make_settings(**SMALL, designer="random"), tmp_path_factory.mktemp("story") / "run")
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    return run.path


@pytest.fixture
def run(designed, tmp_path):
    shutil.copytree(designed, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_run_names_all_its_designers(run, tmp_path):
    next(event for event in run_cycles(run.path) if isinstance(event, Evaluated) and event.cycle == "cycle-1")
    run = change_settings(run, designer="rules")
    list(run_cycles(run.path))
    assert designed_by(run) == {"cycle-1": "random", "cycle-2": "rules"}
    for cycle in ("cycle-1", "cycle-2"):                                        # a run of before has it from its events
        (run.path / cycle / "designer.json").unlink()
    assert designed_by(run) == {"cycle-1": "random", "cycle-2": "rules"}
    page = write_report(run, tmp_path / "report.html").read_text()
    assert "random in cycle 1; rules (written by hand, no language model) in cycle 2" in page
    assert kept_summary(run.path)["designers"] == designer_names(run) == ["random", "rules"]
    rules = create_run(make_settings(**SMALL, seed=1, designer="rules"), tmp_path / "rules")
    found = {path: kept_summary(path) for path in (run.path, rules.path)}
    assert designer_names(rules) == ["rules"] and len(groups(found)) == 2          # no means over both
    assert [row["cells"]["designer"] for row in run_table(found)[1]] == [("random, rules",) * 2, ("rules",) * 2]


def test_what_was_edited_and_taken_back_is_not_edited(run):
    given = run.designs("cycle-1")
    assert given == as_taken(run, "cycle-1") and not is_edited(run, "cycle-1")
    edit_worlds(run, "cycle-1", [Design(run.original, "mine"), given[1]])
    assert is_edited(run, "cycle-1") and by_hand(run) == ["The worlds of cycle-1 were edited by hand."]
    assert "Edited by hand" in conversation_html(run, "cycle-1")
    edit_worlds(run, "cycle-1", given)
    assert not (run.path / "cycle-1" / "edited.md").exists() and not is_edited(run, "cycle-1") and by_hand(run) == []
    assert "Edited by hand" not in conversation_html(run, "cycle-1")


def test_a_world_that_was_kept_and_then_changed_is_a_new_one(run):
    """`keep` says that it is a world of the cycle before, in which the agent would go on: the changed one is played."""
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted) and event.cycle == "cycle-2")
    first = run.worlds("cycle-1")[0]
    kept, changed, beyond = (Design(world, "it", keep=keep) for world, keep in (
        (first, 1), (run.original, 1), (first, 7)))
    edit_worlds(run, "cycle-2", [kept, changed, beyond])
    assert [design.keep for design in run.designs("cycle-2")] == [1, None, None]
    assert run.worlds("cycle-2")[1] == run.original
    with pytest.raises(EditError, match="a weight is an integer from 1 to 8, not 20"):
        edit_worlds(run, "cycle-2", [Design(first, weight=20)])


def test_a_setting_that_was_changed_meanwhile_stays(run):
    """A notebook that keeps a run as it was read does not undo what it changed after that."""
    change_settings(run, max_calls=5)
    assert change_settings(run, max_reasks=7).settings.max_calls == 5


def test_a_run_that_could_not_be_made_can_be_made_afterwards(tmp_path, monkeypatch):
    """A full disk, at each of the files: the folder stays free, and is no run."""
    settings, write = make_settings(**SMALL, designer="random"), create.write_json

    def full(path, data):
        if path.name == RunFolder.INFO:
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(create, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        create_run(settings, tmp_path / "run")
    monkeypatch.undo()
    assert list((tmp_path / "run").iterdir()) == []
    check_free(tmp_path / "run")
    run = create_run(settings, tmp_path / "run")
    assert sorted(path.name for path in run.path.iterdir()) == ["run.json", "templates"]


class Killed(Exception):
    pass


@pytest.mark.parametrize("written", [False, True])
def test_a_kill_while_worlds_are_edited_leaves_what_is_true(run, monkeypatch, written):
    """Before worlds.json is there they are not edited, after that they are."""
    def killed(*given):
        if written:
            write_worlds(*given)
        raise Killed

    write_worlds = edit.write_worlds
    monkeypatch.setattr(edit, "write_worlds", killed)
    with pytest.raises(Killed):
        edit_worlds(run, "cycle-1", [Design(run.original, "mine")])
    assert is_edited(run, "cycle-1") == written == bool(by_hand(run)) and len(run.worlds("cycle-1")) == 2 - written
    assert (run.path / "cycle-1" / "edited.md").exists()


def test_a_run_that_goes_on_elsewhere_says_so(run, tmp_path, monkeypatch):
    here = machines(run)[0]
    there = here | {"python": "9.9.9", "versions": here["versions"] | {"torch": "99.0"}}
    monkeypatch.setattr(run_module, "machine", lambda: there)
    changes = (f"python {here['python']} → 9.9.9", f"torch {here['versions']['torch']} → 99.0")
    first, *_ = list(run_cycles(run.path))
    assert isinstance(first, Started) and first.machine == there and first.changes == changes
    again = RunFolder(run.path)
    assert machines(again) == [here, there] and again.info["machine"] == here
    started = [record for record in read_jsonl(run.path / "events.jsonl") if record["event"] == "Started"]
    assert [record["machine"] for record in started] == [here, there]
    assert say(started[1]).endswith(f"; not as before: {', '.join(changes)}. Results may differ in their last digits")
    page = write_report(again, tmp_path / "report.html").read_text()
    assert f"later {', '.join(changes)}" in page and f"{here['python']} → 9.9.9" in page
    monkeypatch.undo()
    list(run_cycles(run.path))                                  # a finished run is only looked at
    assert machines(RunFolder(run.path)) == [here, there]


class Paid(Rules):
    """The rules; each answer counts as a call to a model, and the first of a cycle has no worlds."""
    name = "paid"
    made = 0

    def reply(self, request, on_text=None):
        Paid.made += 1
        text = super().reply(request).text if request.attempt > 1 else "None."
        return Reply(text, Usage(1, 10, 5, 1.0), thoughts="hm")


def test_a_kill_after_a_reply_loses_no_call(tmp_path, monkeypatch):
    """Before each of the texts of a reply: what it cost is written first, so max_calls counts what was paid for."""
    if "paid" not in designers.names():
        designers.register("paid", f"{__name__}:Paid")
    Paid.made, writes = 0, []
    run = create_run(make_settings(**SMALL, designer="paid", max_calls=7), tmp_path / "run")
    next(event for event in run_cycles(run.path) if isinstance(event, Evaluated))

    def killed(path, text):
        writes.append(path.name)
        if path.name in ("thoughts-1.md", "complaints-1.md", "rejected-1.md", "thoughts-2.md", "reply.md"):
            if writes.count(path.name) == 1:
                raise Killed
        write_text(path, text)

    write_text = ask.write_text
    monkeypatch.setattr(ask, "write_text", killed)
    for _ in range(5):
        with pytest.raises(Killed):
            list(run_cycles(run.path))
        assert run.usage().calls == Paid.made
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    assert run.usage().calls == Paid.made == 7
    with pytest.raises(BudgetError, match="7 of 7"):
        list(run_cycles(run.path))


def test_what_was_missing_lists_nothing_that_was_there(run, monkeypatch):
    held = {"eat_cow": [(("cow",), 100.0, 20.0)],
            "collect_wood": [(("tree",), 100.0, 90.0)],
            "place_table": [(("tree",), 100.0, 90.0), (("wood",), 40.0, 1.0), (("tree", "wood"), 40.0, 1.0)],
            "make_wood_pickaxe": [(("wood",), 99.97, 30.0), (("table",), 100.0, 20.0), (("wood", "table"), 25.0, 0.5)]}
    rates = dict.fromkeys(run.simulator.objectives, 10.0) | {"eat_cow": 80.0}
    found = BaseGameStats(200.0, 150.0, 250.0, {}, rates, held)
    monkeypatch.setattr(report, "in_the_original", lambda run, cycle: found)
    shown = report.gaps_html(run, "cycle-0")
    assert "<b>place table</b> 10%: wood was missing in 60% of the episodes" in shown
    assert "<b>make wood pickaxe</b> 10%: all that it needs, together, was missing in 75% of the episodes" in shown
    assert "Nothing was missing for collect wood" in shown and "eat cow" not in shown and "tree" not in shown
    found.held.pop("place_table"), found.held.pop("make_wood_pickaxe")
    assert "<li>" not in report.gaps_html(run, "cycle-0") and "Nothing was" in report.gaps_html(run, "cycle-0")


GIVEN = {"templates": {"templates": "{}"},
         "fixed": {"designer": "fixed", "designer_options": {"worlds": "{}/one.json"}},
         "replay": {"designer": "replay", "designer_options": {"files": "{}"}},
         "backward": {"designer": "backward", "designer_options": {"steps": "{}/steps.json", "begin": 0.0}},
         "fixed over replay": {"designer": "fixed", "designer_options": {"base": "replay", "options": {"files": "{}"}}}}


@pytest.mark.parametrize("what", first(3, list(GIVEN)))
def test_a_run_goes_on_where_what_it_was_given_is_not(tmp_path, what):
    """Templates, worlds, replies and steps are in its folder, which may be elsewhere, too."""
    given = tmp_path / "given"
    save_templates(load_templates(), given)
    worlds = get_simulator("crafter").practice("collect_wood", "paper")[:2]
    save_worlds(worlds, given / "one.json")
    write_json(given / "steps.json", {"collect_wood": [world.settings() for world in worlds]})
    for number in (1, 2):
        write_text(given / f"cycle-{number}.md", format_reply([Design(world) for world in worlds]))
    settings = json.loads(json.dumps(GIVEN[what]).replace("{}", str(given)))
    create_run(make_settings(**SMALL, **settings), tmp_path / "run").path.rename(tmp_path / "moved")
    shutil.rmtree(given)
    run = change_settings(RunFolder(tmp_path / "moved"), max_calls=9)
    list(run_cycles(run.path))
    assert run.finished()
    if what not in ("templates", "backward"):
        assert run.worlds("cycle-1") == run.worlds("cycle-2") == worlds
    (run.path / "cycle-1" / "evaluation.json").unlink()                  # all is designed: no designer is needed
    shutil.rmtree(run.path / "designer", ignore_errors=True)
    list(run_cycles(run.path))
    assert run.finished() and run.evaluation("cycle-1") is not None
