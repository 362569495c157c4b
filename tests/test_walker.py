"""The walker: its ordinary game is Gymnasium's, and its courses are as they are written."""
import random

import numpy as np
import pytest

pytest.importorskip("Box2D")

from gymnasium.envs.box2d.bipedal_walker import BipedalWalker, BipedalWalkerHeuristics

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world, random_world
from envgen_nb.simulators import walker
from envgen_nb.simulators.walker import STEP, STEPS, Course, Walker, WalkerWorld, engine, make_ground


def world(*segments, **settings):
    course = [dict(zip(("kind", "size", "steps"), segment, strict=False)) for segment in segments]
    made, complaints = check_world(WalkerWorld, {"course": course} | settings)
    assert made is not None, complaints
    return made


def test_it_keeps_the_contract():
    check_simulator(get_simulator("walker"), length=6)


@pytest.mark.parametrize("seed", range(40))
def test_the_ordinary_terrain_is_gymnasiums(seed):
    stock, ours = BipedalWalker(hardcore=True), engine()(WalkerWorld())
    stock.np_random, ours.np_random = (np.random.default_rng(seed) for _ in range(2))
    assert np.array_equal(stock.reset()[0], ours.reset()[0])
    assert stock.terrain_y == ours.ground.y and stock.np_random.random() == ours.np_random.random()
    boxes = [[tuple(corner) for corner in body.fixtures[0].shape.vertices]
             for one in (stock, ours) for body in one.terrain if len(body.fixtures[0].shape.vertices) == 4]
    assert boxes[:len(boxes) // 2] == boxes[len(boxes) // 2:] and len(boxes) // 2 == len(ours.ground.boxes)
    for action in np.random.default_rng(seed).uniform(-1, 1, (60, 4)).astype(np.float32):
        theirs, mine = stock.step(action), ours.step(action)
        assert np.array_equal(theirs[0], mine[0]) and theirs[1:3] == mine[1:3]
        if mine[2]:
            break


def test_what_occurs_in_the_ordinary_game():
    """Small and medium obstacles of each kind, in about every third episode or more; no large ones."""
    grounds = [make_ground(WalkerWorld(), np.random.default_rng(seed)) for seed in range(60)]
    found = [one.name for ground in grounds for one in ground.obstacles]
    sizes = {name: found.count(name) for name in set(found)}
    assert set(sizes) == {f"{size}_{kind}" for size in ("small", "medium") for kind in ("pit", "stump", "stairs")}
    assert min(sizes.values()) > 20


def test_a_course_is_as_it_is_written():
    written = world(("stump", 0.5), ("flat", 4), ("pit", 2), ("stairs down", 2, 3), ("stump", 4), gap=3)
    ground = make_ground(written, np.random.default_rng(0))
    assert [one.name for one in ground.obstacles] == ["small_stump", "small_pit", "large_stairs", "large_stump"]
    starts = [round(one.start / STEP) for one in ground.obstacles]
    assert starts == [20, 25, 33, 48] and len(ground.y) == STEPS
    assert [round(one.end / STEP) for one in ground.obstacles] == [21, 29, 45, 49]
    assert min(ground.y[26:29]) < ground.y[25] - 3.9 * STEP and ground.y[29] == pytest.approx(ground.y[25], abs=0.2)
    assert ground.y[48] < ground.y[32] - 2 * 2 * STEP                   # the stairs led down
    top = max(y for box in ground.boxes[-1:] for _, y in box)
    assert top == pytest.approx(ground.y[48] + 4 * STEP)


def test_no_obstacles_and_nothing_uneven():
    ground = make_ground(world(("flat", 1), roughness=0.0), np.random.default_rng(0))
    assert not ground.obstacles and not ground.boxes and len(set(ground.y)) == 1


@pytest.mark.parametrize("kind, size, name", [
    ("pit", 2, "small_pit"), ("pit", 3, "medium_pit"), ("pit", 4, "large_pit"), ("stump", 1.0, "small_stump"),
    ("stump", 1.5, "medium_stump"), ("stump", 2.1, "large_stump"), ("stairs", 3, "small_stairs"),
    ("stairs", 4, "medium_stairs"), ("stairs", 4.2, "large_stairs")])
def test_sizes_have_names(kind, size, name):
    assert walker.size_name(kind, size) == name


@pytest.mark.parametrize("data, said", [
    ({"course": [{"kind": "stump", "size": 7}]}, "course[0]: the size of stump is 0.1 to 5, not 7"),
    ({"course": [{"kind": "flat", "size": 3}, {"kind": "pit", "size": 2, "steps": 3}]}, "course[1]: steps is for"),
    ({"course": [{"kind": "stairs up", "size": 1, "steps": 9}] * 4}, "up to 171 terrain steps, and there are 160"),
    ({"course": [{"kind": "lava", "size": 1}]}, "lava"), ({"roughness": 11}, "roughness"),
    ({"start_from": "pit"}, "there is no such setting")])
def test_what_cannot_be_is_said(data, said):
    none, complaints = check_world(WalkerWorld, data)
    assert none is None and any(said in str(complaint) for complaint in complaints), complaints


def test_random_courses_fit():
    generator = random.Random(0)
    for _ in range(50):
        made = random_world(WalkerWorld, generator, fill=0.9)
        ground = make_ground(made, np.random.default_rng(0))
        assert walker.course_length(made) <= 160 and len(ground.y) == STEPS
        if made.course:
            assert len(ground.obstacles) == sum(one.kind != "flat" for one in made.course)


def heuristic(game, steps=1600):
    """The walk of Gymnasium's own heuristic."""
    player, action, total = BipedalWalkerHeuristics(), np.zeros(4, np.float32), 0.0
    for _ in range(steps):
        reward, over = game.step(np.clip(action, -1, 1).astype(np.float32))
        total += reward
        if over:
            break
        action = player.step_heuristic(game.observe("vector"))
    return total


def test_objectives_and_conditions():
    """On even ground Gymnasium's heuristic reaches the finish, for the 300 that it is worth; and it passes a stump."""
    game = Course()
    game.reset(world(("flat", 100), roughness=0.0), np.random.default_rng(2))
    assert heuristic(game, 2000) > 300 and not game.conditions
    assert game.achieved == game.possible == {"walk_10", "walk_50", "walk_100"}
    low = world(("stump", 0.1), roughness=0.0)
    game.reset(low, np.random.default_rng(1))
    assert game.possible == {"walk_10", "walk_50", "walk_100", "pass_small_stump"} and not game.conditions
    seen = []
    step = game.step
    game.step = lambda action: seen.append(bool(game.conditions)) or step(action)
    heuristic(game, 500)
    assert ("pass_small_stump" in game.achieved) and any(seen) and not seen[0]
    assert game.env.hull.position[0] < walker.FINISH


def test_a_goal_and_a_length_cut_an_episode():
    venv = Walker().make_vec([world(("flat", 5), length=20), world(("flat", 5), goal="walk_10"), None], num_envs=3)
    assert venv.lengths == (20, 2000, 2000)


def test_warnings_name_what_is_without_effect():
    fields = {made: {warning.field for warning in Walker().warnings(made)} for made in (
        world(("pit", 2), goal="pass_large_pit"), world(("pit", 2), gap=3), world(("pit", 2), ("pit", 2), gap=3))}
    assert list(fields.values()) == [{"goal"}, {"gap"}, set()]


def test_without_the_package_nothing_breaks_but_playing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'envgen_nb\[walker\]'"):
        walker.check_installed()
    text = first_prompt(load_templates(), get_simulator("walker"))
    assert "BipedalWalker" in text and "stairs up" in text and all(kind in text for kind in walker.LIMITS)
    assert walker.Segment(kind="pit", size=2).steps is None


def test_a_whole_run_of_it(tmp_path):
    settings = make_settings(
        simulator="walker", num_cycles=1, num_worlds=3, cycle_steps=1024, final_steps=512, evaluation_runs=1,
        evaluation_episodes=2, threads=1, preset_options={"num_envs": 4, "rollout_steps": 64, "minibatches": 4})
    assert settings.preset == "vector" and make_settings(simulator="walker").agent_preset.algorithm.gae_lambda == 0.9
    run = RunFolder(create_run(settings, tmp_path / "run").path)
    events = list(run_cycles(run.path))
    assert run.finished() and (run.path / "cycle-1" / "worlds.png").stat().st_size > 1_000
    measured = [event for event in events if isinstance(event, Evaluated)]
    assert all(set(event.success) == set(Walker.objectives) for event in measured)
