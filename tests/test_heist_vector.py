"""Heist in the real Procgen: the ordinary game untouched, objectives followed exactly, and the contract kept."""

import subprocess
import sys

import numpy as np
import pytest
from speed_sim import plain_heist

from envgen_nb.game import conformance
from envgen_nb.game.simulator import get_simulator
from envgen_nb.simulators.heist.game import procgen_package
from envgen_nb.simulators.heist.state import KEY, LOCK, read_state
from envgen_nb.simulators.heist.vector import OBJECTIVES, HeistVectorEnv
from envgen_nb.simulators.heist.world import HardHeistWorld, HeistWorld

if not procgen_package():
    pytest.skip("there is no build of Procgen for this machine", allow_module_level=True)

MIXED = (None, HeistWorld(maze_size=3, locks=1), HeistWorld(maze_size=5, locks=3, keys_held=2),
         HeistWorld(gem_distance="near", look="fixed"))


def test_it_is_played_where_the_old_gym_is_not_installed():
    """As after `make run`: only what tests need installs it."""
    code = "import sys; sys.modules['gym'] = None; import envgen_nb; envgen_nb.make_vec('heist', num_envs=1).reset()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode, threads", [("easy", 1), ("easy", 2), ("hard", 1)])
def test_the_ordinary_game_is_procgens_own(mode, threads):
    venv = HeistVectorEnv([None, HeistWorld()], 16, seed=5, mode=mode, num_threads=threads)
    games, step = plain_heist(16, 5, mode)
    rng, ends = np.random.default_rng(0), 0
    venv.reset()
    assert venv.get_state()[3].endswith(games.get_state()[3])
    for row in rng.integers(15, size=(1200, 16)).astype(np.int32):
        obs, rewards, terminated, truncated, _ = venv.step(row)
        seen, theirs, first = step(row)
        assert np.array_equal(obs, seen) and np.array_equal(rewards, theirs)
        assert np.array_equal(terminated | truncated, first) and np.array_equal(terminated, theirs > 0)
        ends += first.sum()
    assert ends > 16 and venv.get_state()[3].endswith(games.get_state()[3])


@pytest.mark.parametrize("mode", ["easy", "hard"])
def test_objectives_are_those_of_the_whole_state_at_every_step(mode):
    venv, rng, seen = HeistVectorEnv(MIXED, 12, seed=3, mode=mode), np.random.default_rng(1), np.zeros(7, int)
    venv.reset()
    lying = [None] * 12                               # keys and locks of the current level, from the whole state

    def things(i):
        entities = read_state(venv._games.get_state(i)).entities
        return {(int(e["type"]), int(e["image_theme"])) for e in entities if e["type"] in (KEY, LOCK)}

    for row in rng.integers(15, size=(900, 12)):
        for i in range(12):
            lying[i] = lying[i] or things(i)
        *_, infos = venv.step(row)
        ended = infos.get("_results", np.zeros(12, bool))
        for i in range(12):
            if ended[i]:
                seen += infos["results"]["unlocked"][i]
                lying[i] = None
                continue
            gone = lying[i] - things(i)
            assert {3 * (kind == LOCK) + theme for kind, theme in gone} == set(np.flatnonzero(venv._unlocked[i]))
            possible = {3 * (kind == LOCK) + theme for kind, theme in lying[i]} | {6}
            assert possible == set(np.flatnonzero(infos["possible"][i]))
    assert seen[0] and seen[3] and seen[6]


def test_it_keeps_the_contract():
    setup = conformance.Setup(get_simulator("heist"), "pixels", MIXED[:2])
    for name, check in conformance.CHECKS.items():
        if name not in ("things", "arguments"):
            check(setup)
            setup.close()


def test_a_gem_ends_an_episode_and_a_limit_cuts_it():
    venv = HeistVectorEnv([HeistWorld(maze_size=3)], 64, seed=0, length=50)
    venv.reset()
    rng, kinds = np.random.default_rng(0), {True: 0, False: 0}
    for row in rng.integers(15, size=(300, 64)):
        _, rewards, terminated, truncated, infos = venv.step(row)
        assert not (terminated & truncated).any() and np.array_equal(rewards, np.where(terminated, 10.0, 0.0))
        if "results" in infos:
            results = infos["results"]
            assert (results["length"][truncated] == 50).all() and (results["length"][terminated] <= 50).all()
            assert np.array_equal(results["unlocked"][infos["_results"], 6], terminated[infos["_results"]])
            kinds[True] += terminated.sum()
            kinds[False] += truncated.sum()
    assert min(kinds.values()) > 20


def test_the_ordinary_levels_do_not_depend_on_what_was_played_between_them():
    "Episode 4 is Procgen's fourth level: after own levels, dropped ones, a quota and a state from another seed."
    n, still = 3, np.full(3, 4)

    def fourth(*worlds, saved=False):
        "Four episodes, each dropped for the next, in worlds by their index: 0 is the ordinary game."
        states = []
        for number, world in enumerate(worlds):
            if number == 0 or saved:
                venv = HeistVectorEnv([None, HeistWorld(maze_size=3)], n, seed=9 - number, length=5)
            if states and saved:
                venv.set_state(states)
            venv.assign(dict.fromkeys(range(n), world), now=number > 0)
            obs = venv.step(still)[0] if number else venv.reset()[0]
            states = venv.get_state()
        return obs

    usual = HeistVectorEnv([None], n, seed=9, length=5)
    for _ in range(4):
        level = usual.reset()[0]
    seen = usual.step(still)[0]
    assert all(np.array_equal(fourth(*worlds), seen) for worlds in ((0, 1, 0, 0), (0, 1, 1, 0), (1, 1, 1, 0)))
    assert np.array_equal(fourth(1, 0, 1, 0, saved=True), seen) and not np.array_equal(fourth(0, 0, 0, 1), seen)
    quota = HeistVectorEnv([None], n, seed=9, length=5, episodes=3)
    quota.reset()
    for _ in range(100):
        quota.step(still)
    assert quota.finished.all() and np.array_equal(quota.reset()[0], level)


def test_worlds_come_in_the_mode_that_there_is():
    easy, hard = HeistVectorEnv(num_envs=1), HeistVectorEnv(num_envs=1, mode="hard")
    large = HardHeistWorld(maze_size=13)
    assert hard.add_worlds([large]) == range(1, 2)
    with pytest.raises(ValueError, match="maze_size 13 does not fit"):
        easy.add_worlds([None, large])
    assert easy.worlds == (None,) and easy.lengths == (1000,)


def test_states_of_another_mode_are_refused():
    hard, easy = (HeistVectorEnv(num_envs=2, mode=mode) for mode in ("hard", "easy"))
    hard.reset(), easy.reset()
    with pytest.raises(ValueError, match="sub-environment 0.*another mode"):
        easy.set_state(hard.get_state())


@pytest.mark.parametrize("world", [HeistWorld(goal="collect_key_1"), HeistWorld(maze_size=3, locks=1)])
def test_a_goal_cuts_an_episode_and_changes_nothing_before(world):
    """Beside the same world without a goal: equal until it is reached, and what is seen last is what that one shows."""
    n, goal = 12, OBJECTIVES.index(world.goal or "open_lock_1")
    cut = HeistVectorEnv([world.model_copy(update={"goal": OBJECTIVES[goal], "length": 90})], n, seed=4, length=600)
    whole = HeistVectorEnv([world.model_copy(update={"goal": None})], n, seed=4, length=90)
    assert np.array_equal(cut.reset()[0], whole.reset()[0]) and cut.lengths == (90,)
    rng, together, reached = np.random.default_rng(2), np.ones(n, bool), 0
    for t, row in enumerate(rng.integers(9, size=(400, n))):
        if t == 200:                                                        # saved in the middle, and gone on with
            states = cut.get_state()
            cut.step(row)
            cut.set_state(states)
        obs, rewards, terminated, truncated, infos = cut.step(row)
        seen, other_rewards, _, other_truncated, _ = whole.step(row)
        at_goal = truncated & infos["results"]["unlocked"][:, goal] if truncated.any() else truncated
        assert np.array_equal(rewards[together], other_rewards[together])
        for i in np.flatnonzero(at_goal & together & ~other_truncated):
            assert np.array_equal(infos["final_obs"][i], seen[i]) and not terminated[i]
            assert infos["results"]["length"][i] <= 90 and whole.unlocked[i, goal]
            reached += 1
        together &= ~at_goal
        assert np.array_equal(obs[together], seen[together])
    assert reached >= 4
    cut.close()
    whole.close()


def test_what_holds_is_what_the_state_says():
    """Keys in the bag and locks that are gone, of levels that have them."""
    venv, rng = HeistVectorEnv(MIXED, 12, seed=3), np.random.default_rng(1)
    venv.reset()
    seen = np.zeros(6, int)
    for row in rng.integers(15, size=(250, 12)):
        venv.step(row)
        for i, holds in enumerate(venv.conditions()):
            state = read_state(venv._games.get_state(i))
            held = {k for k in range(len(state.has_keys)) if state.has_keys[k]}
            locks = {int(e["image_theme"]) for e in state.entities if e["type"] == LOCK}
            assert {k for k in range(3) if holds[k]} == held and {k for k in range(3) if not holds[3 + k]} == locks
            seen += holds
    assert seen[0] and seen[1] and seen[3]
    venv.close()
