"""The player by rules: where it may be a learner, and a run with it from start to end."""

import numpy as np
import pytest

from envgen_nb.agent.clips import record
from envgen_nb.agent.learner import ScriptedLearner
from envgen_nb.agent.presets import get_preset
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import load_agent, open_run
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.experiment.batch import play
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results.report import write_report


def test_other_games_and_other_eyes_are_refused():
    with pytest.raises(SettingsError, match="learner: crafter has no player by rules that sees pixels, but one that "
                                            "sees symbols: choose such an agent"):
        make_settings(learner="scripted", preset="laptop")
    with pytest.raises(SettingsError, match="learner: minigrid has no player by rules, so there is nothing"):
        make_settings(simulator="minigrid", learner="scripted")
    assert make_settings(learner="scripted").learner == "scripted"


@pytest.mark.long
def test_a_run_with_it(tmp_path):
    "It is measured, resumed with the same bits, and watched; in worlds with tools it reaches more than chance."
    settings = {"learner": "scripted", "designer": "rules", "num_cycles": 1, "num_worlds": 2, "cycle_steps": 16384,
                "final_steps": 0, "evaluation_runs": 1, "evaluation_episodes": 8, "num_candidates": 3,
                "trial_episodes": 2}
    runs = [open_run(tmp_path / name, **settings) for name in ("whole", "stopped")]
    list(run_cycles(runs[0].path))
    rollouts = 0

    class Stop(Exception):
        pass

    def check():
        nonlocal rollouts
        rollouts += 1
        if rollouts == 40:
            raise Stop

    with pytest.raises(Stop):
        list(run_cycles(runs[1].path, check=check))
    list(run_cycles(runs[1].path))
    found = [run.evaluation("cycle-1") for run in runs]
    assert found[0].to_dict() == found[1].to_dict()
    assert found[0].unlocked.sum(1).mean() > 8                  # of 22; chance reaches about 3
    agent = load_agent(runs[0])
    assert isinstance(agent, ScriptedLearner)
    recording = record(get_simulator("crafter"), agent=agent, seed=1, steps=60)
    assert {"collect_wood", "place_plant"} & set(recording.reached)
    assert play(runs[0], tmp_path / "clip.gif", steps=20)
    pages = [write_report(runs[0], **shown).read_text() for shown in ({}, {"rules": True, "episodes": 2})]
    assert [page.count("<b>The player by rules</b>") for page in pages] == [0, 1]
    assert [[page.count(f"<b>Seed {seed}</b>") for seed in (1, 2, 3)] for page in pages] == [[0, 0, 0], [1, 1, 0]]
    whole = record(get_simulator("crafter"), agent=agent, seed=1, steps=10_000)
    missed = [name for name in whole.possible if name not in whole.reached]
    said = f"{whole.length:,} steps, return {whole.episode_return:.1f}, {len(whole.reached)} of 22 objectives reached"
    assert f"{said}<br>Not: {', '.join(missed).replace('_', ' ')}</figcaption>" in pages[1] and missed


@pytest.mark.long
def test_it_plays_worlds_of_all_kinds():
    "Whatever a designer may write: other starts, other clocks, tools and no tools; two of it do the same."
    game, preset = get_simulator("crafter"), get_preset("symbols")
    worlds = [world for name in game.objectives for world in game.practice(name, "extended")[:1]]
    venv = game.make_vec(worlds, num_envs=len(worlds), seed=4, obs="symbols", episodes=1, length=150)
    made = ScriptedLearner.for_game(game, preset)
    players = [made(preset, venv.single_observation_space, venv.single_action_space, seed) for seed in (0, 1)]
    (obs, _), carries = venv.reset(), [player.start(len(worlds)) for player in players]
    for _ in range(150):
        acted = [player.act(obs, carry) for player, carry in zip(players, carries, strict=True)]
        assert np.array_equal(acted[0][0], acted[1][0])
        carries = [carry for _, carry, _ in acted]
        obs, *_ = venv.step(acted[0][0].numpy())
    assert venv.unlocked.sum(1).mean() > 4
