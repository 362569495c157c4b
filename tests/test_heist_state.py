"""States of the real Procgen: read and written without a change of a byte, and taken back by the game."""

import numpy as np
import pytest

from envgen_nb.heist.state import GEM, MODES, PLAYER, StateError, read_state, write_state

procgen = pytest.importorskip("procgen")


def game(mode="easy", num=64, seed=1, name="heist"):
    return procgen.ProcgenGym3Env(num=num, env_name=name, distribution_mode=mode, rand_seed=seed, num_threads=0)


@pytest.mark.parametrize("mode", MODES)
def test_reading_and_writing_changes_nothing(mode):
    env, rng, seen = game(mode), np.random.default_rng(0), set()
    for _ in range(6):
        for data in env.get_state():
            state = read_state(data)
            assert write_state(state) == data
            assert state.options["distribution_mode"] == MODES[mode] and (state.entities["type"] == GEM).sum() == 1
            seen.add(data)
        for _ in range(40):
            env.act(rng.integers(15, size=64).astype(np.int32))
    assert len(seen) > 340


def test_what_is_written_is_played():
    "The player is put onto the gem: with the next step the level is complete."
    env = game(num=2)
    state = read_state(env.get_state()[0])
    gem = state.entities[state.entities["type"] == GEM][0]
    assert state.entities["type"][0] == PLAYER
    state.entities["x"][0], state.entities["y"][0] = gem["x"], gem["y"]
    data = write_state(state)
    env.call_c_func("set_state", 0, data, len(data))
    assert env.get_state()[0] == data
    env.act(np.array([4, 4], np.int32))                     # stand still
    reward, _, first = env.observe()
    assert reward.tolist() == [10, 0] and first.tolist() == [True, False]
    assert env.get_info()[0]["prev_level_complete"]


def test_other_games_are_refused():
    with pytest.raises(StateError, match="'maze', not of heist"):
        read_state(game(name="maze", num=1).get_state()[0])
