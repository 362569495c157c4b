"""Whole runs of Heist: designed mazes, feedback, resuming, hard mode, clips, and what a damaged folder says."""
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from envgen_nb.simulators.heist.game import Games, procgen_package

if not procgen_package():
    pytest.skip("there is no build of Procgen for this machine", allow_module_level=True)

from envgen_nb.agent.checkpoint import load_checkpoint, save_checkpoint
from envgen_nb.agent.presets import get_preset
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Training
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.records import percent
from envgen_nb.experiment.batch import play
from envgen_nb.extras.cli import main
from envgen_nb.game.episodes import Episodes
from envgen_nb.game.simulator import games, get_simulator
from envgen_nb.results import training_episodes, training_score
from envgen_nb.results.figures import missing_html, table_text
from envgen_nb.simulators.heist import game, vector
from envgen_nb.simulators.heist.vector import OBJECTIVES
from envgen_nb.simulators.heist.world import HardHeistWorld

SMALL = dict(simulator="heist", preset="laptop", num_cycles=1, num_worlds=4, cycle_steps=4096, final_steps=2048,
             world_length=60, evaluation_runs=1, evaluation_episodes=4, threads=1, seed=3,
             preset_options={"num_envs": 16, "rollout_steps": 64, "minibatches": 2, "gamma": 0.99, "hidden": [32, 32]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    "The folder of a run in hard mode that was never stopped; every game that it started was in that mode."
    folder, modes = tmp_path_factory.mktemp("runs") / "whole", []
    create_run(make_settings(**SMALL, vocabulary="hard"), folder)

    class Watched(Games):
        def __init__(self, num, seed, mode, *rest, **options):
            modes.append(mode)
            super().__init__(num, seed, mode, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector, "Games", Watched)
        list(run_cycles(folder))
    assert len(modes) > 5 and set(modes) == {"hard"}
    return RunFolder(folder)


@pytest.mark.long
def test_a_run_with_the_vocabulary_of_hard_mode_is_in_hard_mode(finished):
    assert type(finished.original) is HardHeistWorld and finished.finished()
    assert all(type(world) is HardHeistWorld for world in finished.worlds("cycle-1"))


@pytest.mark.long
def test_a_stopped_run_goes_on_to_the_same_end(finished, tmp_path):
    create_run(finished.settings, tmp_path / "run")
    stops = 0
    for _ in range(20):
        events = run_cycles(tmp_path / "run")
        if not any(isinstance(event, Training) for event in events):      # stops after each rollout
            break
        events.close()
        stops += 1
    ends = [load_checkpoint(path / "checkpoint.pt")["learner"]["policy"] for path in (finished.path, tmp_path / "run")]
    assert stops > 4 and RunFolder(tmp_path / "run").finished()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    for cycle in finished.cycles:
        assert RunFolder(tmp_path / "run").evaluation(cycle).to_dict() == finished.evaluation(cycle).to_dict()


@pytest.mark.long
def test_a_designer_is_told_what_happened_in_its_mazes_and_what_was_missing(tmp_path):
    """Also of mazes with a goal; a stopped run goes on to the same end."""
    worlds = tmp_path / "worlds.json"
    worlds.write_text('[{"maze_size": 3, "locks": 1, "goal": "open_lock_1", "length": 40}]')
    settings = make_settings(**SMALL | {
        "num_cycles": 2, "num_worlds": 1, "final_steps": 0, "feedback": "full", "curriculum": "constant",
        "designer": "fixed", "designer_options": {"worlds": str(worlds)}})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    prompt, measured = run.text("cycle-2", "prompt.md"), run.evaluation("cycle-1")
    assert "What was missing" in prompt and "Environment 1: " in prompt and "open_lock_1 " in prompt
    for held in measured.held["take_gem"][:3]:
        assert held.episodes == 100 or f"{held.conditions[0]} {percent(held.episodes)}" in prompt
    played = Episodes.join([run.episodes(record, "worlds") for record in run.metrics("cycle-1")])
    assert played.lengths.max() == 40 and (played.unlocked[:, 3] & (played.lengths < 40)).any()
    assert not played.unlocked[:, 6].any() and "what an objective needs" in missing_html(run)
    create_run(run.settings, tmp_path / "again")
    for _ in range(40):
        events = run_cycles(tmp_path / "again")
        if not any(isinstance(event, Training) for event in events):
            break
        events.close()
    ends = [load_checkpoint(path / "checkpoint.pt")["learner"]["policy"] for path in (run.path, tmp_path / "again")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.long
def test_rates_count_only_the_episodes_that_had_the_objective(finished):
    records = [record["episodes"] for record in finished.metrics("cycle-1") if record["phase"] == "worlds"]
    episodes = [(set(had), set(got)) for r in records for had, got in zip(r["possible"], r["unlocked"], strict=True)]
    assert len(episodes) > 20 and all(got <= had for had, got in episodes)
    assert {len(had) for had, _ in episodes} != {len(OBJECTIVES)}
    told = [json.loads(line) for line in (finished.path / "events.jsonl").read_text().splitlines()]
    last = [event for event in told if event["event"] == "Training" and event["phase"] == "worlds"][-1]["success"]
    for k, name in enumerate(OBJECTIVES):
        having = [got for had, got in episodes[-100:] if k in had]
        assert last[name] == pytest.approx(100 * np.mean([k in got for got in having]) if having else 0, abs=0.06)
    original = [record["episodes"] for cycle in finished.cycles for record in finished.metrics(cycle)
                if record["phase"] == "original"]
    taken = [OBJECTIVES.index("take_gem") in got for r in original for got in r["unlocked"]]
    assert training_score(finished) == (pytest.approx(100 * np.mean(taken)) if taken else None)
    assert "return of its episodes" in table_text(finished)


@pytest.mark.long
def test_the_rate_over_training_is_that_of_all_episodes_and_not_of_those_that_ended_early(finished):
    """An episode of 1,000 steps does not end within a stage of 128; those that do have taken the gem."""
    episodes, take = training_episodes(finished), OBJECTIVES.index("take_gem")
    assert episodes.lengths.sum() == 4096                          # half of the cycle, and of `final` all of it
    assert episodes.cut.sum() == 16 and not episodes.unlocked[episodes.cut, take].any()
    assert training_score(finished) == pytest.approx(100 * episodes.unlocked[:, take].mean())
    assert training_score(finished) < 60
    assert f"({len(episodes)} in the original game, 16 of them cut by the end of training)" in table_text(finished)
    worlds = Episodes.join([finished.episodes(record, "worlds") for record in finished.metrics("cycle-1")])
    assert worlds.lengths.sum() == 2048 and 0 < worlds.cut.sum() <= 16


@pytest.mark.long
def test_a_clip_of_a_designed_maze_and_of_the_ordinary_game(finished, tmp_path):
    for world in (None, finished.worlds("cycle-1")[0]):
        told = play(finished, tmp_path / "clip.gif", world=world, steps=12)
        with Image.open(tmp_path / "clip.gif") as clip:
            assert clip.size == (512, 512) and 1 < clip.n_frames <= told["length"] + 1   # equal pictures are one


@pytest.mark.long
def test_a_damaged_state_in_the_checkpoint_is_told_and_nothing_is_lost(finished, tmp_path):
    create_run(finished.settings, tmp_path / "run")
    events = run_cycles(tmp_path / "run")
    next(event for event in events if isinstance(event, Training))
    events.close()
    state = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    intact = state["venv"][2].clone()
    state["venv"][2][len(intact) // 2:] = 0
    save_checkpoint(tmp_path / "run" / "checkpoint.pt", state)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json*") if path.name != "events.jsonl"}
    with pytest.raises(RunFolderError, match="checkpoint.pt is damaged: the state of sub-environment 2 cannot be used"):
        list(run_cycles(tmp_path / "run"))
    assert {path: path.read_bytes() for path in before} == before
    state["venv"][2] = intact
    save_checkpoint(tmp_path / "run" / "checkpoint.pt", state)
    assert any(isinstance(event, Training) for event in run_cycles(tmp_path / "run"))


def test_what_is_refused_before_anything_starts(tmp_path):
    for wrong, why in (({"preset": "symbols"}, "sees symbols, which heist does not show"),
                       ({"vocabulary": "extended"}, "it has: default, hard"),
                       ({"preset_options": {"gama": 0.9}}, "a preset has no gama"),
                       ({"num_worlds": 17}, "do not fit")):
        with pytest.raises(ValueError, match=why):
            make_settings(**SMALL | wrong)


def test_without_procgen_nothing_is_started(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(game, "_PACKAGES", {})
    monkeypatch.chdir(tmp_path)
    assert "heist" in games.names() and get_simulator("heist").rules
    assert main(["run", "heist"]) == 2 and "pip install 'envgen_nb[heist]'" in capsys.readouterr().err
    with pytest.raises(ImportError, match="pip install"):
        create_run(make_settings(**SMALL), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_record_of_what_it_learns_is_of_this_agent():
    record = json.loads((Path(__file__).parent.parent / "benchmarks" / "heist_learning.json").read_text())
    now = get_preset("laptop").numbers() | {"name": "laptop"}
    assert all(now[name] == (tuple(value) if isinstance(value, list) else value)
               for name, value in record["preset"].items() if name != "pieces")
    assert len(record["runs"]) >= 3
    for run in record["runs"]:
        assert run["steps"] > 390_000 and run["after"][1] > run["before"][2]         # the intervals lie apart
