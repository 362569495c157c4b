"""A finished run that goes on with more cycles or steps does what a run with that plan from the beginning does."""
import json

import pytest
from states import same

from envgen_nb.cycle import edit
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import EditError, change_settings
from envgen_nb.cycle.events import Evaluated
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.extras.cli import main
from envgen_nb.game.files import FolderInUse, hold_folder
from envgen_nb.results.report import write_report
from envgen_nb.studio.session import Session

SMALL = dict(vocabulary="extended", num_cycles=1, num_worlds=2, cycle_steps=4096, final_steps=0, evaluation_runs=1,
             evaluation_episodes=2, threads=1, seed=5, world_length=300,
             preset_options={"num_envs": 8, "rollout_steps": 128})


def whole(path, **settings):
    run = create_run(make_settings(**SMALL | settings), path)
    list(run_cycles(run.path))
    return RunFolder(run.path)


def longer(run, **plan):
    run = change_settings(run, **plan)
    list(run_cycles(run.path))
    return RunFolder(run.path)


def content(run):
    """What was designed, learned and measured; no times, nor what only the end of a plan logs of the game's moments."""
    records = {cycle: [{name: value for name, value in one.items() if name not in ("seconds", "moments")}
                       for one in run.metrics(cycle)] for cycle in run.cycles}
    measured = {cycle: json.loads((run.path / cycle / "evaluation.json").read_text()) for cycle in run.cycles}
    return records, measured, {cycle: run.worlds(cycle) for cycle in run.cycles}, run.checkpoint()["learner"]


@pytest.mark.parametrize("settings", [
    {}, *(pytest.param(one, marks=pytest.mark.long) for one in (
        {"mixture_ratio": 1.0}, {"curriculum": "learnability"},
        {"curriculum": "domain_randomisation", "designer": "none"}))])
def test_more_cycles_are_those_of_a_longer_run(tmp_path, settings):
    run = longer(whole(tmp_path / "one", **settings), num_cycles=2)
    assert same(content(run), content(whole(tmp_path / "two", num_cycles=2, **settings)))
    plan, = run.plans()
    assert (plan["num_cycles"], plan["cycle"], plan["steps"]) == (1, "cycle-1", 4096)
    kept = json.loads((run.path / plan["kept"] / "cycle-1" / "evaluation.json").read_text())
    again = json.loads((run.path / "cycle-1" / "evaluation.json").read_text())
    assert kept["score"] == plan["score"] and kept["seed"] != again["seed"]
    page = write_report(run).read_text()
    assert "This run was planned for 1 cycle, and ended after 4,096 steps" in page and "on the way" not in page


def test_more_cycles_come_before_the_training_after_them_and_more_steps_at_the_end(tmp_path):
    run = longer(whole(tmp_path / "short", final_steps=2048), num_cycles=2, final_steps=3072)
    assert sorted(path.name for path in (run.path / "ends/1/final").iterdir()) == [
        "checkpoint.pt", "evaluation.json", "metrics.jsonl"]
    run = longer(run, final_steps=5120)
    assert same(content(run), content(whole(tmp_path / "long", num_cycles=2, final_steps=5120)))
    assert [(plan["num_cycles"], plan["final_steps"], plan["rollouts"]) for plan in run.plans()] == [
        (1, 2048, 2), (2, 3072, 3)]
    run = longer(whole(tmp_path / "none"), final_steps=2048)
    assert same(content(run), content(whole(tmp_path / "some", final_steps=2048)))


def test_a_kill_while_the_end_is_put_aside(tmp_path, monkeypatch):
    """The plan is written last: until then the run is one that resumes to the end that it had."""
    run = whole(tmp_path / "run")
    before = content(run)

    def killed(*_):
        raise KeyboardInterrupt

    (run.path / "lessons.md").write_text("- Wood first.")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(edit, "write_json", killed)
        change_settings(run, num_cycles=2)
    assert not RunFolder(run.path).finished() and RunFolder(run.path).plans() == []
    list(run_cycles(run.path))
    assert same(content(RunFolder(run.path)), before)
    run = longer(RunFolder(run.path), num_cycles=2)
    assert same(content(run), content(whole(tmp_path / "two", num_cycles=2)))
    assert (run.path / "ends/1/lessons.md").read_text() == "- Wood first."


def test_a_stop_at_the_steps_at_which_the_plan_before_ended(tmp_path):
    """There the second cycle ends now, and no step of the training after it is done yet."""
    run = change_settings(whole(tmp_path / "run", final_steps=4096), num_cycles=2, final_steps=8192)
    for event in (events := run_cycles(run.path)):
        if isinstance(event, Evaluated) and event.cycle == "cycle-2":
            events.close()
    list(run_cycles(run.path))
    assert len(RunFolder(run.path).metrics("final")) == 8


def test_what_cannot_be(tmp_path):
    run = whole(tmp_path / "run", num_cycles=2)
    for error, changes, message in (
            (EditError, {"num_cycles": 1}, "2 cycles are done, so it must be 3 or more"),
            (SettingsError, {"cycle_steps": 8192}, "in a finished run num_cycles and final_steps"),
            (SettingsError, {"num_cycles": 101}, "num_cycles: Input should be less than or equal to 100")):
        with pytest.raises(error, match=message):
            change_settings(run, **changes)
    with hold_folder(run.path), pytest.raises(FolderInUse, match=str(run.path)):
        change_settings(run, num_cycles=3)
    (run.path / "checkpoint.pt").rename(tmp_path / "aside.pt")
    with pytest.raises(RunFolderError, match=r"checkpoint\.pt is missing, and the run would go on from it"):
        change_settings(run, num_cycles=3)
    (tmp_path / "aside.pt").rename(run.path / "checkpoint.pt")
    session = Session(run)
    session.extend(0, 0)
    assert session.error == "nothing is added: name more cycles, or more steps"
    session.extend(0, 2048)
    assert session.error == "" and session.where.cycle == "cycle-2" and session.run.cycles[-1] == "final"
    session.extend(1, 0)
    assert "is not finished, and only a finished run gets more cycles or steps" in session.error
    inside = tmp_path / "experiment" / "arm" / "seed-0"
    inside.parent.mkdir(parents=True)
    (tmp_path / "experiment" / "experiment.toml").touch()
    run.path.rename(inside)
    with pytest.raises(EditError, match="is a run of an experiment"):
        change_settings(RunFolder(inside), num_cycles=3)


def test_resume_goes_on_with_a_finished_run(tmp_path, capfd):
    run = whole(tmp_path / "run")
    assert main(["resume", str(run.path), "-p", "num_cycles", "1", "-p", "cycles", "3"]) == 2
    assert "a run has no parameter 'cycles'" in capfd.readouterr().err
    assert main(["resume", str(run.path), "-p", "num_cycles", "2"]) == 0
    assert "objective " in capfd.readouterr().out and RunFolder(run.path).settings.num_cycles == 2
    assert RunFolder(run.path).finished()


def test_a_later_prompt_is_printed_as_it_was_sent(tmp_path, capsys):
    run = create_run(make_settings(**SMALL | {"num_cycles": 2}), tmp_path / "run")
    assert main(["prompt", str(run.path)]) == 2 and "there are: none" in capsys.readouterr().err
    list(run_cycles(run.path))
    for options, cycle in (([], "cycle-2"), (["--cycle", "1"], "cycle-1"), (["--cycle", "cycle-2"], "cycle-2")):
        assert main(["prompt", str(run.path), *options]) == 0
        assert capsys.readouterr().out == (run.path / cycle / "prompt.md").read_text() + "\n"
    assert main(["prompt", str(run.path), "--cycle", "3"]) == 2
    assert "has no prompt of cycle-3; there are: cycle-1, cycle-2" in capsys.readouterr().err
