"""The compiled Crafter engine beside the reference, compared in everything after every step, in many kinds of play.

`make parity STEPS=2000000` runs it for as long as one wants. A game is known by its number: which kind of play it is,
in which world, from which seed and with which actions all follow from it, so that a difference can be found again."""

import argparse
import copy
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from crafter_records import differences, record_of

from envgen_nb.game.world import check_world, parameters
from envgen_nb.simulators.crafter.fast.batch import KEPT, STEP
from envgen_nb.simulators.crafter.fast.engine import Engine, prepare
from envgen_nb.simulators.crafter.fast.records import broken
from envgen_nb.simulators.crafter.fast.state import GAME, HEALTH, MOST
from envgen_nb.simulators.crafter.games import EngineSpec
from envgen_nb.simulators.crafter.reference import (
    ACTIONS,
    AREA,
    ITEMS,
    LENGTH,
    OBJECTIVES,
    VIEW,
    Game,
    _place_near,
    constants,
    engine,
    objects,
)
from envgen_nb.simulators.crafter.spaces import KnownWorld
from envgen_nb.simulators.crafter.symbols import symbols
from envgen_nb.simulators.crafter.world import MOMENTS, CrafterWorld, ExtendedCrafterWorld, meaning

ACTION = {name: number for number, name in enumerate(ACTIONS)}
WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))
LIFE = ("health", "food", "drink", "energy")
TOOLS = tuple(name for name in ITEMS if name.endswith(("pickaxe", "sword")))


class Difference(AssertionError):
    "The engine and the reference are not in the same game any more."


# Two games in step.

class FastGame:
    "One game of the compiled engine, with methods like the reference's `Game`; it is looked at in each step."

    def __init__(self, world=None, seed=0, length=LENGTH, view="pixels"):
        prepare()
        self.numbers = meaning(world)
        self.length = self.numbers.length or length
        spec = EngineSpec([KnownWorld(0, self.numbers, self.length)], (seed,),
                          "both" if view == "pixels" else view, next_step=True)
        self.engine = Engine(spec, moments=True)

    @property
    def record(self):
        "The game, () of dtype GAME; what is written into it counts."
        return self.engine.games.reshape(())

    def begin(self, episode=None):
        "Start an episode (from 1; None: the next one), from a moment if one is kept of the world's kind."
        if episode is not None:
            self.record["episode"] = episode - 1
        self.engine._begin([0])

    def advance(self, action):
        "One step, also after the end: the reward, whether the player died, whether the step limit was reached."
        board, record, goal = self.engine.board, self.record, self.numbers.goal
        board["ended"], board["action"] = False, action
        self.engine.play(STEP)
        at = OBJECTIVES.index(goal) if goal else 0
        reached = goal and record["achievements"][at] > 0 and not record["given"][at]
        return (float(board["reward"][0]), bool(record["inventory"][HEALTH] <= 0),
                bool(record["step"] >= self.length or reached))

    def picture(self):
        "The stock observation, (64, 64, 3) uint8, as of the last step."
        return self.engine.now["pixels"][0]

    def symbols(self):
        "What the player sees, in numbers."
        return {name: part[0] for name, part in self.engine.now.items() if name != "pixels"}


class Pair:
    "One game, played by the reference and by the engine; after everything that happens both are compared."

    def __init__(self, world=None, seed=0, length=LENGTH, view="pixels"):
        self.reference, self.engine = Game(world, seed, length), FastGame(world, seed, length, view)
        self.view, self.actions = view, []

    def begin(self, episode=None):
        self.reference.begin(episode)
        self.engine.begin(episode)
        self.actions = []
        self._look()
        self._compare()

    def begin_from(self, other, episode=1):
        "An episode from the moment at which another pair stands."
        self.reference = restarted(other.reference, self.reference._numbers, self.reference._seed, episode,
                                   self.reference._length)
        engine, kind = self.engine.engine, MOMENTS.index(self.engine.numbers.moment)
        engine.moments[kind * KEPT], engine.kept["count"][kind] = other.engine.record, 1
        self.engine.begin(episode)
        self.actions = []
        self._look()
        self._compare()

    def step(self, action):
        "One step of both: the reward, whether the player died, whether the step limit was reached."
        self.actions.append(action)
        wanted, found = self.reference.advance(action), self.engine.advance(action)
        if wanted != found:
            raise Difference(f"reward, death, time limit: {wanted}, not {found}")
        self._look()
        self._compare()
        return wanted

    def edit(self, change, *args, gaps=None):
        "Change the reference game by hand and put the engine into its state; `gaps`: with empty slots, by this random."
        change(self.reference, *args)
        record = record_of(self.reference)
        self.engine.record[...] = record if gaps is None else spread(record, gaps)
        self._compare()

    def _look(self):
        if self.view == "pixels":
            wanted, found = self.reference.picture(), self.engine.picture()
            if wanted.tobytes() != found.tobytes():
                wrong = np.argwhere((wanted != found).any(axis=2))
                row, column = wrong[0]
                raise Difference(f"{len(wrong)} pixels, the first in row {row}, column {column}: "
                                 f"{wanted[row, column]}, not {found[row, column]}")
        else:
            self.reference.skip_picture()
            found = self.engine.symbols()
            for name, wanted in symbols(self.reference).items():
                if wanted.tobytes() != found[name].tobytes() or wanted.dtype != found[name].dtype:
                    raise Difference(f"symbols, {name}: {wanted.tolist()}, not {found[name].tolist()}")

    def _compare(self):
        said = differences(self.reference, self.engine.record)
        if said:
            raise Difference("; ".join(said[:8]))
        if len(self.actions) % 16 == 0 and self.reference._step <= LENGTH and broken(self.engine.record):
            raise Difference(f"the engine's record is said to be broken: {broken(self.engine.record)}")


def restarted(source, numbers, seed, episode, length):
    "What a start from a moment is, in the package's own objects: its world and player, copied and changed."
    game, clock = Game(numbers, seed, length), (source._clock + source._step) % 300
    game._world, game._player = world, player = copy.deepcopy((source._world, source._player))
    game._local_view = engine.LocalView(world, game._textures, list(VIEW))
    game._sem_view = engine.SemanticView(world, [
        objects.Player, objects.Cow, objects.Zombie, objects.Skeleton, objects.Arrow, objects.Plant])
    world.random = np.random.RandomState(hash((seed, episode)) % (2 ** 31 - 1))
    for thing in world.objects:
        thing.random = world.random
    game._episode, game._step, game._clock = episode, 0, numbers.clock if numbers.timed else clock
    game._update_time()
    player.inventory.update(numbers.inventory)
    player._last_health = game._last_health = player.health
    game._given = {name for name in OBJECTIVES if player.achievements[name]} | set(numbers.achieved)
    player.achievements.update({name: int(name in game._given) for name in OBJECTIVES})    # counted from here
    game._unlocked = set(game._given)
    if numbers.near:
        _place_near(world, player, numbers, clearing=False)
    return game


def spread(record, rng):
    "The same game with its objects in other slots, up to the very last: the player in slot 1, the order as it was."
    count, last = int(record["slots"]), rng.choice((int(record["slots"]) + 5, 700, 3500, MOST - 1))
    if count > last:
        return record
    slots = np.array([1, *sorted(rng.sample(range(2, last + 1), count - 1))])
    to, out = np.concatenate([[0], slots]), record.copy()
    for name in ("x", "y", "kind", "health", "facing", "count", "after", "before"):
        out[name] = 0
        out[name][slots] = record[name][1:count + 1]
    for name in ("after", "before", "first", "last", "slot"):
        out[name] = to[out[name]]
    out["slots"] = last
    return out


# Worlds: every value of every parameter.

def choices(parameter):
    "The values that a parameter may have; of a wide range some; for a list of things each alone, and combinations."
    if parameter.many and len(parameter.choices) > 8:
        rng = random.Random(parameter.name)
        drawn = [rng.sample(parameter.choices, rng.randint(2, parameter.high)) for _ in range(40)]
        return [(thing,) for thing in parameter.choices] + [tuple(things) for things in drawn]
    if parameter.many:
        return [things for size in range(1, parameter.high + 1)
                for things in itertools.combinations(parameter.choices, size)]
    wide = parameter.low is not None and parameter.high - parameter.low > 20
    if wide:
        return [parameter.low, parameter.low + 1, 100, 300, parameter.high]
    return list(parameter.choices or range(parameter.low, parameter.high + 1))


def made(settings):
    "The world of settings by (section, name), without what contradicts the rest."
    data = {}
    for (section, name), value in settings.items():
        data.setdefault(section, {})[name] = list(value) if isinstance(value, tuple) else value
    creatures, start = data.get("creature_settings", {}), data.get("start_settings", {})
    if creatures.get("peaceful"):
        creatures.pop("zombies", None), creatures.pop("skeletons", None)
    near = start.get("near", [])
    if creatures.get("cows") == "none" and "cow" in near:
        near.remove("cow")
    if (creatures.get("peaceful") or creatures.get("skeletons") == "none") and "skeleton_tunnel" in near:
        near.remove("skeleton_tunnel")
    if "plant_grown" in start:
        near[:] = [thing for thing in near if thing != "ripe_plant"][:3]
    episode = data.get("episode_settings", {})
    model = ExtendedCrafterWorld if creatures or start or episode else CrafterWorld
    achieved = episode.get("achieved", ())
    if start.get("start_from") == f"after {episode.get('goal')}":  # a goal is not what the moment comes after
        episode.pop("goal")
    if episode.get("goal") in achieved:                            # a goal is not achieved already
        achieved.remove(episode["goal"])
    world, complaints = check_world(model, data)
    if world is None and episode.pop("achieved", None):            # neither does the bag show it
        world, complaints = check_world(model, data)
    assert not complaints, complaints
    return world


def covering_world(number):
    "Worlds with much set, in which each parameter goes through its values at a pace of its own."
    rng, settings = random.Random(f"world {number}"), {}
    for parameter in parameters(CrafterWorld if number % 4 == 0 else ExtendedCrafterWorld):
        values = choices(parameter)
        if parameter.name == "peaceful":
            values = [True, False, False, False, False]
        elif parameter.many:
            values = rng.sample(values, 4)
        turn = (number + sum(map(ord, parameter.name))) % (len(values) + 1)       # one turn in which it is not set
        if turn < len(values):
            settings[parameter.path] = values[turn]
    return made(settings)


def single_worlds():
    "A world for each value of each parameter, with nothing else set."
    for parameter in parameters(ExtendedCrafterWorld):
        for value in choices(parameter):
            yield made({parameter.path: value})


def values_in(world):
    "The (section, name, value) that a world sets; a list counts for each of its things."
    for section, settings in (world.settings() if world else {}).items():
        for name, value in settings.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                yield section, name, one


# Edits: what a game can be put into. All of them on the reference, through the world's own methods.

def around(game, reach, rng):
    "The cells within a reach of the player, but for its own, in random order."
    px, py = game._player.pos.tolist()
    cells = [(x, y) for x in range(max(px - reach, 0), min(px + reach + 1, AREA[0]))
             for y in range(max(py - reach, 0), min(py + reach + 1, AREA[1])) if (x, y) != (px, py)]
    rng.shuffle(cells)
    return cells


def beside(pos):
    "The cells of the map next to one."
    return [(pos[0] + dx, pos[1] + dy) for dx, dy in WAYS
            if 0 <= pos[0] + dx < AREA[0] and 0 <= pos[1] + dy < AREA[1]]


def lay(game, pos, material):
    "Make a cell of a material, and nobody stands there."
    standing = game._world[pos][1]
    if standing is game._player:
        return False
    if standing is not None:
        game._world.remove(standing)
    game._world[pos] = material
    return True


def put(game, kind, pos, ground=None, **numbers):
    "Put something on a cell in place of who stands there, on ground that it can stand on."
    material = game._world[pos][0]
    allowed = ("grass",) if kind is objects.Plant else (*constants.walkable, "water", "lava") \
        if kind is objects.Arrow else constants.walkable
    if not lay(game, pos, ground or (material if material in allowed else allowed[0])):
        return None
    args = (game._player,) if kind in (objects.Zombie, objects.Skeleton) else \
        (numbers.pop("facing"),) if kind is objects.Arrow else ()
    thing = kind(game._world, pos, *args)
    for name, value in numbers.items():
        setattr(thing, name, value)
    game._world.add(thing)
    return thing


def creature(game, pos, rng):
    "A cow, zombie or skeleton in some condition, now and then a dead one that has not gone yet."
    kind = rng.choice((objects.Cow, objects.Zombie, objects.Skeleton))
    most = 5 if kind is objects.Zombie else 3
    numbers = {"health": most if rng.random() < 0.7 else rng.randint(0, most)}
    if kind is objects.Zombie:
        numbers["cooldown"] = rng.choice((0, 0, 1, 5))
    elif kind is objects.Skeleton:
        numbers["reload"] = rng.choice((0, 0, 1, 4))
    put(game, kind, pos, **numbers)


def teleport(game, rng):
    "Put the player on a border, in a corner, or anywhere."
    far = AREA[0] - 1, AREA[1] - 1
    anywhere = [rng.randrange(side) for side in AREA]
    x, y = rng.choice([(0, anywhere[1]), (far[0], anywhere[1]), (anywhere[0], 0), (anywhere[0], far[1]),
                       (0, 0), (0, far[1]), (far[0], 0), far, tuple(anywhere),
                       (anywhere[0] // 12 * 12, anywhere[1] // 12 * 12)])
    standing = game._world[x, y][1]
    if standing is game._player:
        return
    if standing is not None:
        game._world.remove(standing)
    if game._world[x, y][0] not in constants.walkable:
        game._world[x, y] = rng.choice(constants.walkable)
    game._world.move(game._player, (x, y))
    game._player.facing = rng.choice(WAYS)


def teleport_and_build(game, rng):
    "To a border, with what one needs to craft, and a table and a furnace beside the player."
    teleport(game, rng)
    give(game, rng, ITEMS[4:], 3, 9)
    for material, pos in zip(("table", "furnace"), around(game, 1, rng), strict=False):
        if rng.random() < 0.8:
            lay(game, pos, material)


def give(game, rng, names, low, high):
    "So much of each of these items."
    for name in names:
        game._player.inventory[name] = rng.randint(low, high)


def refill(game, rng):
    "Whatever keeps the player alive."
    give(game, rng, LIFE, 7, 9)


def plant_garden(game, rng):
    "Plants about to ripen and ripe ones, some beside creatures, one before the player."
    refill(game, rng)
    player = game._player
    for pos in around(game, 4, rng)[:rng.randint(3, 12)]:
        put(game, objects.Plant, pos, grown=rng.choice((0, 280, 297, 298, 299, 300, 301, 302)))
        if rng.random() < 0.4:
            creature(game, rng.choice(beside(pos)), rng)
    front = tuple((player.pos + player.facing).tolist())
    if front in beside(player.pos.tolist()):
        put(game, objects.Plant, front, grown=rng.randint(298, 301))


def shoot(game, rng):
    "Arrows on their way, and what they may hit."
    if rng.random() < 0.7:
        refill(game, rng)
    for pos in around(game, 5, rng)[:rng.randint(0, 6)]:
        lay(game, pos, rng.choice(("table", "furnace", "path", "path", "water", "lava", "stone", "sand", "tree")))
    for pos in around(game, 5, rng)[:rng.randint(1, 5)]:
        put(game, objects.Skeleton, pos, reload=rng.choice((0, 0, 2, 4)))
    for pos in around(game, 6, rng)[:rng.randint(2, 8)]:
        way = rng.choice(WAYS)
        put(game, objects.Arrow, pos, ground=rng.choice((None, None, "water", "lava")), facing=way)
        _target(game, (pos[0] + way[0], pos[1] + way[1]), rng)


def _target(game, pos, rng):
    "Perhaps something right before an arrow."
    what = rng.choice((None, None, "table", "furnace", "plant", "creature", "arrow"))
    if what is None or not (0 <= pos[0] < AREA[0] and 0 <= pos[1] < AREA[1]):
        return
    if what == "plant":
        put(game, objects.Plant, pos, grown=rng.randint(0, 301))
    elif what == "creature":
        creature(game, pos, rng)
    elif what == "arrow":
        put(game, objects.Arrow, pos, facing=np.array(rng.choice(WAYS)))
    else:
        lay(game, pos, what)


def lie_down(game, rng):
    "Sleep, tired or nearly rested, among zombies and arrows."
    player = game._player
    give(game, rng, LIFE[:3], rng.choice((0, 3, 9)), 9)
    player.inventory["health"], player.inventory["energy"] = rng.randint(3, 9), rng.choice((0, 3, 7, 8, 9))
    player.sleeping, player._fatigue = rng.random() < 0.9, rng.choice((0, -5, -10, 5))
    for pos in beside(player.pos.tolist()):
        if rng.random() < 0.5:
            put(game, objects.Zombie, pos, cooldown=rng.randint(0, 5))
    for pos in around(game, 4, rng)[:rng.randint(0, 3)]:
        put(game, objects.Arrow, pos, facing=rng.choice(WAYS))


def crowd(game, rng):
    "Creatures on a third of the land around the player."
    refill(game, rng)
    for pos in around(game, 12, rng):
        if rng.random() < 0.35 and game._world[pos][0] in constants.walkable:
            creature(game, pos, rng)


def run_down(game, rng):
    "Close to death in one of several ways, sometimes with lava around."
    player = game._player
    give(game, rng, LIFE, 0, 2)
    player.inventory["health"] = rng.randint(1, 2)
    player._hunger, player._thirst = rng.choice((0, 24.5, 25)), rng.choice((0, 19.5, 20))
    player._fatigue, player._recover = rng.choice((-10, 0, 30)), rng.choice((-15, -14.5, 0, 24, 25))
    for pos in around(game, 2, rng)[:rng.choice((0, 3, 12))]:
        lay(game, pos, "lava")
    for pos in around(game, 2, rng)[:rng.choice((0, 2))]:
        creature(game, pos, rng)


def equip(game, rng):
    "Some of everything, a table, a furnace, and all that one can collect, around the player."
    give(game, rng, ITEMS, 0, 9)
    give(game, rng, LIFE, 2, 9)
    for pos in around(game, 3, rng)[:16]:
        lay(game, pos, rng.choice(constants.materials))


def fill(game, rng):
    "Nine of everything, and more of it to collect and to eat."
    equip(game, rng)
    give(game, rng, ITEMS, 9, 9)
    for pos in around(game, 2, rng)[:4]:
        put(game, *rng.choice(((objects.Cow, pos), (objects.Plant, pos))))


def supply(game, rng):
    "What one needs to build everything, and free ground."
    give(game, rng, ITEMS, 0, 1)
    give(game, rng, LIFE + ("wood", "stone"), 9, 9)
    give(game, rng, ("sapling", "coal", "iron"), 1, 3)
    for pos in around(game, 2, rng):
        lay(game, pos, rng.choice(("grass", "grass", "path", "sand")))


def be_late(game, rng):
    "Near the end of the longest episode, or of a day."
    refill(game, rng)
    game._step = rng.choice((LENGTH - 150, LENGTH - 40, rng.randrange(LENGTH - 200), rng.randrange(30) * 300 + 140))
    game._update_time()


# Play: which action comes next.

def anything(game, rng):
    "Any action."
    return rng.randrange(len(ACTIONS))


def useful(game, rng):
    "Mostly what leads somewhere: act on what is in front, walk on, go to creatures; now and then anything."
    player, luck = game._player, rng.random()
    if luck < 0.15:
        return anything(game, rng)
    material, thing = game._world[(player.pos[0] + player.facing[0], player.pos[1] + player.facing[1])]
    if thing is not None or material in constants.collect and (material != "grass" or luck < 0.25):
        if luck < 0.75:
            return ACTION["do"]
    if luck > 0.9:
        return rng.choice((ACTION["place_stone"], ACTION["place_table"], ACTION["place_plant"],
                           ACTION["place_furnace"], rng.randrange(ACTION["make_wood_pickaxe"], len(ACTIONS))))
    if luck < 0.5 and material in constants.walkable:
        return 1 + WAYS.index(tuple(player.facing))
    return 1 + _way_to_someone(game, rng)


def _way_to_someone(game, rng):
    "A direction: to one of the creatures in view, or any."
    player = game._player
    seen = [thing for thing in game._world.objects[1:] if player.distance(thing) < 6] if rng.random() < 0.4 else []
    if not seen:
        return rng.randrange(4)
    offset = rng.choice(seen).pos - player.pos
    axis = int(abs(offset[1]) > abs(offset[0]))
    return 2 * axis + int(offset[axis] > 0)


def build(game, rng):
    "Place and make everything in turn, with some steps between."
    if rng.random() < 0.4:
        return rng.randint(1, 5)
    return rng.choice([number for name, number in ACTION.items() if name.startswith(("place", "make"))])


def rest(game, rng):
    "Mostly sleep."
    return ACTION["sleep"] if rng.random() < 0.6 else rng.choice((0, anything(game, rng)))


# The kinds of play.

@dataclass(frozen=True)
class Regime:
    "A kind of play: what is changed by hand and how often, which actions are taken, and for how long."
    change: Callable | None = None
    every: int = 10 ** 9            # steps between changes; one is made before the first step
    act: Callable = useful
    steps: int = 300
    after: int = 0                  # steps that are played on after the end
    plain: bool = False             # always in the ordinary world


REGIMES = {
    "ordinary": Regime(act=anything, plain=True),
    "useful": Regime(steps=600, plain=True),
    "worlds": Regime(steps=200),
    "more worlds": Regime(steps=100),
    "equipped": Regime(equip, 40, steps=200, after=3),
    "full": Regime(fill, 30, steps=200),
    "building": Regime(supply, 40, build, 200),
    "gardens": Regime(plant_garden, 12, steps=250),
    "arrows": Regime(shoot, 5, steps=250, after=5),
    "asleep": Regime(lie_down, 15, rest, 250, after=5),
    "borders": Regime(teleport, 6, steps=250),
    "crafting at borders": Regime(teleport_and_build, 4, build, 200),
    "crowds": Regime(crowd, 60, steps=150, after=5),
    "run down": Regime(run_down, 60, steps=150, after=40),
    "late": Regime(be_late, 200, steps=300, after=30),
    "short": Regime(refill, 20, steps=150, after=30),
    "days": Regime(refill, 15, steps=700),
}
LONG = 10_000     # steps of every eighth game of "days": a whole episode of the longest kind


@dataclass
class Tally:
    "What was played."
    steps: int = 0
    episodes: int = 0
    seeds: set = field(default_factory=set)
    regimes: Counter = field(default_factory=Counter)
    values: set = field(default_factory=set)       # (section, name, value) of the worlds
    unlocked: set = field(default_factory=set)
    longest: int = 0                                # the last step of the longest episode
    ends: Counter = field(default_factory=Counter)

    def add(self, other):
        self.steps, self.episodes = self.steps + other.steps, self.episodes + other.episodes
        self.seeds |= other.seeds
        self.values |= other.values
        self.unlocked |= other.unlocked
        self.longest = max(self.longest, other.longest)
        self.regimes.update(other.regimes)
        self.ends.update(other.ends)

    def __str__(self):
        return (f"{self.steps:,} steps, {self.episodes:,} episodes, {len(self.seeds):,} seeds, "
                f"{len(self.regimes)} regimes")


def play_game(number, seed=0, most=10 ** 9):
    "Play game `number` of a series, at most so many steps: a `Tally`; a `Difference` that says all if there is one."
    name, turn = list(REGIMES)[number % len(REGIMES)], number // len(REGIMES)
    regime, rng = REGIMES[name], random.Random(f"game {seed} {number}")
    world = None if regime.plain or rng.random() < 0.25 else covering_world(number)
    game_seed, view = rng.randrange(2 ** 31), rng.choice(("pixels", "symbols"))
    length = rng.choice((20, 60, 120)) if name == "short" else LENGTH
    steps = min(LONG if name == "days" and turn % 8 == 4 else regime.steps, most)
    tally = Tally(seeds={game_seed}, values=set(values_in(world)))
    pair = Pair(world, game_seed, length, view)
    try:
        while tally.steps < steps:
            _play_episode(pair, regime, rng, steps, tally)
    except Difference as difference:
        raise Difference(_report(number, seed, name, pair, world, difference)) from None
    tally.regimes[name] = tally.steps
    return tally


def _play_episode(pair, regime, rng, steps, tally):
    "Play an episode, or as much of one as is left of the steps."
    pair.begin()
    tally.episodes += 1
    left = None                                        # steps that are played on after the end
    for step in itertools.count():
        if regime.change and step % regime.every == 0:
            pair.edit(regime.change, rng, gaps=rng if rng.random() < 0.3 else None)
        _, died, over = pair.step(regime.act(pair.reference, rng))
        tally.steps += 1
        tally.longest = max(tally.longest, pair.reference._step)
        if left is None and (died or over):
            tally.ends["died" if died else "over"] += 1
            left = rng.randint(0, regime.after)
        if left == 0 or tally.steps >= steps or pair.reference._step == LENGTH + 100:
            break
        left = None if left is None else left - 1
    tally.unlocked |= {name for name, count in pair.reference._player.achievements.items() if count}


def _report(number, seed, name, pair, world, difference):
    "Where a difference was found, and how to find it again."
    settings = json.dumps(world.settings()) if world else "the ordinary world"
    action = f"action {ACTIONS[pair.actions[-1]]}" if pair.actions else "before the first action"
    return (f"{difference}\n  {name}, {pair.view}, seed {pair.reference._seed}, episode {pair.reference._episode}, "
            f"step {pair.reference._step}, {action}\n  world: {settings}\n"
            f"  again: python tests/crafter_parity.py --seed {seed} --game {number}")


def play_restart(number, seed=0, steps=60):
    "An episode in a world that starts from a moment: of any game, at any time, anywhere on the map."
    rng = random.Random(f"restart {seed} {number}")
    first = Pair(None, rng.randrange(2 ** 31), view="symbols")
    first.begin()
    for step in range(rng.randint(1, 120)):
        if step % 30 == 0:
            first.edit(rng.choice((supply, equip, teleport, crowd, plant_garden)), rng, gaps=rng)
        if first.step(useful(first.reference, rng))[1]:
            first.edit(refill, rng)
    covering = covering_world(4 * number + 1)
    settings = covering.settings() if covering else {}
    settings = {(section, name): value for section, values in settings.items() for name, value in values.items()}
    world = made(settings | {("start_settings", "start_from"): rng.choice(MOMENTS)})
    pair = Pair(world, rng.randrange(2 ** 31), view=rng.choice(("pixels", "symbols")))
    try:
        pair.begin_from(first, episode=rng.randint(1, 9))
        for _ in range(steps):
            _, died, over = pair.step(useful(pair.reference, rng))
            if died or over:
                break
    except Difference as difference:
        raise Difference(f"restart {number}, seed {seed}, step {len(pair.actions)}, {world}: {difference}") from None
    return meaning(world), first.reference._player.pos.tolist(), len(pair.actions)


# Records that are not quite right.

def garble(record, rng):
    "A copy with one to three numbers replaced: by others like them, or by any."
    record = record.copy()
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(GAME.names)
        values = record[name].reshape(-1)
        at = rng.randrange(min(values.size, 200)) if rng.random() < 0.8 else rng.randrange(values.size)
        if values.dtype.kind == "b":
            values[at] = rng.random() < 0.5
        elif values.dtype.kind == "f":
            values[at] = rng.choice((rng.uniform(-20, 40), rng.random(), float("nan"), float("inf"), 1e300, -1e300))
        else:
            low, high = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
            near = int(np.clip(int(values[at]) + rng.randint(-3, 3), low, high))
            values[at] = rng.choice((near, near, rng.randint(0, 12), rng.randint(int(low), int(high))))
        record[name] = values.reshape(record[name].shape)
    return record


def play_garbled(count, seed=0):
    "Garble a game's record so many times and play on wherever `broken` lets it pass: (played, refused)."
    rng, pair, passed = random.Random(f"garbled {seed}"), Pair(seed=seed), 0
    pair.begin()
    for change in (crowd, plant_garden, shoot, lie_down):
        pair.edit(change, rng, gaps=rng)
    whole = pair.engine.record.copy()
    for _ in range(count):
        record = garble(whole, rng)
        if broken(record) or record["step"] > LENGTH - 12:
            continue
        passed += 1
        pair.engine.record[...] = record
        for _ in range(12):
            pair.engine.advance(anything(pair.reference, rng))
            pair.engine.picture(), pair.engine.symbols()
        wrong = broken(pair.engine.record)
        if wrong:
            raise Difference(f"a record that passed was played and then said to be broken: {wrong}")
    return passed, count - passed


# A series of games.

def _played(job):
    "A game in a process of its own: its tally, or what differs in words."
    try:
        return play_game(*job)
    except Difference as difference:
        return str(difference)


def _outcomes(seed, jobs) -> Iterator[Tally | str]:
    "The outcomes of game after game, without end; with several jobs in several processes, in order all the same."
    numbers = ((number, seed) for number in itertools.count())
    if jobs == 1:
        yield from map(_played, numbers)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        waiting = [pool.apply_async(_played, (next(numbers),)) for _ in range(4 * jobs)]
        while True:
            outcome, waiting = waiting[0], [*waiting[1:], pool.apply_async(_played, (next(numbers),))]
            yield outcome.get()


def play(steps, seed=0, seconds=None, jobs=1, say=None) -> Tally:
    "Play games until so many steps are played or so many seconds are over; `Difference` at the first one."
    total, started = Tally(), time.monotonic()
    for outcome in _outcomes(seed, jobs):
        if isinstance(outcome, str):
            raise Difference(f"after {total}: {outcome}")
        total.add(outcome)
        if say:
            say(total, time.monotonic() - started)
        if total.steps >= steps or seconds is not None and time.monotonic() - started > seconds:
            return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="stop after so long, however many steps were played")
    parser.add_argument("--seed", type=int, default=0, help="another series of games")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--game", type=int, help="play this game of the series only")
    args = parser.parse_args()
    said = [0.0]

    def say(total, seconds):
        if seconds - said[0] > 5:
            said[0] = seconds
            print(f"{total}, {total.steps / seconds:,.0f} steps/s, no difference", file=sys.stderr, flush=True)

    try:
        total = play_game(args.game, args.seed) if args.game is not None \
            else play(args.steps, args.seed, args.seconds, args.jobs, say)
    except Difference as difference:
        print(f"Different {difference}" if args.game is None else f"Different: {difference}")
        return 1
    print(f"{total}, longest episode {total.longest:,} steps, {len(total.unlocked)} achievements, "
          f"{len(total.values)} settings: no difference")
    print(", ".join(f"{name} {steps:,}" for name, steps in total.regimes.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
