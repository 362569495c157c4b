"""Crafter by Gymnasium's names: the fast engine behind `make` and `make_vec`, and checkers that are not ours."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.env_checker import check_env as check_env_by_sb3

import envgen_nb
from envgen_nb.crafter.env import CrafterEnv
from envgen_nb.crafter.vector import CrafterVectorEnv
from envgen_nb.crafter.world import CrafterWorld, EnvironmentSettings, InventorySettings

NAME = "envgen_nb/Crafter-v0"
MOUNTAIN = CrafterWorld(environment_settings=EnvironmentSettings(target_biome="mountain"),
                        inventory_settings=InventorySettings(wood_pickaxe=1, sapling=2))


def equal(one, other):
    "Whether both are the same, in dictionaries and tuples too, and of the same type."
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("settings", [{}, {"obs": "both", "world": MOUNTAIN}, {"obs": "symbols", "length": 30}],
                         ids=["pixels", "both", "symbols"])
def test_a_single_environment_plays_the_same_with_both_engines(settings):
    "Observations, rewards, endings and all infos, over nights and several episodes, with a look now and then."
    fast, slow = (gymnasium.make(NAME, render_mode="rgb_array", engine=engine, **settings)
                  for engine in ("fast", "reference"))
    assert equal(fast.reset(seed=11), slow.reset(seed=11))
    assert type(fast.unwrapped._game).__name__ == "FastGame" and type(slow.unwrapped._game).__name__ == "Game"
    ends = 0
    for step, action in enumerate(np.random.default_rng(2).integers(17, size=400).tolist()):
        told = fast.step(action)
        assert equal(told, slow.step(action)), step
        if step % 90 == 0:
            assert np.array_equal(fast.render(), slow.render())
        if told[2] or told[3]:
            assert equal(fast.reset(), slow.reset())
            ends += 1
    assert ends > 0
    assert equal(fast.reset(seed=12), slow.reset(seed=12))


def test_make_vec_is_the_vector_environment_of_the_kit():
    theirs = gymnasium.make_vec(NAME, num_envs=6, obs="symbols", world=MOUNTAIN, max_episode_steps=20, num_threads=2)
    ours = envgen_nb.make_vec("crafter", [MOUNTAIN], num_envs=6, obs="symbols", length=20)
    assert type(theirs) is CrafterVectorEnv and theirs.spec.id == NAME and theirs.lengths == (20,)
    assert equal(theirs.reset(seed=3), ours.reset(seed=3))
    for row in np.random.default_rng(0).integers(17, size=(50, 6)):
        assert equal(theirs.step(row), ours.step(row))
    theirs.close(), ours.close()


def test_the_ways_to_make_many():
    named = gymnasium.make_vec(NAME, num_envs=2, vectorization_mode="vector_entry_point", engine="reference")
    assert type(named) is CrafterVectorEnv
    named.close()
    copies = gymnasium.make_vec(NAME, num_envs=2, vectorization_mode="sync", obs="symbols")
    assert type(copies) is SyncVectorEnv and type(copies.envs[0].unwrapped) is CrafterEnv
    copies.reset(seed=1), copies.step(np.zeros(2, int))
    copies.close()
    free = [gymnasium.make_vec(NAME, num_envs=1, obs="symbols") for _ in range(2)]     # without a seed, other games
    assert not equal(*(venv.reset()[0] for venv in free))
    for wrong in ({"world": MOUNTAIN, "worlds": [None]}, {"render_mode": "ansi"}, {"engine": "slow"}, {"length": 0}):
        with pytest.raises(ValueError):
            gymnasium.make_vec(NAME, num_envs=2, **wrong)


def test_gymnasium_records_statistics_of_episodes():
    venv = RecordEpisodeStatistics(gymnasium.make_vec(NAME, num_envs=8, obs="symbols", seed=1, length=25))
    venv.reset()
    rows = np.random.default_rng(0).integers(17, size=(60, 8))
    for row in rows:
        infos = venv.step(row)[4]
        if "episode" in infos:
            ended = infos["_episode"]
            assert np.allclose(infos["episode"]["r"][ended], infos["results"]["return"][ended])
            assert np.array_equal(infos["episode"]["l"][ended], infos["results"]["length"][ended])
    assert venv.episode_count >= 16 and len(venv.return_queue) == venv.episode_count
    venv.close()


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("obs", ["pixels", "symbols", "both"])
def test_checkers_that_are_not_ours_have_no_complaints(engine, obs):
    env = gymnasium.make(NAME, obs=obs, engine=engine, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        warnings.filterwarnings("ignore", message=".*unconventional shape")        # grids are no pictures: advice
        check_env_by_sb3(env.unwrapped, warn=True)
