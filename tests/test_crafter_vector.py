"""The vector environment under real faults: interrupts, broken states, bad input."""

import contextlib
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envgen_nb
from envgen_nb.game import conformance
from envgen_nb.game.world import check_world
from envgen_nb.simulators.crafter.env import CrafterEnv
from envgen_nb.simulators.crafter.games import EngineSpec, pack_game, unpack_game
from envgen_nb.simulators.crafter.reference import ACTIONS, OBJECTIVES, Game
from envgen_nb.simulators.crafter.simulator import Crafter
from envgen_nb.simulators.crafter.spaces import KnownWorld
from envgen_nb.simulators.crafter.vector import ENGINES, CrafterVectorEnv, base_seeds
from envgen_nb.simulators.crafter.world import (
    CrafterWorld,
    EnvironmentSettings,
    ExtendedCrafterWorld,
    InventorySettings,
    Meaning,
    Objective,
)

MOUNTAIN = CrafterWorld(environment_settings=EnvironmentSettings(target_biome="mountain"),
                        inventory_settings=InventorySettings(wood_pickaxe=1))
SLOW = {"engine": "reference"}


def actions(steps, num_envs, seed=0):
    return np.random.default_rng(seed).integers(17, size=(steps, num_envs))


def test_it_is_many_single_environments():
    "Each sub-environment plays what a single environment with its base seed and world plays."
    rows = actions(60, 3, seed=1)
    venv = CrafterVectorEnv([None, MOUNTAIN], 3, 9, "pixels", length=25, **SLOW)
    singles = [CrafterEnv(world, length=25, engine="reference") for world in (None, MOUNTAIN, None)]
    obs, _ = venv.reset()
    for i, (env, seed) in enumerate(zip(singles, base_seeds(9, 3), strict=True)):
        assert np.array_equal(obs[i], env.reset(seed=seed)[0])
    total = np.zeros(3)
    for row in rows:
        obs, rewards, terminated, truncated, infos = venv.step(row)
        for i, env in enumerate(singles):
            last, reward, dead, over, info = env.step(int(row[i]))
            total[i] += reward
            assert (reward, dead, over) == (rewards[i], terminated[i], truncated[i])
            if dead or over:
                assert infos["_final_obs"][i] and np.array_equal(infos["final_obs"][i], last)
                assert infos["results"]["return"][i] == pytest.approx(total[i])
                assert infos["results"]["world"][i] == i % 2
                unlocked = [info["achievements"][name] > 0 for name in OBJECTIVES]
                assert infos["results"]["unlocked"][i].tolist() == unlocked
                last, info = env.reset()
                total[i] = 0
            assert np.array_equal(obs[i], last)
            assert infos["position"][i].tolist() == info["player_pos"].tolist()
            assert infos["inventory"][i].tolist() == list(info["inventory"].values())
            assert infos["achievements"][i].tolist() == [info["achievements"][name] for name in OBJECTIVES]
    venv.close()


@pytest.mark.long
def test_the_contract_holds_with_the_reference():
    setup = conformance.Setup(Crafter(), "symbols", (None, MOUNTAIN), options=SLOW)
    for name in ("each step, each episode", "states", "states with a quota"):
        conformance.CHECKS[name](setup)
        setup.close()


def test_an_interrupted_step_leaves_a_usable_environment(monkeypatch):
    "Ctrl-C between two games: the next step is refused, and from a saved state everything is as it was."
    venv = CrafterVectorEnv(num_envs=3, obs="symbols", **SLOW)
    venv.reset(seed=4)
    states = venv.get_state()
    reference = [venv.step(row)[1].copy() for row in actions(5, 3)]
    venv.set_state(states)
    advance, played = Game.advance, []

    def interrupt(game, action):
        played.append(game)
        if len(played) == 2:
            raise KeyboardInterrupt
        return advance(game, action)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Game, "advance", interrupt)
        venv.step([0, 0, 0])
    with pytest.raises(RuntimeError, match="reset"):
        venv.step([0, 0, 0])
    venv.set_state(states)
    assert all(np.array_equal(venv.step(row)[1], was) for row, was in zip(actions(5, 3), reference, strict=True))
    venv.close()
    for attempt in (venv.reset, lambda: venv.set_state(states), lambda: venv.step([0, 0, 0])):
        with pytest.raises(RuntimeError, match="closed"):
            attempt()


# Saved states.

def test_a_long_game_comes_back_through_a_night_in_another_kind_of_observation():
    "States do not depend on the kind of observation."
    rows = actions(260, 2, seed=5)
    rows[rows == 6] = 0
    venv = CrafterVectorEnv([MOUNTAIN], 2, 0, "symbols", **SLOW)
    other = CrafterVectorEnv([MOUNTAIN], 2, 0, "pixels", **SLOW)
    venv.reset()
    for row in rows[:200]:
        venv.step(row)
    other.set_state(venv.get_state())
    for row in rows[200:]:
        ours, theirs = venv.step(row), other.step(row)
        assert all(np.array_equal(a, b) for a, b in zip(ours[1:4], theirs[1:4], strict=True))
        assert np.array_equal(ours[4]["position"], theirs[4]["position"])
    assert other.get_state() == venv.get_state()
    assert np.array_equal(other.set_state(other.get_state()), other._see(other._engine.now))
    venv.close(), other.close()


def test_a_full_quota_comes_back():
    venv = CrafterVectorEnv(num_envs=2, obs="symbols", length=3, episodes=1, **SLOW)
    venv.reset()
    last = [venv.step([1, 2]) for _ in range(4)][-1][0]
    last = {name: part.copy() for name, part in last.items()}
    states = venv.get_state()
    venv.reset()
    assert not venv.finished.any()
    obs = venv.set_state(states)
    assert venv.finished.all() and all(np.array_equal(obs[name], last[name]) for name in obs)
    _, rewards, terminated, truncated, infos = venv.step([5, 5])
    assert not (rewards.any() or terminated.any() or truncated.any()) and "results" not in infos
    assert venv.get_state() == states


def test_states_that_do_not_fit_are_refused_and_nothing_is_touched():
    def made(world=None, **changes):
        venv = CrafterVectorEnv([world], 2, obs="symbols", **({"length": 50} | SLOW | changes))
        venv.reset()
        venv.step([5, 5])
        return venv

    venv = made()
    states, other = venv.get_state(), made(MOUNTAIN).get_state()
    flipped = states[1][:20] + bytes([states[1][20] ^ 1]) + states[1][21:]
    for wrong, why in [([states[0], other[1]], "sub-environment 1.*another world"),
                       (made(length=51).get_state(), "another step limit"),
                       (made(episodes=2).get_state(), "another number of episodes"),
                       ([states[0], flipped], "sub-environment 1.*broken"), ([b"", b""], "not a saved"),
                       ([b"crafter9" + states[0][8:]] * 2, "not a saved"), (states[:1], "need 2 states"),
                       ([states[0], "text"], "expected bytes")]:
        with pytest.raises(ValueError, match=why):
            venv.set_state(wrong)
        assert venv.get_state() == states
    venv.step([1, 1])


def test_a_state_names_the_world_that_is_not_known_here():
    "A fresh environment with the same worlds takes it, in whichever order they came to be known."
    for engine in (SLOW, {"engine": "fast"}):
        venv, fresh, poor, other = (CrafterVectorEnv(worlds, 2, obs="symbols", length=50, **engine) for worlds in (
            [None], [None, MOUNTAIN], [None], [None, None]))
        (mountain,) = venv.add_worlds([MOUNTAIN], 50)
        venv.reset()
        venv.step([5, 5])
        venv.assign({1: mountain}, now=True)
        venv.assign({0: mountain, 1: 0})
        states = venv.get_state()
        fresh.set_state(states)
        assert fresh.running["world"].tolist() == [0, 1] and fresh.assigned.tolist() == [1, 0]
        assert fresh.get_state() == states
        with pytest.raises(ValueError, match="sub-environment 0 cannot be used: it is about world 1"):
            poor.set_state(states)
        with pytest.raises(ValueError, match="sub-environment 0 cannot be used: .*another next world"):
            other.set_state(states)
        for one in (venv, fresh, poor, other):
            one.close()


@given(st.data())
def test_no_bytes_but_saved_ones_are_taken_for_a_state(data):
    spec, game = EngineSpec([KnownWorld(0, Meaning(), 100)], (7,), "symbols"), Game(seed=7)
    game._episode, game._actions = 3, bytearray(range(17))
    good = pack_game(spec, 0, 0, False, game)
    assert unpack_game(spec, good)[1:] == (7, 3, 0, bytes(range(17)))
    at = data.draw(st.integers(0, len(good)))
    bad = data.draw(st.one_of(st.binary(max_size=200), st.just(good[:at]), st.binary(min_size=1).map(
        lambda more: good[:at] + more + good[at:])))
    if bad != good:
        with pytest.raises(ValueError):
            unpack_game(spec, bad)


# Seeds and arguments.

def test_neighbouring_seeds_share_nothing():
    seeds = [set(base_seeds(seed, 100)) for seed in range(20)]
    assert len(set.union(*seeds)) == 2000
    assert all(0 <= s < 2 ** 31 for found in seeds for s in found)


@pytest.mark.parametrize("wrong", [
    {"num_envs": 0}, {"num_envs": 2.0}, {"num_envs": True}, {"obs": "smell"}, {"worlds": []}, {"worlds": MOUNTAIN},
    {"worlds": [{"environment_settings": {}}]}, {"worlds": "mountain"}, {"length": 0}, {"length": 10_001},
    {"length": "1"}, {"episodes": 0}, {"episodes": 1.5}, {"num_threads": -1}, {"num_threads": 0}, {"engine": "slow"},
    {"noise": False}, {"noise": 0, "obs": "symbols"}, {"seed": -1}, {"seed": 1.5},
    {"seed": [1, 2, 3]}, {"seed": [1, -2]}, {"seed": "one"}, {"threads": 2}])
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises((TypeError, ValueError)) as error:
        envgen_nb.make_vec("crafter", **({"num_envs": 2} | wrong))
    assert len(str(error.value)) > 30


def test_actions_that_are_none_are_refused_and_the_game_goes_on():
    venv = CrafterVectorEnv(num_envs=2, obs="symbols", **SLOW)
    with pytest.raises(RuntimeError, match="reset"):
        venv.step([0, 0])
    with pytest.raises(RuntimeError, match="reset"):
        venv.render()
    with pytest.raises(RuntimeError, match="reset"):
        venv.get_state()
    venv.reset()
    for wrong in ([0], [[0, 0]], [0.0, 1.0], [True, False], [0, 17], [-1, 0], ["noop", "do"], [None, 0], 3):
        with pytest.raises(ValueError, match="action"):
            venv.step(wrong)
    for right in ([0, 16], np.array([5, 5], np.uint8), (1, 2)):
        venv.step(right)
    with pytest.raises(ValueError, match="options"):
        venv.reset(options={"episode": 3})


def practice(**episode):
    """A world with stones in the bag and water near."""
    world, complaints = check_world(ExtendedCrafterWorld, {
        "inventory_settings": {"stone": 5, "wood_pickaxe": 1}, "start_settings": {"near": ["water"]},
        "episode_settings": episode})
    assert not complaints
    return world


@pytest.mark.parametrize("engine", ENGINES)
def test_what_counts_as_achieved_earns_nothing_and_is_not_counted(engine):
    worlds = [practice(), practice(achieved=["place_stone"]), practice(achieved=["what the bag shows"], length=40)]
    with contextlib.closing(CrafterVectorEnv(worlds, 3, 5, "symbols", 50, engine=engine)) as venv:
        venv.reset()
        rewards = venv.step([ACTIONS.index("place_stone")] * 3)[1]
        assert rewards.tolist() == [1, 0, 1] and venv.lengths == (50, 50, 40)
        placed = OBJECTIVES.index("place_stone")
        assert venv.unlocked[:, placed].tolist() == [True, False, True] and venv.unlocked.sum() == 2
        assert np.array_equal(venv.running["unlocked"], venv.unlocked)
        for _ in range(39):
            infos = venv.step([0, 0, 0])[-1]
        assert infos["_results"].tolist() == [False, False, True] and infos["results"]["length"][2] == 40
        left = {name for name, possible in zip(OBJECTIVES, infos["results"]["possible"][2], strict=True) if possible}
        assert set(OBJECTIVES) - left == {"collect_stone", "collect_wood", "make_wood_pickaxe", "place_table"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_goal_is_the_end(engine):
    """Cut, not died; the next episode begins anew; a state saved in between is a state of that world only."""
    with contextlib.closing(CrafterVectorEnv([practice(goal="place_stone")], 2, 5, "symbols", engine=engine,
                                             num_threads=1)) as venv:
        venv.reset()
        states = venv.get_state()
        for _ in range(2):
            _, rewards, terminated, truncated, infos = venv.step([ACTIONS.index("place_stone"), 0])
            assert (rewards[0], terminated[0], truncated[0]) == (1, False, True) and infos["results"]["length"][0] == 1
            assert not venv.unlocked[0].any()
        venv.set_state(states)
        with contextlib.closing(CrafterVectorEnv([practice()], 2, 5, "symbols", engine=engine)) as other:
            other.reset()
            with pytest.raises(ValueError, match="another world"):
                other.set_state(states)


def test_the_objectives_have_one_order():
    assert get_args(Objective) == OBJECTIVES
