"""MiniGrid: what the kit adds to the package keeps the contract, every level can be solved, and runs of it finish."""
import collections
import json
import random

import numpy as np
import pytest

pytest.importorskip("minigrid")

from envgen_nb.agent.clips import record
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.reply import Design, format_reply, parse_reply
from envgen_nb.designer.schema import response_schema
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import games, get_simulator
from envgen_nb.game.world import check_world, random_world
from envgen_nb.simulators.minigrid import (
    LENGTH,
    MiniGrid,
    MiniGridWorld,
    Rooms,
    check_installed,
    draw,
    filled,
    find_level,
    inner_walls,
    possible_in,
    reachable,
    solvable,
)
from envgen_nb.simulators.minigrid_tasks import Blocked
from envgen_nb.studio.play import Play

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
AROUND = ((1, 0), (0, 1), (-1, 0), (0, -1))          # by direction


def world(**settings) -> MiniGridWorld:
    found, complaints = check_world(MiniGridWorld, settings)
    assert not complaints, complaints
    return found


def door(**settings) -> dict:
    return {"room": [0, 0], "side": "right", "colour": "red", "state": "locked"} | settings


class Player:
    """Plays a level to its end by MiniGrid's rules, with one thing in its hands at a time; looks into boxes, too."""

    def __init__(self, game: Rooms):
        self.game, self.env, self.steps, self.over = game, game.env, 0, False
        self.moved: list = []                      # what was put out of the way once
        self.luck = random.Random(0)               # for who goes round in circles

    def at(self, cell):
        return self.env.grid.get(*cell)

    def act(self, action: int) -> None:
        assert not self.over
        reward, self.over = self.game.step(action)
        self.steps += 1
        assert (reward > 0) == self.over

    def walkable(self, cell) -> bool:
        thing = self.at(cell)
        return thing is None or thing.can_overlap()

    def ways(self, closed=()) -> dict:
        """Every cell that can be walked to, with the actions' cells on the way there."""
        start = tuple(map(int, self.env.agent_pos))
        found, queue = {start: (start,)}, collections.deque([start])
        while queue:
            x, y = cell = queue.popleft()
            for dx, dy in AROUND:
                to = (x + dx, y + dy)
                if to not in found and to not in closed and self.walkable(to):
                    found[to] = (*found[cell], to)
                    queue.append(to)
        return found

    def face(self, path, cell) -> None:
        """Walk along a path and turn to the cell beside its end."""
        for to in (*path[1:], cell):
            x, y = map(int, self.env.agent_pos)
            wanted = AROUND.index((to[0] - x, to[1] - y))
            while self.env.agent_dir != wanted:
                self.act(RIGHT if (wanted - self.env.agent_dir) % 4 != 3 else LEFT)
            if to != cell:
                self.act(FORWARD)

    def beside(self, wanted) -> list:
        """Things that can be stood before, the nearest first: cell, thing, path."""
        found = {}
        for cell, path in sorted(self.ways().items(), key=lambda item: len(item[1])):
            for dx, dy in AROUND:
                to = (cell[0] + dx, cell[1] + dy)
                thing = self.at(to)
                if thing is not None and to not in found and wanted(to, thing):
                    found[to] = (to, thing, path)
        return list(found.values())

    def put_down(self) -> None:
        """Put down what is held where it closes no way, if there is such a place."""
        if self.env.carrying is None:
            return
        ways, places = self.ways(), []
        doors = [(x, y) for x in range(self.env.width) for y in range(self.env.height)
                 if getattr(self.at((x, y)), "type", "") == "door"]
        for cell, path in ways.items():
            for dx, dy in AROUND:
                to = (cell[0] + dx, cell[1] + dy)
                if self.at(to) is None and to not in path and getattr(self.at(cell), "type", "") != "door":
                    lost = len(ways) - len(self.ways({to})) - (to in ways)
                    near = any(abs(to[0] - x) + abs(to[1] - y) == 1 for x, y in doors)
                    places.append((lost > 0, near, len(path), to, path))
        *_, to, path = self.luck.choice(places) if len(self.moved) > 10 else min(places)
        self.face(path, to)
        self.act(DROP)

    def locked(self) -> list:
        return self.beside(lambda cell, thing: thing.type == "door" and thing.is_locked)

    def take(self, found) -> None:
        cell, _, path = found
        if self.env.carrying is not None:
            self.put_down()
            path = next(path for to, _, path in self.beside(lambda to, thing: to == cell))
        self.face(path, cell)
        self.act(PICKUP)

    def turn(self) -> None:
        """The next thing to do."""
        target, held = self.game.target, self.env.carrying
        for cell, thing, path in self.beside(lambda cell, thing: thing is target):
            if thing.type == "goal":
                self.face(path, cell)
                return self.act(FORWARD)
            return self.take((cell, thing, path))
        locks = self.locked()
        for cell, thing, path in locks:
            if held is not None and held.type == "key" and held.color == thing.color:
                self.face(path, cell)
                return self.act(TOGGLE)
        for cell, _, path in self.beside(lambda cell, thing: thing.type == "door" and not thing.is_open
                                         and not thing.is_locked):
            self.face(path, cell)
            return self.act(TOGGLE)
        colours = {thing.color for _, thing, _ in locks}
        for found in self.beside(lambda cell, thing: thing.type == "key" and thing.color in colours):
            return self.take(found)
        for cell, _, path in self.beside(lambda cell, thing: thing.type == "box"):
            self.face(path, cell)
            return self.act(TOGGLE)
        loose = self.beside(lambda cell, thing: thing.can_pickup())
        found = self.luck.choice(loose) if len(self.moved) > 10 else min(
            loose, key=lambda found: (self.moved.count(found[1]), len(found[2])))
        self.moved.append(found[1])
        self.take(found)
        self.put_down()

    def play(self) -> int:
        while not self.over and self.steps < 2_000:
            self.turn()
        assert self.over
        return self.steps


def solved(chosen: MiniGridWorld, seed: int) -> tuple[set[str], int]:
    game = Rooms()
    game.reset(chosen, np.random.default_rng(seed))
    steps = Player(game).play()
    assert "reach_target" in game.achieved <= game.possible
    return game.achieved, steps


def test_it_keeps_the_contract():
    check_simulator(get_simulator("minigrid"))
    assert "minigrid" in games.names() and MiniGrid.observations == ("symbols", "pixels")


def test_the_ordinary_game_is_that_of_the_package():
    """The same things in the same rooms as in ObstructedMaze-1Dlhb, and a way through all objectives."""
    import gymnasium
    import minigrid  # noqa: F401 (it makes its environments known)
    theirs = gymnasium.make("MiniGrid-ObstructedMaze-1Dlhb-v0").unwrapped
    assert theirs.max_steps == LENGTH

    def told(grid):
        things = [(thing.type, thing.color if thing.type != "door" else "", x // 5,
                   thing.contains and thing.contains.type) for x in range(grid.width) for y in range(grid.height)
                  if (thing := grid.get(x, y)) is not None]
        return (grid.width, grid.height), collections.Counter(things)

    game = Rooms()
    for seed in range(20):
        theirs.reset(seed=seed)
        game.reset(MiniGridWorld(), np.random.default_rng(seed))
        assert told(theirs.grid) == told(game.env.grid)
        assert game.target.type == theirs.obj.type and game.target.color == theirs.obj.color
        key, = (box.contains for box in game.env.grid.grid if box is not None and box.type == "box")
        lock, = (one for one in game.env.grid.grid if one is not None and one.type == "door")
        assert key.color == lock.color and lock.is_locked
    assert all(solved(MiniGridWorld(), seed)[0] == set(MiniGrid.objectives) for seed in range(30))
    assert max(solved(MiniGridWorld(), seed)[1] for seed in range(30)) < LENGTH / 2


def test_every_level_is_solved_in_the_game_itself(long):
    """What the search says can be solved is solved by hands that hold one thing at a time."""
    worlds = [random_world(MiniGridWorld, random.Random(seed), fill=0.7) for seed in range(600 if long else 60)]
    assert sum(len(one.doors or ()) for one in worlds) > len(worlds) / 4
    for seed, chosen in enumerate(worlds):
        for episode in range(3 if long else 1):
            solved(chosen, 1_000 * seed + episode)


def test_full_rooms_are_solved_too():
    crowded = world(room_size=4, doors=[door(blocked=True)], keys=[{"colour": "red", "room": [0, 0], "in_box": True}])
    worse = world(room_size=5, doors=[door(blocked=True)], distractors=[
        {"kind": "box", "colour": "red", "room": [0, 0]}, {"kind": "ball", "colour": "red", "room": [0, 0]}])
    long_way = world(columns=3, rows=3, room_size=4, doors=[
        door(colour=colour, room=room, blocked=True) for colour, room in (("red", [0, 0]), ("blue", [1, 0]))]
        + [door(side="down", room=[2, 0], colour="grey"), door(side="down", room=[2, 1], state="closed")],
        keys=[{"colour": colour, "room": [x, 0]} for x, colour in enumerate(("red", "blue", "grey"))])
    for seed in range(40):
        for chosen in (crowded, worse, long_way):
            solved(chosen, seed)


def test_a_level_without_a_way_is_none():
    unsolvable = world(doors=[door()])
    level = draw(unsolvable, np.random.default_rng(3))
    assert solvable(level)
    box, = (cell for cell, thing in level.things.items() if thing.kind == "box")
    without = level._replace(things={cell: thing for cell, thing in level.things.items() if cell != box})
    assert not solvable(without) and level.target not in reachable(without.things, level.agent)
    behind = without.things | {(level.target[0], level.target[1] % 4 + 1): level.things[box].holds}
    assert not solvable(without._replace(things=behind))


@pytest.mark.parametrize("settings, field, said", [
    ({"columns": 1, "target_room": [1, 0]}, "target_room", "the rooms are [0, 0] to [0, 0]"),
    ({"agent_room": [0, 1]}, "agent_room", "no such room"),
    ({"doors": [door(room=[1, 0])]}, "doors[0].side", "no room on that side"),
    ({"doors": [door(), door(state="open")]}, "doors[1]", "a door already"),
    ({"doors": [door(), door(room=[2, 2])]}, "doors[1].room", "no such room"),
    ({"keys": [{"colour": "red", "room": [0, 2]}]}, "keys[0].room", "no such room"),
    ({"keys": [{"colour": "pink", "room": [0, 0]}]}, "keys[0].colour", "red | green | blue"),
    ({"distractors": [{"kind": "ball", "colour": "blue", "room": [0, 0]}]}, "distractors[0].colour", "the target"),
    ({"doors": []}, "", "cannot be reached"),
    ({"goal": "move_ball", "doors": [door(state="closed")]}, "goal", "no level of this world has it"),
    ({"goal": "jump"}, "goal", "open_box | move_ball"), ({"length": 15}, "length", "16-288"),
    ({"doors": [door()], "keys": []}, "", "cannot be reached"),
    ({"doors": [door()], "keys": [{"colour": "red", "room": [1, 0]}]}, "", "cannot be reached"),
    ({"columns": 1, "room_size": 4, "distractors": [{"kind": "box", "colour": "red", "room": [0, 0]}] * 5}, "",
     "too little room")])
def test_what_cannot_be_played_is_refused_with_its_place(settings, field, said):
    found, complaints = check_world(MiniGridWorld, settings)
    assert found is None and any(c.field == field and said in c.message for c in complaints), complaints


def test_worlds_go_through_prompt_reply_and_schema():
    game = get_simulator("minigrid")
    prompt = first_prompt(load_templates(), game)
    assert "- doors: a list of up to 6 objects with: room, side, colour, state, blocked" in prompt
    assert "  - room: [x, y], x 0-2, y 0-2 (required; " in prompt
    worlds = [random_world(MiniGridWorld, random.Random(seed), fill=1.0) for seed in range(20)]
    designs = [Design(one, "to try") for one in worlds]
    assert parse_reply(format_reply(designs), MiniGridWorld, 20) == (designs, [])
    assert "doors" in json.dumps(response_schema(MiniGridWorld, 4))


def test_warnings():
    game = get_simulator("minigrid")
    assert [w.field for w in game.warnings(world(target="goal", target_colour="red"))] == ["target_colour"]
    warned = game.warnings(world(keys=[{"colour": "red", "room": [0, 0]}], doors=[door(state="open")], openings=True))
    assert [w.field for w in warned] == ["openings", "keys"] and "keys[0]: no locked door is red" in str(warned[1])
    assert [w.field for w in game.warnings(world(goal="reach_target"))] == ["goal"]


def test_what_the_agent_sees():
    """Whichever way the agent looks, the cell before it is above the middle; what it holds and wants is told."""
    game, simulator = Rooms(), get_simulator("minigrid")
    chosen = world(room_size=6, doors=[door(state="closed", blocked=True)])
    game.reset(chosen, np.random.default_rng(5))
    for action in np.random.default_rng(0).integers(6, size=300):
        game.step(int(action))
        seen, env = game.observe("symbols"), game.env
        assert seen in simulator.spaces["symbols"]
        for ahead in range(1, 6):
            x, y = np.add(env.agent_pos, np.multiply(env.dir_vec, ahead))
            inside = 0 <= x < env.width and 0 <= y < env.height
            thing = env.grid.get(x, y) if inside else None
            wanted = thing.encode() if thing else (1, 0, 0) if inside else (0, 0, 0)
            assert tuple(seen[name][5 - ahead, 5] for name in ("things", "colours", "states")) == wanted
        assert seen["wanted"].sum() == 2 and seen["held"].sum() == (2 if env.carrying else 0)


def test_success_is_counted_where_it_was_possible():
    venv = get_simulator("minigrid").make_vec([world(columns=1, room_size=4), None], num_envs=2, episodes=1, seed=3,
                                              obs="symbols", length=5)
    venv.reset()
    while not venv.finished.all():
        infos = venv.step(np.zeros(2, int))[-1]
    assert infos["results"]["possible"].tolist() == [[False] * 4 + [True], [True] * 5]


def test_to_close_a_door_and_open_it_again_is_no_skill():
    game = Rooms()
    for first, second in (("open", None), ("closed", "open_door")):
        game.reset(world(doors=[door(state=first)]), np.random.default_rng(0))
        player = Player(game)
        cell, thing, path = player.beside(lambda cell, thing: thing.type == "door")[0]
        player.face(path, cell)
        for _ in range(3):
            player.act(TOGGLE)
        assert ("open_door" in game.achieved) == ("open_door" in game.possible) == (second == "open_door")


def test_what_is_not_possible_is_not_achieved():
    """In worlds of all kinds, by an agent that opens and closes, picks up and puts down all the time."""
    game, luck, done = Rooms(), np.random.default_rng(5), collections.Counter()
    for seed in range(60):
        game.reset(random_world(MiniGridWorld, random.Random(seed), fill=0.8), np.random.default_rng(seed))
        for action in luck.choice(6, size=200, p=[0.1, 0.1, 0.3, 0.15, 0.1, 0.25]).tolist():
            if game.step(action)[1]:
                break
        assert game.achieved <= game.possible, seed
        done.update(game.achieved)
    assert set(done) == set(MiniGrid.objectives), done


def test_an_episode_is_cut_at_its_goal_or_at_its_length():
    """Truncated, without a reward for it; the original game beside it goes on."""
    cut = world(goal="open_box", room_size=4, doors=[door()])
    short = world(length=16)
    venv = MiniGrid().make_vec([cut, short, None], num_envs=30, seed=2, obs="symbols")
    assert venv.lengths == (LENGTH, 16, LENGTH)
    venv.reset()
    actions, ended = np.random.default_rng(0), collections.defaultdict(list)
    for _ in range(120):
        before = venv.running["length"]
        _, rewards, terminated, truncated, infos = venv.step(actions.integers(6, size=30))
        for i in np.flatnonzero(terminated | truncated):
            ended[i % 3].append((before[i] + 1, bool(terminated[i]), bool(infos["results"]["unlocked"][i, 0])))
    assert any(steps < 60 for steps, _, _ in ended[0])
    assert all(opened and not over for _, over, opened in ended[0])
    assert {steps for steps, _, _ in ended[1]} == {16} and not ended[2]
    late = venv.add_worlds([cut, short], length=100)
    assert [venv.lengths[k] for k in late] == [100, 16]


def test_what_a_skill_needs_is_told_as_it_is():
    """By the way through the ordinary game: the box, the ball before the door, the key, the door, empty hands."""
    game, player = Rooms(), None
    game.reset(MiniGridWorld(), np.random.default_rng(3))
    player = Player(game)
    told = [game.conditions]
    act = player.act

    def told_act(action):
        act(action)
        told.append(game.conditions)

    player.act = told_act
    player.play()
    assert told[0] == {"nothing in hand"}
    first = {name: next(k for k, held in enumerate(told) if name in held) for name in MiniGrid.conditions}
    assert first["a key out of its box"] < first["a key in hand"] < first["a door is open"]
    assert first["no ball before a door"] < first["a door is open"]
    assert all(("a key in hand" in held) <= ("nothing in hand" not in held) for held in told)
    assert "nothing in hand" in told[-2] and "a door is open" in told[-2]


def test_rewards_fall_with_time():
    game = Rooms()
    game.reset(world(columns=1, room_size=4, target="goal"), np.random.default_rng(0))
    for _ in range(LENGTH // 2):
        game.step(LEFT)
    player = Player(game)
    player.turn()
    assert game.achieved == {"reach_target"} and player.over


def test_without_the_package_nothing_breaks_but_playing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'envgen_nb\[minigrid\]'"):
        check_installed()
    assert "MiniGrid" in first_prompt(load_templates(), get_simulator("minigrid"))
    assert check_world(MiniGridWorld, {"doors": [door()]})[0]
    assert filled(MiniGridWorld(), np.random.default_rng(0)).keys[0].in_box and len(inner_walls(filled(
        world(columns=3, rows=3, openings=True), np.random.default_rng(0)))) == 12


def test_a_whole_run_of_it(tmp_path):
    settings = make_settings(
        simulator="minigrid", num_cycles=2, num_worlds=4, cycle_steps=512, final_steps=256, evaluation_runs=1,
        evaluation_episodes=4, threads=1, preset_options={"num_envs": 8, "rollout_steps": 16, "minibatches": 2})
    assert settings.preset == "symbols" and settings.world_length == 144
    assert make_settings(simulator="minigrid").agent_preset.algorithm.gamma == 0.99
    events = list(run_cycles(create_run(settings, tmp_path / "run").path))
    run = RunFolder(tmp_path / "run")
    assert run.finished() and (run.path / "cycle-1" / "worlds.png").stat().st_size > 1_000
    assert sum(isinstance(event, Evaluated) for event in events) == 4
    assert record(run.simulator, run.worlds("cycle-1")[0], steps=10).length <= 10
    play = Play(run.simulator, run.worlds("cycle-2")[0], seed=1)
    for action in np.random.default_rng(0).permutation(list(MiniGrid.keys) * 3):
        play.act(action)
    play.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_agent_learns_to_open_a_door(seed):
    """After 200,000 steps the agent reaches a target behind a closed door; at random it seldom does."""
    from envgen_nb.agent.evaluate import evaluate
    from envgen_nb.agent.on_policy import PPO
    from envgen_nb.agent.presets import get_preset
    from envgen_nb.agent.train import train

    chosen, simulator = world(room_size=5, doors=[door(state="closed")]), get_simulator("minigrid")
    preset = get_preset("symbols", **simulator.defaults["preset_options"])
    venv = simulator.make_vec([chosen], num_envs=preset.num_envs, seed=seed, obs="symbols", length=72)
    agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed=seed)
    rates = []
    for steps in (0, 200_000):
        if steps:
            train(agent, venv, steps)
        test = simulator.make_vec([chosen], num_envs=100, seed=1_000 + seed, obs="symbols", length=72, episodes=1)
        rates.append(evaluate(agent, test, 1, seed).success[0, -1])
    assert rates[0] < 30 and rates[1] > 90, rates


def test_nothing_looks_like_a_target_whose_colour_is_drawn():
    """Of two boxes of a colour one would be worth nothing, and the agent could not know which."""
    game = Blocked()
    made, _ = check_world(game.world_class(), {"distractors": [{"room": [0, 0], "kind": "box", "colour": "green"}]})
    random = np.random.default_rng(0)
    for _ in range(60):
        level = find_level(made, random)
        assert sum(thing[:2] == level.things[level.target][:2] for thing in level.things.values()) == 1


def test_what_cannot_be_reached_is_no_objective():
    """A key in a room without a door, and a locked door without a key."""
    walled = world(columns=3, rows=1, openings=False, doors=[door(state="closed")], keys=[
        {"room": [2, 0], "colour": "red"}], target_room=[1, 0])
    assert possible_in(find_level(walled, np.random.default_rng(0))) == {"open_door", "reach_target"}
    assert "no level of this world has it; here there are: open_door, reach_target" in str(
        check_world(MiniGridWorld, walled.settings() | {"goal": "take_key"})[1][0])
