"""States of the real Procgen: read and written without a change of a byte, and taken back by the game."""

import numpy as np
import pytest

from envgen_nb.simulators.heist.game import _PACKAGES, Games, procgen_package
from envgen_nb.simulators.heist.state import GEM, MODES, PLAYER, StateError, read_state, write_state

if not procgen_package():
    pytest.skip("there is no build of Procgen for this machine", allow_module_level=True)


@pytest.mark.parametrize("mode", MODES)
def test_reading_and_writing_changes_nothing(mode):
    games, rng, seen = Games(64, 1, mode), np.random.default_rng(0), set()
    for _ in range(6):
        for data in (games.get_state(i) for i in range(64)):
            state = read_state(data)
            assert write_state(state) == data
            assert state.options["distribution_mode"] == MODES[mode] and (state.entities["type"] == GEM).sum() == 1
            seen.add(data)
        for _ in range(40):
            games.act(rng.integers(15, size=64).astype(np.int32))
    assert len(seen) > 340


def test_what_is_written_is_played():
    "The player is put onto the gem: with the next step the level is complete."
    games = Games(2, 1)
    state = read_state(games.get_state(0))
    gem = state.entities[state.entities["type"] == GEM][0]
    assert state.entities["type"][0] == PLAYER
    state.entities["x"][0], state.entities["y"][0] = gem["x"], gem["y"]
    data = write_state(state)
    games.set_state(0, data)
    assert games.get_state(0) == data
    games.act(np.array([4, 4], np.int32))                   # stand still
    assert games.rewards.tolist() == [10, 0] and games.first.tolist() == [True, False]


def test_other_games_are_refused():
    with pytest.raises(StateError, match="'maze', not of heist"):
        read_state(_PACKAGES[procgen_package()](1, env_name="maze", distribution_mode="easy").get_state(0))
