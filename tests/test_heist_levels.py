"""Ten thousand levels of random worlds: each can be solved, and in one order only."""

import functools
import itertools

import numpy as np
import pytest
from forms import first

from envgen_nb.game.world import check_world
from envgen_nb.simulators.heist.levels import Level, make_level, solve
from envgen_nb.simulators.heist.world import MAZE_SIZES, HardHeistWorld, HeistWorld, void_settings

CHOICES = {"maze_size": MAZE_SIZES, "locks": (0, 1, 2, 3), "keys_held": (0, 0, 1, 2, 3),
           "gem_distance": ("near", "any", "far"), "start": ("near key", "far from key"),
           "loops": ("none", "few", "many"), "dead_ends": ("kept", "pruned")}


def random_world(rng):
    "A world that can be built, with some settings left out."
    while True:
        settings = {name: values[rng.randint(len(values))] for name, values in CHOICES.items() if rng.rand() < 0.7}
        world, _ = check_world(HardHeistWorld, settings)
        if world:
            return world


@pytest.mark.parametrize("seed", first(4, range(10)))
def test_every_level_is_solved_in_its_order_only(seed):
    rng = np.random.RandomState(seed)
    for _ in range(1000):
        world = random_world(rng)
        level = make_level(world, rng, largest=13)
        solution = solve(level)
        held = sum(key is None for key in level.keys)
        assert held == (world.keys_held or 0) and all(key is None for key in level.keys[:held])
        intended = [f"{what} {i + 1}" for i in range(len(level.locks)) for what in ("key", "lock")
                    if what == "lock" or i >= held]
        assert list(solution.order) == [*intended, "gem"]
        for lock in range(len(level.locks)):
            assert solve(level, frozenset({lock})) is None
        things = [level.start, level.gem, *level.locks, *(key for key in level.keys if key is not None)]
        assert len(set(things)) == len(things) and all(level.open[y, x] for x, y in things)
        x, y = level.start
        around = [(x + dx, y + dy) for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))]
        ways = [(a, b) for a, b in around if 0 <= min(a, b) and max(a, b) < len(level.open) and level.open[b, a]]
        assert any(way not in level.locks[held:] for way in ways), "boxed in"


def test_the_same_number_gives_the_same_level():
    first, again, other = (make_level(HeistWorld(maze_size=9, locks=2), np.random.RandomState(s)) for s in (1, 1, 2))
    assert np.array_equal(first.open, again.open) and first.locks == again.locks and first.keys == again.keys
    assert not np.array_equal(first.open, other.open)


def test_loops_open_and_pruning_closes():
    def openings(**settings):
        return np.mean([make_level(HeistWorld(maze_size=9, locks=1, **settings), np.random.RandomState(i)).open.sum()
                        for i in range(50)])
    assert openings(loops="none") == 49 < openings(loops="few") < openings(loops="many")
    assert openings(dead_ends="pruned") < 40


@functools.cache
def measured(world, setting, seed):
    "What a setting is about, in the level of a seed."
    level = make_level(world, np.random.RandomState(seed))
    if setting in ("loops", "dead_ends"):
        return int(level.open.sum())
    tile = level.gem if setting == "gem_distance" else next(key for key in level.keys if key)
    return len(solve(Level(level.open, level.start, tile, (), ())).path)


@pytest.mark.parametrize("size", [3, 5])
def test_a_setting_is_void_exactly_where_the_levels_are_the_same_without_it(size):
    values = [("loops", "few"), ("loops", "many"), ("dead_ends", "pruned"), ("gem_distance", "near"),
              ("gem_distance", "far"), ("start", "near key"), ("start", "far from key")]
    for locks, held, (setting, value) in itertools.product((None, 0, 1, 2, 3), (0, 1, 2, 3), values):
        data = {"maze_size": size, "keys_held": held} | ({} if locks is None else {"locks": locks})
        bare, with_it = check_world(HeistWorld, data)[0], check_world(HeistWorld, data | {setting: value})[0]
        if bare is None or with_it is None or (setting == "start" and locks is None):    # with `start` come locks
            continue
        same = all(measured(bare, setting, seed) == measured(with_it, setting, seed) for seed in range(100))
        assert [warning.field for warning in void_settings(with_it)] == [setting] * same, str(with_it)
