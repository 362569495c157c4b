"""The compiled engine against the reference: every kind of play, every setting, bounds checks, made-up worlds."""

import os
import random
import subprocess
import sys
from pathlib import Path

import crafter_parity
import numpy as np
import pytest
from crafter_parity import REGIMES, Difference, FastGame, Pair, choices, made, play, play_game
from crafter_records import differences, record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envgen_nb.game.world import parameters
from envgen_nb.simulators.crafter.fast.records import broken, compact
from envgen_nb.simulators.crafter.fast.state import GAME
from envgen_nb.simulators.crafter.reference import ACTIONS, LENGTH, OBJECTIVES, Game
from envgen_nb.simulators.crafter.world import MOMENTS, THINGS, ExtendedCrafterWorld

# Bounds checks.

BOUNDS = """
import numba, sys
import numpy as np
from envgen_nb.simulators.crafter.fast.compile import FOLDER, compiled, inner

@inner
def at(values, i):
    return values[i]

@compiled
def read(values, i):
    return at(values, i)

assert numba.config.BOUNDSCHECK and FOLDER.is_relative_to(sys.argv[1]) and not any(FOLDER.iterdir())
try:
    read(np.zeros(3), 3)
except IndexError:
    print("a read out of bounds is noticed")
sys.path.insert(0, "tests")
import crafter_parity
for number in range(len(crafter_parity.REGIMES)):
    crafter_parity.play_game(number, seed=1, most=120)
passed, refused = crafter_parity.play_garbled(3000)
assert passed > 100 and refused > 100, (passed, refused)
print("no difference;", "compiled here" if any(FOLDER.rglob("*.nbi")) else "taken from elsewhere")
"""


@pytest.mark.long
def test_nothing_is_read_or_written_out_of_bounds(tmp_path):
    "Every kind of play, and records with wrong numbers, in an empty cache: code from a cache would be without checks."
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", BOUNDS, tmp_path], env=environment, text=True, capture_output=True,
                          cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["a read out of bounds is noticed", "no difference; compiled here"]


# Every kind of play.

def test_a_few_steps_in_all_regimes_without_a_difference():
    "Every kind of play, by pixels and by symbols."
    total = play(4_000)
    assert total.steps >= 4_000 and set(total.regimes) == set(REGIMES), total


@pytest.mark.long
def test_many_steps_in_all_regimes_without_a_difference():
    """Among them a whole episode of 10,000 steps, both ends, all achievements, and every value of every parameter.

    Two have more than twenty values each, moments and goals: of these it is most, and the tests below try them all."""
    total = play(34_000)
    assert total.steps >= 34_000 and len(total.seeds) >= 60 and set(total.regimes) == set(REGIMES), total
    assert total.longest > LENGTH and total.ends["died"] > 10 and total.ends["over"] > 3, total.ends
    assert total.unlocked == set(OBJECTIVES)
    for parameter in parameters(ExtendedCrafterWorld):
        values = {(*parameter.path, value) for value in (parameter.choices if parameter.many else choices(parameter))}
        most = len(values) / 2 if parameter.name in ("start_from", "goal") else 0
        assert len(values - total.values) <= most, values - total.values


def test_every_setting_by_itself():
    "Each value of each parameter with nothing else set, and all sets of up to four things near the player."
    for number, world in enumerate(crafter_parity.single_worlds()):
        pair = Pair(world, seed=number, view="symbols")
        pair.begin()
        for action in (1, 5, 3):
            pair.step(action)


# From a moment of another episode.

def test_both_start_from_a_moment_alike(long):
    "Of any game, at any time and place, with all that a world may change; and then they play on alike."
    played = [crafter_parity.play_restart(number) for number in range(200 if long else 8)]
    assert sum(steps for _, _, steps in played) > 20 * len(played)
    if long:
        numbers = [numbers for numbers, _, _ in played]
        assert len({one.moment for one in numbers}) == len(MOMENTS) and any(one.timed for one in numbers)
        assert {thing for one in numbers for thing in one.near} == set(THINGS)
        assert any(one.goal for one in numbers) and any(one.achieved for one in numbers)
        assert any(min(place) < 3 or max(place) > 60 for _, place, _ in played)          # at the edge of the map


# After the end.

@pytest.mark.parametrize("view", ["pixels", "symbols"])
def test_both_play_on_alike_after_the_end(view):
    "After the step limit, after death by lava, and back to life when health grows again."
    pair = Pair(None, seed=4, length=5, view=view)
    pair.begin()
    assert [pair.step(action)[2] for action in (1, 2, 3, 4, 5, 1, 2, 3)] == 4 * [False] + 4 * [True]

    pair = Pair(None, seed=5, view=view)
    pair.begin()
    pair.edit(lambda game: crafter_parity.lay(game, tuple((game._player.pos + (1, 0)).tolist()), "lava"))
    assert pair.step(ACTIONS.index("move_right"))[1]
    assert all(pair.step(step % 2 * 5)[1] for step in range(20))           # dead, it stands in the lava
    died = [pair.step(0)[1] for _ in range(40)]
    assert died[0] and not died[-1]
    pair.begin()
    assert pair.reference._player.health == 9


# Worlds and actions made up at random.

SECTIONS = {parameter.path: st.sampled_from(choices(parameter)) for parameter in parameters(ExtendedCrafterWorld)}
WORLDS = st.none() | st.dictionaries(st.sampled_from(sorted(SECTIONS)), st.none(), max_size=12).flatmap(
    lambda keys: st.fixed_dictionaries({path: SECTIONS[path] for path in keys})).map(made)
RUNS = st.lists(st.tuples(st.integers(0, len(ACTIONS) - 1), st.integers(1, 6)), max_size=25)


@given(WORLDS, st.integers(0, 2 ** 62), RUNS, st.integers(0, 60), st.sampled_from(["pixels", "symbols"]))
@settings(print_blob=True, suppress_health_check=list(HealthCheck))
def test_any_world_any_seed_any_actions(world, seed, runs, length, view):
    pair = Pair(world, seed, length or LENGTH, view)
    for _ in range(2):
        pair.begin()
        for action, times in runs:
            for _ in range(times):
                pair.step(action)


@given(st.integers(0, 2 ** 32), st.lists(st.sampled_from(sorted(REGIMES)), min_size=1, max_size=6), RUNS)
@settings(print_blob=True, suppress_health_check=list(HealthCheck))
def test_any_changes_by_hand_one_upon_the_other(seed, names, runs):
    "What the regimes do to a game, in any order, without an end in between."
    rng, pair = random.Random(seed), Pair(crafter_parity.covering_world(seed), seed)
    pair.begin()
    for name in names:
        if REGIMES[name].change:
            pair.edit(REGIMES[name].change, rng, gaps=rng)
        for action, times in runs[:8]:
            for _ in range(times):
                if pair.reference._step < LENGTH:
                    pair.step(action)


# The checks themselves: they notice what they are for.

def busy_record():
    "A reference game with much in it, and its record."
    game, rng = Game(seed=8), random.Random(8)
    game.begin()
    for change in (crafter_parity.crowd, crafter_parity.plant_garden, crafter_parity.shoot):
        change(game, rng)
    return game, record_of(game)


BUSY = busy_record()
BOOKS = {"fresh", "played", "total", "moments", "harm"}            # what the engine keeps for itself


@given(st.data())
@settings(print_blob=True)
def test_any_changed_number_is_a_difference(data):
    "One number that means something is changed in a record: `differences` says so."
    game, record = BUSY
    name = data.draw(st.sampled_from(sorted(set(GAME.names) - BOOKS - {"slots"})))
    at = tuple(data.draw(st.integers(0, min(side, int(record["slots"]) + 1) - 1)) for side in record[name].shape)
    if name in ("x", "y", "kind", "health", "facing", "count", "after", "before"):
        at = (data.draw(st.integers(1 if name != "health" else 2, int(record["slots"]))),)
    elif name == "order":
        at = (data.draw(st.integers(0, int(record["entered"]) - 1)),)
    changed = record.copy()
    changed[name][at] = not record[name] if record[name].dtype == bool else record[name][at] ^ 1 \
        if record[name].dtype.kind in "iu" else record[name][at] + 0.5
    assert differences(game, changed), (name, at)


def test_what_is_not_called_broken_can_be_played():
    "Numbers of a record are replaced by others: it is refused, or played without harm. (With bounds checks: above.)"
    passed, refused = crafter_parity.play_garbled(2000, seed=1)
    assert passed > 100 and refused > 100


def test_noise_instead_of_a_record_is_refused():
    noise = np.frombuffer(np.random.default_rng(0).bytes(GAME.itemsize), GAME)[0]
    assert broken(noise) and broken(np.zeros((), GAME)) and broken(np.full((), 255, np.uint8).repeat(
        GAME.itemsize).view(GAME)[0])


def test_empty_slots_change_nothing():
    "The same game with its objects spread over all 4096 slots is the same game, and comes back compact."
    game, record = BUSY
    for seed in range(20):
        gaps = crafter_parity.spread(record, random.Random(seed))
        assert broken(gaps) == "" and differences(game, gaps) == []
        assert compact(gaps).tobytes() == record.tobytes()


def test_a_difference_says_where_it_was_found_and_how_to_find_it_again(monkeypatch, capsys):
    class Wrong(FastGame):
        def advance(self, action):
            outcome = super().advance(action)
            self.record["hunger"] += self.record["step"] == 7
            return outcome

    monkeypatch.setattr(crafter_parity, "FastGame", Wrong)
    with pytest.raises(Difference, match=r"hunger: 7\.0, not 8\.0\n.*step 7, action") as found:
        play_game(0)
    assert "--seed 0 --game 0" in str(found.value)
    monkeypatch.setattr(sys, "argv", ["crafter_parity.py", "--steps", "10"])
    assert crafter_parity.main() == 1 and "hunger" in capsys.readouterr().out
