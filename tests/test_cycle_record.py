"""What is recorded is what happened: each training episode once, by what it was played in, and nothing left out."""
import json

import numpy as np
import pytest
import torch

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.context import world_records
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import change_settings, position
from envgen_nb.cycle.events import Accepted, Evaluated, Training
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.results import history, learning_curve, training_episodes, training_score
from envgen_nb.results.figures import learning_figure, table_text
from envgen_nb.results.progress import say

SMALL = dict(num_cycles=2, num_worlds=2, cycle_steps=4_096, final_steps=2_048, evaluation_runs=1,
             evaluation_episodes=2, threads=1, seed=5, preset_options={"num_envs": 8, "rollout_steps": 128})


def steps_played(run, phase=None):
    """Environment steps in all recorded training episodes."""
    return sum(int(run.episodes(record, phase).lengths.sum()) for cycle in run.cycles for record in run.metrics(cycle))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    run = create_run(make_settings(designer="none", **SMALL), tmp_path_factory.mktemp("plain") / "run")
    return run, list(run_cycles(run.path))


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    run = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("designed") / "run")
    return run, list(run_cycles(run.path))


def test_without_worlds_everything_is_the_original_game(plain):
    run, events = plain
    training = [event for event in events if isinstance(event, Training)]
    assert len(training) == 10 and {event.phase for event in training} == {"original"}
    assert all("original game" in say(event.record()) for event in training)
    episodes = training_episodes(run)
    assert len(episodes) == sum(len(run.episodes(r)) for cycle in run.cycles for r in run.metrics(cycle)) > 8
    edges = np.linspace(0, 10_241, 6)
    assert [len(found) for found in learning_curve(run, 5)[1]] == np.histogram(
        [r["step"] for cycle in run.cycles for r in run.metrics(cycle) for cut in run.episodes(r).cut if not cut], edges
    )[0].tolist()
    assert not learning_figure(run).layout.shapes and {point.phase for point in history(run)} == {"original"}
    text = (run.path / "cycle-1" / "metrics.jsonl").read_text()
    assert {world for line in text.splitlines() for world in json.loads(line)["episodes"]["world"]} == {0}


@pytest.mark.parametrize("which", ["plain", "designed"])
def test_each_step_is_in_one_episode(which, request):
    """Episodes go on over the ends of stages, or are told as cut: so all their lengths add up to all steps."""
    run, events = request.getfixturevalue(which)
    done = [event for event in events if isinstance(event, Training)][-1].steps
    assert steps_played(run) == done == 10_240
    in_worlds = sum(event.phase == "worlds" for event in events if isinstance(event, Training)) * 1024
    assert steps_played(run, "worlds") == in_worlds == (0 if which == "plain" else 4_096)
    last = {cycle: [run.episodes(record).cut.any() for record in run.metrics(cycle)] for cycle in run.cycles[1:]}
    ends = {"plain": [], "designed": [1]}[which]
    assert {cycle: np.flatnonzero(found).tolist() for cycle, found in last.items()} == {
        "cycle-1": ends, "cycle-2": ends, "final": [1]}
    whole = [run.episodes(record) for record in run.metrics("final")]
    assert max(int(e.lengths.max()) for e in whole if len(e)) > 128          # began in a stage before


def test_a_run_without_worlds_is_one_stretch_of_training(plain, tmp_path):
    """The ends of stages change nothing: the same steps in one stage give the same weights."""
    one = create_run(make_settings(designer="none", **SMALL | {"num_cycles": 1, "cycle_steps": 4_096,
                                                               "final_steps": 6_144}), tmp_path / "one")
    list(run_cycles(one.path))
    some, other = (load_checkpoint(run.path / "checkpoint.pt")["learner"]["policy"] for run in (plain[0], one))
    assert all(torch.equal(some[name], other[name]) for name in some)


def test_worlds_and_the_original_game_are_counted_apart(designed):
    run, events = designed
    training = [event for event in events if isinstance(event, Training)]
    assert {event.phase for event in training if event.cycle == "cycle-1"} == {"worlds", "original"}
    assert len(training_episodes(run)) == sum(len(run.episodes(record, "original")) for cycle in run.cycles
                                              for record in run.metrics(cycle))
    first = run.metrics("cycle-1")
    known = training_episodes(run, until=first[-1]["step"])
    assert 0 < len(known) == sum(len(run.episodes(one, "original")) for one in first)
    points = [point for point in history(run) if point.episodes]
    told = [(e.done, e.phase, e.episodes) for e in training if e.episodes]
    assert sorted({(p.step, p.phase, p.episodes) for p in points}) == sorted(told)
    assert len(learning_figure(run).layout.shapes) == 2
    cut = training_episodes(run).cut.sum()
    assert 0 < cut <= 8 and f"{cut:,} of them cut by the end of training" in table_text(run)


def test_a_mixture_at_all_times(tmp_path):
    """`constant` plays designed worlds in half of the sub-environments, to the last step, and breaks nothing off."""
    run = create_run(make_settings(curriculum="constant", **SMALL), tmp_path / "run")
    events = list(run_cycles(run.path))
    training = [event for event in events if isinstance(event, Training)]
    assert len(training) == 10 and {event.phase for event in training} == {"both"}
    assert steps_played(run) == 10_240 and steps_played(run, "worlds") == pytest.approx(5_120, abs=600)
    whole = [run.episodes(record) for cycle in run.cycles for record in run.metrics(cycle)]
    assert {1, 2, 3, 4} >= set(np.concatenate([e.worlds for e in whole]).tolist()) - {0} >= {1}
    assert not any(e.cut.any() for e in whole[:-1]) and whole[-1].cut.sum() <= 8
    assert {point.phase for point in history(run)} == {"original", "worlds"}
    assert len(learning_figure(run).data) == 2 and "designed worlds and original game" in say(training[-1].record())
    assert [sum(record.episodes for record in cycle) > 0 for cycle in world_records(run)] == [True, True]


@pytest.mark.long
def test_stopped_everywhere_it_is_the_same(designed, tmp_path, monkeypatch):
    """The waiting episodes of the original game are in the checkpoint, so each rollout can have its own session."""
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    run = create_run(designed[0].settings, tmp_path / "run")
    while not run.finished():
        for event in run_cycles(run.path):
            if isinstance(event, Training):
                break
    some, other = (load_checkpoint(path / "checkpoint.pt")["learner"]["policy"]
                   for path in (run.path, designed[0].path))
    assert all(torch.equal(some[name], other[name]) for name in some)
    for cycle in run.cycles:
        assert [r["episodes"] for r in run.metrics(cycle)] == [r["episodes"] for r in designed[0].metrics(cycle)]


def test_a_cycle_that_was_begun_without_worlds_stays_so(tmp_path):
    run = create_run(make_settings(designer="none", **SMALL), tmp_path / "run")
    events = run_cycles(run.path)
    next(event for event in events if isinstance(event, Training))
    events.close()
    run = change_settings(run, designer="rules")
    assert position(run).step == "train" and position(run).begun
    events = list(run_cycles(run.path))
    assert [event.cycle for event in events if isinstance(event, Accepted)] == ["cycle-2"]
    phases = {cycle: {e.phase for e in events if isinstance(e, Training) and e.cycle == cycle}
              for cycle in run.cycles[1:]}
    assert phases == {"cycle-1": {"original"}, "cycle-2": {"worlds", "original"}, "final": {"original"}}
    assert steps_played(run) == 10_240 and steps_played(run, "worlds") == 2_048


def test_the_last_measurement_is_of_other_maps(plain):
    """What is fed back is measured on the same maps each time; what the run is judged by, on others."""
    run, events = plain
    seeds = [json.loads(run.text(cycle, "evaluation.json"))["seed"] for cycle in run.cycles]
    assert len(set(seeds[:-1])) == 1 and seeds[-1] != seeds[0]
    assert [event.cycle for event in events if isinstance(event, Evaluated)] == run.cycles
    short = create_run(run.settings.model_copy(update={"num_cycles": 1, "final_steps": 0}), run.path.parent / "short")
    assert [type(event).__name__ for event in run_cycles(short.path)][-1] == "Finished"
    assert [json.loads(short.text(cycle, "evaluation.json"))["seed"] for cycle in short.cycles] == [seeds[0], seeds[-1]]


def test_the_score_of_training_says_of_how_many_episodes_it_is(plain):
    run, _ = plain
    score, count = training_score(run), len(training_episodes(run))
    assert f"score over training episodes {score:6.1f} % ({count:,} in the original game" in table_text(run)
