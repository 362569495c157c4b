"""Copies and pickles are games of their own: of single environments, vector environments of all games, and learners."""

import copy
import gc
import os
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from states import same

import envgen_nb  # noqa: F401  (registers the name)
from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.simulator import get_simulator, make_vec
from envgen_nb.simulators.crafter.env import CrafterEnv
from envgen_nb.simulators.crafter.vector import CrafterVectorEnv
from envgen_nb.simulators.crafter.world import EpisodeSettings, ExtendedCrafterWorld, StartSettings
from envgen_nb.simulators.heist.game import procgen_package
from envgen_nb.simulators.heist.vector import HeistVectorEnv

NAME = "envgen_nb/Crafter-v0"
ACTIONS = np.random.default_rng(2).integers(17, size=400)
OTHER_PROCESS = """
import pickle, sys
env, actions = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps([env.step(action) for action in actions]))
"""


def leaves(told):
    "All arrays and numbers in dictionaries, tuples and lists."
    if isinstance(told, dict):
        return [leaf for name in sorted(told) for leaf in leaves(told[name])]
    return [leaf for part in told for leaf in leaves(part)] if isinstance(told, tuple | list) else [np.asarray(told)]


def equal(one, other):
    one, other = leaves(one), leaves(other)
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def in_another_process(env, actions):
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS], input=pickle.dumps((env, actions)),
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def play(env, actions):
    "What each step told, with a reset where an episode ended."
    told = []
    for action in actions.tolist():
        told.append(env.step(action))
        if told[-1][2] or told[-1][3]:
            told.append(env.reset())
    return told


@pytest.mark.parametrize("settings", [{}, {"obs": "symbols"}, {"obs": "both", "engine": "reference"}], ids=str)
def test_a_copy_of_an_environment_plays_its_own_game(settings):
    env = gymnasium.make(NAME, length=60, **settings)
    env.reset(seed=3), play(env, ACTIONS[:40])
    copied, twice = copy.deepcopy(env), copy.deepcopy(copy.deepcopy(env))
    ours = play(env, ACTIONS[40:200])
    del env                                              # its memory may now be used for something else
    gc.collect()
    assert equal(play(copied, ACTIONS[40:200]), ours) and equal(play(twice, ACTIONS[40:200]), ours)
    new = copy.deepcopy(gymnasium.make(NAME, **settings))              # one that has no game yet
    assert equal(new.reset(seed=8)[0], gymnasium.make(NAME, **settings).reset(seed=8)[0])


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_a_pickled_environment_plays_on_in_another_process(engine):
    env = gymnasium.make(NAME, obs="both", engine=engine)
    env.reset(seed=3), play(env, ACTIONS[:30])
    theirs = in_another_process(env, ACTIONS[30:60].tolist())
    assert equal(theirs, [env.step(action) for action in ACTIONS[30:60].tolist()])


@pytest.mark.parametrize("game", ["crafter", "heist", "minigrid"])
def test_a_pickled_vector_environment_plays_on_in_another_process(game):
    if game == "heist" and not procgen_package():
        pytest.skip("Procgen is not installed")
    simulator = get_simulator(game)
    worlds = [None, simulator.practice(simulator.objectives[0])[0]]
    venv = make_vec(game, worlds, 3, seed=5, obs=simulator.observations[0], length=20, num_threads=2)
    venv.reset()
    rows = np.random.default_rng(1).integers(len(simulator.actions), size=(60, 3))
    for row in rows[:30]:
        venv.step(row)
    theirs = in_another_process(venv, list(rows[30:]))
    assert equal(theirs, [venv.step(row) for row in rows[30:]])
    venv.close()
    with pytest.raises(RuntimeError, match="closed"):
        copy.deepcopy(venv)


def test_a_copy_keeps_moments_worlds_and_what_was_assigned():
    world = ExtendedCrafterWorld(start_settings=StartSettings(start_from="after collect_wood"),
                                 episode_settings=EpisodeSettings(length=32))
    venv = CrafterVectorEnv([None, world], 6, seed=2, obs="symbols", length=120, moments=True, num_threads=2)
    venv.reset()
    rows = np.random.default_rng(2).integers(17, size=(500, 6))
    for row in rows[:300]:
        venv.step(row)
    venv.add_worlds([None], 25), venv.assign({0: 2, 1: 2, 2: 1})
    copied = copy.deepcopy(venv)
    assert copied.moments == venv.moments and any(venv.moments.values())
    assert copied.assigned.tolist() == [2, 2, 1, 1, 0, 1]
    assert equal([copied.step(row) for row in rows[300:]], [venv.step(row) for row in rows[300:]])
    assert copied.get_memory() == venv.get_memory() and copied.get_state() == venv.get_state()


def test_arrays_that_come_out_of_a_pickle_read_only_are_copied():
    "As with Ray, which shares the memory of arrays between processes."
    env, buffers = gymnasium.make(NAME), []
    env.reset(seed=3)
    data = pickle.dumps(env, protocol=5, buffer_callback=buffers.append)
    kept = [bytes(buffer.raw()) for buffer in buffers]
    copied = pickle.loads(data, buffers=kept)
    assert buffers and equal(play(copied, ACTIONS[:100]), play(env, ACTIONS[:100]))
    assert kept == [bytes(pickle.PickleBuffer(one)) for one in kept]


@pytest.mark.parametrize("engine", ["fast", "reference"])
@pytest.mark.parametrize("obs", ["pixels", "symbols"])
def test_a_search_comes_back_to_where_it_was(engine, obs):
    "By day and by night, in the middle of an episode and at its end, in the same environment and in a new one."
    env = CrafterEnv(obs=obs, length=230, engine=engine)
    with pytest.raises(RuntimeError, match="call reset"):
        env.get_state()
    env.reset(seed=15)
    before = env.reset()[0]
    for begun in range(0, 230, 46):
        state = env.get_state()
        ours = [env.step(action) for action in ACTIONS[begun:begun + 46].tolist()]
        for other in (env, CrafterEnv(obs=obs, length=230, engine=engine)):
            seen = other.set_state(state)
            assert equal(seen, before)
            assert equal([other.step(action) for action in ACTIONS[begun:begun + 46].tolist()], ours)
        before = ours[-1][0]
    assert ours[-1][3] and equal(env.set_state(env.get_state()), before)            # it has ended, and stays so
    with pytest.raises(RuntimeError, match="no episode"):
        env.step(0)
    env.reset()
    for wrong in (b"", state[:-1], "text"):
        with pytest.raises(ValueError):
            env.set_state(wrong)
    with pytest.raises(ValueError, match="another step limit"):
        CrafterEnv(obs=obs, length=231, engine=engine).set_state(state)
    env.step(0)                                                                     # what was refused changed nothing


def test_a_state_goes_between_one_environment_and_many():
    env, venv = CrafterEnv(obs="symbols", length=50), CrafterVectorEnv([None], 2, seed=[7, 8], obs="symbols", length=50)
    env.reset(seed=7), venv.reset()
    seen = env.step(2)[0]
    assert equal(venv.set_state([env.get_state(), venv.get_state()[1]])["material"][0], seen["material"])


@pytest.mark.parametrize("learner", ["ppo", "ppo-memory", "ad"])
def test_a_copy_of_a_learner_with_threads_learns_by_itself(learner):
    found = learners.find(learner)
    preset = get_preset("symbols", hidden=(16,), num_envs=4, rollout_steps=8, minibatches=1, epochs=1)
    venv = make_vec("crafter", num_envs=4, obs="symbols")
    agent = found(preset, venv.single_observation_space, venv.single_action_space, seed=0)
    agent.speed_up(2)
    train(agent, venv, 64)
    before = copy.deepcopy(agent.state_dict())
    for other in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        assert same(other.state_dict(), before) and other.threads == 2 and other.pool is not agent.pool
        train(other, make_vec("crafter", num_envs=4, obs="symbols", seed=1), 64)
        assert not same(other.state_dict(), before) and same(agent.state_dict(), before)


def test_an_action_may_be_a_tensor_of_one_number():
    env, other = CrafterEnv(obs="symbols"), CrafterEnv(obs="symbols")
    env.reset(seed=1), other.reset(seed=1)
    for action in (torch.tensor(3), np.array(3), np.int64(3), torch.tensor([3])):
        assert equal(env.step(action), other.step(3))
    for wrong in (torch.tensor(3.0), torch.tensor(17), 3.0, -1, np.array([1, 2]), "noop", None):
        with pytest.raises(ValueError, match="an action is an integer"):
            env.step(wrong)
    venv = make_vec("crafter", num_envs=2, obs="symbols")
    venv.reset()
    venv.step(torch.tensor([3, 4]))


def test_other_code_finds_what_the_package_has():
    from crafter import Env
    stock = Env(size=(96, 80), seed=1)
    env, slow = (gymnasium.make(NAME, obs="both", size=(96, 80), engine=engine) for engine in ("fast", "reference"))
    assert env.unwrapped.action_names == list(stock.action_names)
    assert env.unwrapped.area == tuple(stock._area) and env.unwrapped.size == tuple(stock._size)
    seen = env.reset(seed=5)[0]
    assert seen["pixels"].shape == stock.reset().shape == env.observation_space["pixels"].shape
    assert equal(seen, slow.reset(seed=5)[0])
    for action in ACTIONS[:230].tolist():                                           # into the night
        told = env.step(action)
        assert equal(told, slow.step(action))
        if told[2]:
            assert equal(env.reset(), slow.reset())
    state = env.unwrapped.get_state()
    assert equal(env.unwrapped.set_state(state), told[0])
    assert gymnasium.make(NAME, size=32).reset(seed=1)[0].shape == (32, 32, 3)
    for wrong, why in (({"area": (32, 32)}, "64 x 64 cells"), ({"size": 3}, "number of pixels"),
                       ({"size": "large"}, "number of pixels"), ({"area": 64}, "64 x 64 cells")):
        with pytest.raises(ValueError, match=why):
            CrafterEnv(**wrong)


def test_what_exists_only_compiled_says_so():
    code = """
from envgen_nb.game.simulator import make_vec
make_vec("crafter", num_envs=1, obs="symbols", engine="reference").reset()
try:
    make_vec("crafter", num_envs=1)
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "NUMBA_DISABLE_JIT" in done.stdout and "engine='reference'" in done.stdout


def test_heist_is_copied_between_two_of_its_levels():
    if not procgen_package():
        pytest.skip("Procgen is not installed")
    venv = HeistVectorEnv(num_envs=2, seed=1, length=7, autoreset_mode="NextStep", copy=False)
    venv.reset()
    rows = np.random.default_rng(0).integers(15, size=(40, 2))
    for row in rows[:7]:
        seen, _, _, truncated, _ = venv.step(row)
    assert truncated.all()
    copied = copy.deepcopy(venv)
    assert np.array_equal(copied._games.pictures, seen)
    assert all(equal(copied.step(row)[:4], venv.step(row)[:4]) for row in rows[7:])
