"""Crafter by Gymnasium's names: the fast engine behind `make` and `make_vec`, and checkers that are not ours."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from packaging.version import Version
from stable_baselines3.common.env_checker import check_env as check_env_by_sb3

import envgen_nb
from envgen_nb.simulators.crafter.env import CrafterEnv
from envgen_nb.simulators.crafter.vector import CrafterVectorEnv
from envgen_nb.simulators.crafter.world import CrafterWorld, EnvironmentSettings, InventorySettings

NAME = "envgen_nb/Crafter-v0"
OLD = Path(sys.prefix) / "gymnasium-1.2.2"        # made by `make test-all`
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
    assert [type(env.unwrapped._venv._engine).__name__ for env in (fast, slow)] == ["Engine", "Reference"]
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
    assert all(venv.reset() for venv in free) and not equal(*(venv.semantic() for venv in free))
    for wrong in ({"world": MOUNTAIN, "worlds": [None]}, {"render_mode": "ansi"}, {"engine": "slow"}, {"length": 0}):
        with pytest.raises(ValueError):
            gymnasium.make_vec(NAME, num_envs=2, **wrong)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_gymnasium_records_statistics_of_episodes(mode):
    if mode == AutoresetMode.SAME_STEP and Version(gymnasium.__version__) < Version("1.4"):
        pytest.skip("before 1.4 this wrapper leaves out steps with SAME_STEP")
    venv = RecordEpisodeStatistics(gymnasium.make_vec(NAME, num_envs=8, obs="symbols", seed=1, length=25,
                                                      autoreset_mode=mode))
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


WRAPPERS = {
    "TransformObservation": lambda venv: wrappers.TransformObservation(venv, lambda obs: obs),
    "VectorizeTransformObservation": lambda venv: wrappers.VectorizeTransformObservation(
        venv, gymnasium.wrappers.TransformObservation, func=lambda obs: obs,
        observation_space=venv.single_observation_space),
    "FlattenObservation": wrappers.FlattenObservation,
    "GrayscaleObservation": wrappers.GrayscaleObservation,
    "ReshapeObservation": lambda venv: wrappers.ReshapeObservation(venv, (64 * 64 * 3,)),
    "RescaleObservation": lambda venv: wrappers.RescaleObservation(
        venv, np.zeros((64, 64, 3), np.float32), np.ones((64, 64, 3), np.float32)),
    "DtypeObservation": lambda venv: wrappers.DtypeObservation(venv, np.float32),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "DictInfoToList": wrappers.DictInfoToList,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_vector_wrappers_of_gymnasium_take_next_step(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        venv = WRAPPERS[name](gymnasium.make_vec(NAME, num_envs=3, seed=1, length=9, autoreset_mode="NextStep"))
    venv.reset()
    cut = [venv.step(np.zeros(3, int))[3].all() for _ in range(30)]
    assert np.flatnonzero(cut).tolist() == [8, 18, 28]                  # 9 steps, and one that belongs to no episode
    venv.close()


def test_the_autoreset_mode_is_where_gymnasium_and_others_look_for_it():
    "`metadata` of Gymnasium's wrappers, `autoreset_mode` of its own vector environments and of TorchRL."
    for given, mode in ((AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP), ("NextStep", AutoresetMode.NEXT_STEP),
                        ("SameStep", AutoresetMode.SAME_STEP)):
        venv = gymnasium.make_vec(NAME, num_envs=2, autoreset_mode=given)
        assert venv.autoreset_mode is venv.metadata["autoreset_mode"] is mode
        venv.close()
    usual = gymnasium.make_vec(NAME, num_envs=2)
    assert usual.autoreset_mode is usual.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    usual.close()
    for wrong in (AutoresetMode.DISABLED, "Disabled", "later", None):
        with pytest.raises(ValueError, match="SAME_STEP.*NEXT_STEP"):
            gymnasium.make_vec(NAME, num_envs=2, autoreset_mode=wrong)


def test_with_next_step_the_games_are_those_of_gymnasiums_own_copies():
    "Its `SyncVectorEnv` of single environments, with the same seeds, step by step, resets included."
    ours = gymnasium.make_vec(NAME, num_envs=3, obs="symbols", length=7, autoreset_mode="NextStep")
    theirs = SyncVectorEnv([lambda: gymnasium.make(NAME, obs="symbols", length=7)] * 3)
    assert equal(ours.reset(seed=[4, 5, 6])[0], theirs.reset(seed=[4, 5, 6])[0])
    for row in np.random.default_rng(0).integers(17, size=(40, 3)):
        assert all(map(equal, ours.step(row)[:4], theirs.step(row)[:4]))
    ours.close(), theirs.close()


@pytest.mark.long
def test_the_lowest_gymnasium_will_do():
    "These tests, and the whole contract of a small game, with the lowest version that pyproject.toml allows."
    assert OLD.exists(), f"{OLD} is missing: `make test-all` installs it"
    environment = os.environ | {"PYTHONPATH": f"{OLD}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    tests = [__file__, *(str(Path(__file__).with_name(f"test_{name}.py")) for name in ("copies", "simple", "minigrid"))]
    code = ("import gymnasium, pytest, sys; assert gymnasium.__version__.startswith('1.2.2'); "
            "sys.exit(pytest.main(sys.argv[1:]))")
    done = subprocess.run([sys.executable, "-c", code, *tests, "-q", "-p", "no:cacheprovider"], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
