"""The reference engine against the unmodified `crafter` package, step by step."""

import os
import subprocess
import sys
from collections import defaultdict

import crafter
import crafter.engine
import crafter.env
import numpy as np
import pytest
from forms import first

from envgen_nb.simulators.crafter.env import CrafterEnv
from envgen_nb.simulators.crafter.reference import ITEMS, Game, objects
from envgen_nb.simulators.crafter.symbols import OBJECTS
from envgen_nb.simulators.crafter.world import CrafterWorld, EnvironmentSettings, ExtendedCrafterWorld

NOTHING_SET = [None, CrafterWorld(), ExtendedCrafterWorld(),
               CrafterWorld(environment_settings=EnvironmentSettings(target_biome="natural"))]


def game_in(env):
    "The package's game in a single environment of the reference."
    return env._venv._engine.games[0]


def things(env):
    "Every object of a game: kind, place and what else it is, in order."
    return [(type(thing).__name__, thing.pos.tolist(), thing.health, getattr(thing, "grown", None),
             getattr(thing, "cooldown", None), getattr(thing, "reload", None)) for thing in env._world.objects]


def assert_same_state(stock, ours):
    assert np.array_equal(stock._world._mat_map, ours._world._mat_map)
    assert things(stock) == things(ours)
    a, b = stock._world.random.get_state(), ours._world.random.get_state()
    assert a[2] == b[2] and np.array_equal(a[1], b[1])


@pytest.mark.parametrize("block", first(2, range(5)))
def test_a_world_with_nothing_set_is_the_stock_world(block):
    "Maps, creatures, first observations and random state of 50 seeds, against the package as it is installed."
    assert crafter.Env is not Game.__mro__[2]                      # theirs is not our copy
    for seed in range(10 * block, 10 * block + 10):
        stock, ours = crafter.Env(seed=seed), Game(NOTHING_SET[seed % 4], seed=seed)
        assert stock.reset().tobytes() == ours.reset().tobytes()
        assert_same_state(stock, ours)


class Watched(crafter.Env):
    "The unmodified package, which says when it is about to pick one of several from a set."
    picked = False

    def _balance_object(self, chunk, objs, cls, material, span, despan, spawn_prob, despawn_prob, ctor, target_fn):
        members = [obj for obj in objs if isinstance(obj, cls)]
        space = self._world.mask(*chunk, material).sum()
        low, high = target_fn(len(members), space)
        if len(members) > 1 and not len(members) < int(low) and len(members) > int(high):
            copy = np.random.RandomState()
            copy.set_state(self._world.random.get_state())
            self.picked = self.picked or copy.uniform() < despawn_prob
        super()._balance_object(chunk, objs, cls, material, span, despan, spawn_prob, despawn_prob, ctor, target_fn)


class InOrder:
    "A set that remembers the order."

    def __init__(self):
        self.members = []

    def add(self, member):
        self.members.append(member)

    def remove(self, member):
        del self.members[next(i for i, other in enumerate(self.members) if other is member)]

    def __iter__(self):
        return iter(self.members)


class OrderedChunks(crafter.engine.World):
    "The package's world with nothing changed but the sets."

    def reset(self, seed=None):
        super().reset(seed)
        self._chunks = defaultdict(InOrder)


def assert_same_step(stock, ours, action):
    "Both take a step and all is equal; whether the episode goes on."
    obs, reward, done, info = stock.step(action)
    ours_obs, ours_reward, terminated, truncated, ours_info = ours.step(action)
    assert obs.tobytes() == ours_obs.tobytes()
    assert reward == ours_reward and done == (terminated or truncated)
    assert set(info) == set(ours_info)
    for name, value in info.items():
        assert np.array_equal(value, ours_info[name]) if isinstance(value, np.ndarray) else value == ours_info[name]
    assert stock._world.random.get_state()[2] == game_in(ours)._world.random.get_state()[2]
    return not done


def test_trajectories_of_the_unmodified_package():
    "Equal to the last bit, until the first pick from a set (which not even the package repeats)."
    steps = 0
    for seed in range(12):
        stock, ours, actions = Watched(seed=seed), CrafterEnv(engine="reference"), np.random.RandomState(seed)
        assert stock.reset().tobytes() == ours.reset(seed=seed)[0].tobytes()
        while not stock.picked and steps < 3000:
            assert_same_state(stock, game_in(ours))
            action = int(actions.randint(17))
            obs, reward, done, _ = stock.step(action)
            if stock.picked or done:
                break
            mine = ours.step(action)
            assert obs.tobytes() == mine[0].tobytes() and reward == mine[1]
            steps += 1
    assert steps > 200                                             # the package's first pick comes early


@pytest.mark.parametrize("seed", first(1, range(4)))
def test_trajectories_with_ordered_chunks(seed):
    "Through days and nights with a full bag, so that everything happens: crafting, fights, arrows, sleep, farming."
    stock, ours, actions = crafter.Env(seed=seed), CrafterEnv(engine="reference"), np.random.RandomState(seed)
    stock._world.__class__ = OrderedChunks
    assert stock.reset().tobytes() == ours.reset(seed=seed)[0].tobytes()
    achieved = set()
    for step in range(700):
        if step % 8 == 0:                                          # keep the player alive, and the bag full
            for player in (stock._player, game_in(ours)._player):
                player.inventory.update({name: 9 for name in ITEMS[: 16 if seed % 2 else 4]})
                player.inventory["energy"] = 5 + step % 5
        action = int(actions.choice([1, 2, 3, 4, 5, 5, *actions.randint(17, size=6)]))
        achieved |= {name for name, count in stock._player.achievements.items() if count}
        if not assert_same_step(stock, ours, action):
            assert stock.reset().tobytes() == ours.reset()[0].tobytes()
        if step % 50 == 0:
            assert_same_state(stock, game_in(ours))
    assert_same_state(stock, game_in(ours))
    assert seed % 2 == 0 or len(achieved) >= 12, achieved


def test_the_step_limit_is_the_stock_one():
    stock, ours = crafter.Env(seed=3, length=5), CrafterEnv(length=5, engine="reference")
    stock.reset(), ours.reset(seed=3)
    done = [stock.step(0)[2] for _ in range(5)]
    ends = [ours.step(0)[2:4] for _ in range(5)]
    assert done == [False] * 4 + [True] and ends == [(False, False)] * 4 + [(False, True)]
    with pytest.raises(RuntimeError, match="reset"):
        ours.step(0)


def test_symbols_agree_with_the_semantic_map():
    "What the symbols say is what the package's own semantic map and inventory say, also at the edge of the map."
    kinds = {"player": 13, "cow": 14, "zombie": 15, "skeleton": 16, "arrow": 17, "plant": 18}
    env = CrafterEnv(obs="symbols", engine="reference")
    actions = np.random.RandomState(0)
    obs, info = env.reset(seed=1)
    for step in range(400):
        if step % 40 == 0:                                         # jump to a free cell somewhere, now and then
            world = game_in(env)._world
            free = [(x, y) for x in (0, 1, 30, 63) for y in (0, 2, 40, 62, 63)
                    if world[(x, y)][1] is None and game_in(env)._player.is_free((x, y))]
            if free:
                world.move(game_in(env)._player, free[actions.randint(len(free))])
        game_in(env)._player.inventory.update(health=9, sapling=3, stone=5)
        obs, _, terminated, _, info = env.step(int(actions.choice([1, 2, 3, 4, 5, 6, 7, 10])))
        padded = np.zeros((72, 70), np.uint8)
        padded[4:68, 3:67] = info["semantic"]
        x, y = info["player_pos"]
        seen = padded[x:x + 9, y:y + 7]
        expected = np.array([[kinds[OBJECTS[o].split("-")[0]] if o else m for o, m in zip(*rows, strict=True)]
                             for rows in zip(obs["object"], obs["material"], strict=True)])
        assert np.array_equal(seen, expected)
        assert obs["inventory"].tolist() == list(info["inventory"].values())
        assert obs["daylight"][0] == np.float32(game_in(env)._world.daylight)
        assert obs in env.observation_space
        if terminated:
            env.reset()


def test_symbols_name_facing_arrows_plants_and_sleep():
    env = CrafterEnv(obs="symbols", engine="reference")
    env.reset(seed=0)
    game, player = game_in(env), game_in(env)._player
    for action, name in ((1, "left"), (2, "right"), (3, "up"), (4, "down")):
        assert OBJECTS[env.step(action)[0]["object"][4, 3]] == f"player-{name}"
    x, y = player.pos.tolist()
    game._world[x, y + 1] = "grass"
    player.inventory["sapling"] = 1
    assert OBJECTS[env.step(10)[0]["object"][4, 4]] == "plant"
    game._world[(x, y + 1)][1].grown = 500
    game._world.add(objects.Arrow(game._world, (x - 3, y), (-1, 0)))
    obs = env.step(0)[0]
    assert OBJECTS[obs["object"][4, 4]] == "plant-ripe" and "arrow-left" in {OBJECTS[o] for o in obs["object"].flat}
    player.inventory["energy"] = 3
    assert OBJECTS[env.step(6)[0]["object"][4, 3]] == "player-sleep"


SCRIPT = """
import sys
how, path = sys.argv[1:]
if how == "absent":
    class Blocked:
        def find_spec(self, name, *rest):
            if name.partition(".")[0] == "gym":
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Blocked())
else:
    import importlib.util
    assert importlib.util.find_spec("gym"), "this test wants gym installed"
before = "gym" in sys.modules
import hashlib
import numpy as np
from envgen_nb.simulators.crafter.env import CrafterEnv
import envgen_nb.simulators.crafter.vector
assert ("gym" in sys.modules) == before and "crafter" not in sys.modules and "torch" not in sys.modules
digest = hashlib.sha256()
actions = np.random.RandomState(0)
for seed in range(2):
    env = CrafterEnv(engine="reference")
    digest.update(env.reset(seed=seed)[0].tobytes())
    for _ in range(160):
        obs, reward, terminated, truncated, info = env.step(int(actions.randint(17)))
        digest.update(obs.tobytes() + repr((reward, info["inventory"], info["player_pos"].tolist())).encode())
        if terminated:
            env.reset()
open(path, "w").write(digest.hexdigest())
"""


@pytest.mark.long
def test_import_is_silent_and_the_same_with_and_without_gym(tmp_path):
    "And the trajectories are the same in every process, whatever Python's hashes and addresses are."
    found = set()
    for i, how in enumerate(("present", "absent", "present")):
        result = subprocess.run([sys.executable, "-c", SCRIPT, how, str(tmp_path / str(i))], text=True,
                                capture_output=True, env=os.environ | {"PYTHONHASHSEED": str(i + 1)}, timeout=120)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        found.add((tmp_path / str(i)).read_text())
    assert len(found) == 1


def test_the_installed_package_is_left_alone():
    "Ours is a second copy of the modules: `import crafter` gives what it always gave."
    assert crafter.env.Env.__module__ == "crafter.env" and issubclass(Game, Game.__mro__[2])
    assert crafter.engine.World.reset.__module__ == "crafter.engine"
    world = crafter.engine.World((64, 64), crafter.constants.materials, (12, 12))
    assert world._chunks.default_factory is set
    assert sys.modules[objects.__package__ + ".engine"].__file__ == crafter.engine.__file__
