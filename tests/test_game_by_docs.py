"""A game that somebody writes by the documentation joins the kit: the contract, a whole run, and the studio's views."""

import numpy as np
import pytest
from game_by_docs import OBJECTIVES, Orchard
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from envgen_nb.agent.clips import clip, record
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated, Finished
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import games, get_simulator
from envgen_nb.studio.play import Play

games.register("orchard", "game_by_docs:Orchard")


def test_it_keeps_the_contract():
    check_simulator(Orchard())


class NoThreads(Orchard):
    def make_vec(self, worlds=(None,), num_envs=8, seed=0, obs="symbols", length=None, episodes=None, copy=True):
        return super().make_vec(worlds, num_envs, seed, obs, length, episodes)


class NoCopy(Orchard):
    def make_vec(self, worlds=(None,), num_envs=8, seed=0, obs="symbols", length=None, episodes=None,
                 num_threads=None):
        return super().make_vec(worlds, num_envs, seed, obs, length, episodes)


class OneBuffer(Orchard):
    def make_vec(self, *args, **options):
        venv, buffer = super().make_vec(*args, **options), {}
        see = venv._see

        def write_over():
            for name, part in see().items():
                buffer.setdefault(name, part)[...] = part
            return dict(buffer)
        venv._see = write_over
        return venv


class TakesTheKey(Orchard):
    def make_vec(self, *args, **options):
        venv = super().make_vec(*args, **options)
        step = venv.step

        def tell(actions):
            *told, infos = step(actions)
            return *told, infos | ({"episode": infos["results"]} if "results" in infos else {})
        venv.step = tell
        return venv


@pytest.mark.parametrize("game, said", [
    (NoThreads, "num_threads"), (NoCopy, "copy"), (OneBuffer, "changes later"), (TakesTheKey, "episode")])
def test_what_breaks_the_kit_is_named(game, said):
    with pytest.raises(AssertionError, match=said):
        check_simulator(game())


def test_a_whole_run_of_it(tmp_path):
    settings = make_settings(
        simulator="orchard", num_cycles=2, num_worlds=2, cycle_steps=512, final_steps=256, evaluation_runs=2,
        evaluation_episodes=4, threads=1, preset_options={"num_envs": 8, "rollout_steps": 16, "minibatches": 2})
    run = create_run(settings, tmp_path / "run")
    events = list(run_cycles(run.path))
    assert isinstance(events[-1], Finished)
    measured = [event for event in events if isinstance(event, Evaluated)]
    assert len(measured) == 4 and all(set(event.success) == set(OBJECTIVES) for event in measured)
    assert (run.path / "cycle-1" / "worlds.png").stat().st_size > 100
    world = run.worlds("cycle-2")[0]
    assert get_simulator("orchard").preview(world).shape == (160, 160, 3)
    assert record(run.simulator, world, steps=10).length <= 10
    assert clip(run.simulator, world, steps=10)[8:12] == b"WEBP"
    game = Play(run.simulator, world, seed=1)
    for action in np.random.default_rng(0).permutation(list(game.simulator.keys) * 20):
        game.act(action)
    assert game.over and "The episode is over" in game.status
    game.close()


def test_gymnasiums_statistics_of_it():
    venv = RecordEpisodeStatistics(Orchard().make_vec(num_envs=4, length=6))
    venv.reset(seed=1)
    for row in np.random.default_rng(0).integers(5, size=(20, 4)):
        venv.step(row)
    assert venv.episode_count >= 12 and max(venv.length_queue) <= 6
