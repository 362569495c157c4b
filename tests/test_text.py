"""Games in words: every statement is true, short and the same for the same view; options are carried out."""
import copy
import random as stdlib_random
import re

import numpy as np
import pytest

from envgen_nb.game.conformance import Setup, check_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import random_world
from envgen_nb.simulators.crafter.player import CrafterPlayer
from envgen_nb.simulators.crafter.reference import ACTIONS, Game
from envgen_nb.simulators.crafter.symbols import symbols
from envgen_nb.simulators.crafter.text import COMMON, OPTIONS, CrafterText

VITALS = ("health", "food", "drink", "energy")
PRESSES = [option for option in OPTIONS if option.startswith(("place", "make"))]
CREATURES = {"Cow": "cow", "Zombie": "zombie", "Skeleton": "skeleton", "Arrow": "arrow"}


def tokens(text: str) -> int:
    "Words and marks: an upper bound for plain English words, each of which is a token or two halves of one."
    return len(re.findall(r"\w+|[^\w\s]", text))


def kinds_around(game: Game) -> dict[str, list[tuple[int, int]]]:
    "Return what is in the nine by seven cells around the player, by the engine's own map: kind → offsets."
    found = {}
    for dx, dy in np.ndindex(9, 7):
        material, thing = game._world[tuple(game._player.pos + (dx - 4, dy - 3))]
        kinds = [material] if material not in COMMON else []
        if thing is not None and thing is not game._player:
            kinds.append(CREATURES.get(type(thing).__name__) or ("ripe plant" if thing.ripe else "sapling"))
        for kind in filter(None, kinds):
            found.setdefault(kind, []).append((dx - 4, dy - 3))
    return found


def has_effect(game: Game, action: str) -> bool:
    "Play `place stone` or `make wood pickaxe` by the package's own rule; return whether it took what it uses."
    kind, name = action.replace("sapling", "plant").split(" ", 1)
    player, name = game._player, name.replace(" ", "_")
    before, target = dict(player.inventory), tuple(player.pos + player.facing)
    if kind == "place":
        player._place(name, target, game._world[target][0])
    else:
        player._make(name)
    taken = any(player.inventory[item] < before[item] for item in before)
    player.inventory.update(before)
    return taken


def check_sentences(game: Game, text: str, whole: bool = False) -> None:
    """Assert that everything that a description says is true of the engine's own state, and that nothing is left out;
    `whole`: also no action that has an effect."""
    player, there = game._player, kinds_around(game)
    said = dict(re.findall(r"(You face|You can|Nearest|In reach|Bag|Low):? ([^.]*)\.", text))
    assert ("You are asleep." in text) == player.sleeping == ("You face" not in said)
    assert ("It is night." in text) == (np.float32(game._world.daylight) < 0.5)
    bag = {name.replace("_", " "): n for name, n in player.inventory.items() if n and name not in VITALS}
    tools = {name: 1 for name in bag if name.endswith(("pickaxe", "sword"))}
    words = dict(re.fullmatch(r"(.+?)(?: (\d+))?", one).groups() for one in said["Bag"].split(", ") if one != "empty")
    assert {name: int(n or 1) for name, n in words.items()} == bag | tools
    low = [name for name in VITALS if player.inventory[name] <= (4 if name == "health" else 3)]
    assert said.get("Low", "").split(", ") == (low or [""])
    nearest = {} if said["Nearest"] == "nothing" else {
        kind: (int(right or 0) - int(left or 0), int(down or 0) - int(up or 0)) for kind, up, down, left, right in
        re.findall(r"([a-z ]+?)(?: (\d) up)?(?: (\d) down)?(?: (\d) left)?(?: (\d) right)?(?:, |$)", said["Nearest"])}
    assert nearest.keys() == there.keys()
    for kind, cell in nearest.items():
        assert cell in there[kind] and sum(map(abs, cell)) == min(sum(map(abs, one)) for one in there[kind])
    reach = [kind for kind in ("table", "furnace") if kind in game._world.nearby(player.pos, 1)[0]]
    assert said.get("In reach", "").split(", ") == (reach or [""])
    if not player.sleeping:
        material, thing = game._world[tuple(player.pos + player.facing)]
        facing = material or "the edge of the world"
        if thing is not None:
            facing = CREATURES.get(type(thing).__name__) or ("ripe plant" if thing.ripe else "sapling")
        assert said["You face"] == facing
        can = set(filter(None, said.get("You can", "").split(", ")))
        for action in PRESSES if whole else can:
            assert has_effect(copy.deepcopy(game), action) == (action in can), action


@pytest.mark.parametrize("part", [pytest.param(k, marks=[pytest.mark.long] if k else []) for k in range(10)])
def test_every_sentence_about_crafter_is_true(part):
    """10,000 states in all, of the original game and of random worlds, a player by rules and chance in turn."""
    random, text, player = np.random.default_rng(part), CrafterText(), CrafterPlayer()
    model, longest = get_simulator("crafter").world_class("extended"), 0
    for number in range(10):
        world = None if number % 2 else random_world(model, stdlib_random.Random(10 * part + number), fill=0.5)
        game = Game(world, seed=100 * part + number)
        game.begin()
        memory, by_rules = player.start(1), number % 4 < 2
        for step in range(100):
            for _ in range(3):
                view = {name: value[None] for name, value in symbols(game).items()}
                actions, memory = player.act(view, memory)
                game.skip_picture()
                if game.advance(int(actions[0]) if by_rules else int(random.integers(len(ACTIONS))))[1]:
                    game.begin()
                    memory = player.start(1)
            view = {name: value[None] for name, value in symbols(game).items()}
            (words,), (short,) = text.describe(view), text.situation(view)
            assert (words, short) == (text.describe(view)[0], text.situation(view)[0])
            check_sentences(game, words, whole=step % 5 == 0)
            longest = max(longest, tokens(words), tokens(short))
    assert longest <= 120


@pytest.mark.parametrize("wrong", [("tree", "stone"), ("1 left", "1 right"), ("wood 1", "wood 2"),
                                   ("Bag", "Low: food. Bag")])
def test_a_false_sentence_is_noticed(wrong):
    game = Game(seed=3)
    game.begin()
    game._player.inventory["wood"] = 1
    game._world[tuple(game._player.pos + (-1, 0))] = "tree"
    game._player.facing = (-1, 0)
    text = CrafterText().describe({name: value[None] for name, value in symbols(game).items()})[0]
    check_sentences(game, text, whole=True)
    assert wrong[0] in text
    with pytest.raises(AssertionError):
        check_sentences(game, text.replace(*wrong), whole=True)


def option_of(objective: str) -> str:
    "Return the option that leads to an objective of Crafter."
    verb, _, name = objective.partition("_")
    return {"collect_drink": "drink water", "eat_plant": "eat ripe plant", "wake_up": "sleep",
            "place_plant": "place sapling", "eat_cow": "eat cow"}.get(objective) or (
        f"{({'collect': 'gather', 'defeat': 'fight'}).get(verb, verb)} {name.replace('_', ' ')}")


def test_options_of_crafter_are_carried_out():
    """In worlds one step before each objective, its option reaches it within 100 steps, exploring until it is
    possible; sleeping takes the longest."""
    game, text, each = get_simulator("crafter"), CrafterText(), 4
    worlds = [game.practice(objective, "extended")[0] for objective in game.objectives]
    n = each * len(worlds)
    venv = game.make_vec(worlds, num_envs=n, seed=5, obs="symbols", length=100, episodes=1)
    assert {option_of(objective) for objective in game.objectives} == set(OPTIONS) - {"flee", "explore"}
    goal = np.array([OPTIONS.index(option_of(game.objectives[i % len(worlds)])) for i in range(n)])
    (obs, _), memory, everyone = venv.reset(), text.start(n), np.arange(n)
    for _ in range(100):
        able = text.possible(obs)
        assert able.any(1).all()
        chosen = np.where(able[everyone, goal], goal, OPTIONS.index("explore"))
        wanted = np.eye(len(OPTIONS), dtype=bool)[chosen]
        actions, memory = text.act(obs, memory, wanted)
        assert (actions[~wanted] == -1).all() and actions.max() < len(ACTIONS)
        actions = np.maximum(actions.max(1), 0)
        memory = text.note(memory, actions)
        obs, *_ = venv.step(actions)
    share = venv.unlocked[everyone, everyone % len(worlds)].reshape(each, -1).mean(0)
    assert (share >= 0.5).all(), dict(zip(game.objectives, share, strict=True))


@pytest.mark.parametrize("part", [pytest.param(k, marks=[pytest.mark.long] if k else []) for k in range(6)])
def test_every_sentence_about_minigrid_is_true(part):
    """10,000 states in all of random worlds, by chance; against the grid of the package, from where the agent is."""
    pytest.importorskip("minigrid")
    from envgen_nb.simulators.minigrid import MiniGridWorld, Rooms
    from envgen_nb.simulators.minigrid_text import MiniGridText
    random, text, ahead = np.random.default_rng(part), MiniGridText(), ((1, 0), (0, 1), (-1, 0), (0, -1))
    longest, told, levels = 0, 0, stdlib_random.Random(part)
    while told < 1_700:
        game = Rooms()
        game.reset(random_world(MiniGridWorld, levels, fill=0.5), random)
        for _ in range(100):
            if game.step(int(random.integers(6)))[1]:
                break
            (words,) = text.describe({name: value[None] for name, value in game.observe("symbols").items()})
            env, longest = game.env, max(longest, tokens(words))
            wanted, held, facing, seen = re.fullmatch(
                r"Wanted: (.*)\. You hold (?:a )?(.*)\. You face (?:an? )?(.*)\. Seen: (.*)\.", words).groups()
            assert wanted == f"{game.target.color} {game.target.type}"
            assert held == (f"{env.carrying.color} {env.carrying.type}" if env.carrying else "nothing")
            assert facing == name_of(env.grid.get(*env.front_pos), "free cell")
            (fx, fy), (px, py), there = ahead[env.agent_dir], env.agent_pos, set()
            for one in seen.split(", ") if seen != "nothing" else ():
                name, up, back, left, right = re.fullmatch(
                    r"([a-z ]+?)(?: (\d) ahead)?(?: (\d) back)?(?: (\d) left)?(?: (\d) right)?", one).groups()
                up, right = int(up or 0) - int(back or 0), int(right or 0) - int(left or 0)
                cell = px + up * fx - right * fy, py + up * fy + right * fx
                assert name_of(env.grid.get(*cell), "") == name
                there.add(cell)
            near = {(x, y) for x in range(env.width) for y in range(env.height)
                    if max(abs(x - px), abs(y - py)) <= 5 and (x, y) != (px, py)
                    and name_of(env.grid.get(x, y), "wall") != "wall"}
            assert there <= near and len(there) == min(len(near), 12)
            told += 1
    assert longest <= 120


def name_of(thing, nothing: str) -> str:
    "Name an object of MiniGrid as the text layer does."
    if thing is None or thing.type == "wall":
        return nothing if thing is None else "wall"
    words = f"{thing.color} {thing.type}"
    if thing.type != "door":
        return words
    return f"{'open' if thing.is_open else 'locked' if thing.is_locked else 'closed'} {words}"


@pytest.mark.parametrize("name", ["crafter", "minigrid"])
def test_text_layers_keep_the_contract(name):
    game = get_simulator(name)
    game.check_installed()
    check_text(Setup(game, "symbols", (None, game.world_class()()), length=60))
    assert game.text("pixels") is None
