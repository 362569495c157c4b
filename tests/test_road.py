"""The road: its traffic is highway-env's, its scenes are as they are written, and a run of it can be killed."""
import contextlib
import math
import random
import shutil

import numpy as np
import pytest
from states import same

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated, Training
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.base import DesignerError
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world, random_world
from envgen_nb.simulators.road.picture import CLASSES
from envgen_nb.simulators.road.simulator import _PRACTICE, Drive, Road, RoadWorld, Wheel, make_scene
from envgen_nb.simulators.road.traffic import AGENT, CRASHES, LENGTH, MERGING, STEP, choose, new_cars, put, simulate

PLAIN = {"density": 1, "aggressive": 0, "ahead": "traffic", "merging": 0}      # highway-fast-v0
SMALL = dict(simulator="road", num_cycles=1, num_worlds=2, cycle_steps=1024, final_steps=512, evaluation_runs=1,
             evaluation_episodes=4, threads=1, preset_options={"num_envs": 4, "rollout_steps": 64, "minibatches": 4})


def world(**settings):
    made, complaints = check_world(RoadWorld, settings)
    assert made is not None, complaints
    return made


def test_it_keeps_the_contract(long):
    road = get_simulator("road")
    if not long:
        road.observations = ("vector",)
    check_simulator(road, length=5)


@pytest.mark.long
def test_it_keeps_the_contract_with_continuous_actions():
    check_simulator(Wheel(), length=5)


# --- the traffic


def their_road(cars, lanes, merging):
    """The same cars on a road of highway-env, the agent's first."""
    from highway_env.road.road import Road as TheirRoad
    from highway_env.road.road import RoadNetwork
    from highway_env.vehicle.behavior import IDMVehicle
    from highway_env.vehicle.controller import MDPVehicle
    from highway_env.vehicle.kinematics import Vehicle

    class Driver(IDMVehicle):
        def act(self, action=None):
            if self.road.time < self.brake_at or self.crashed:
                return super().act(action)
            Vehicle.act(self, {"steering": self.steering_control(self.target_lane_index),
                               "acceleration": max(-6, -self.speed / STEP)})

    network = RoadNetwork.straight_road_network(lanes + merging, speed_limit=30)
    network.get_lane(("0", "1", lanes + merging - 1)).forbidden = merging
    road = TheirRoad(network, np_random=np.random.default_rng(0))
    for car in cars:
        place, speed = [float(car["x"]), float(car["y"])], float(car["speed"])
        if car["kind"] == AGENT:
            vehicle = MDPVehicle(road, place, 0, speed, target_speeds=np.linspace(0, 30, 7))
        else:
            vehicle = Driver(road, place, 0, speed, target_speed=float(car["target_speed"]), timer=float(car["timer"]))
            vehicle.DELTA, vehicle.TIME_WANTED, vehicle.DISTANCE_WANTED = car["exponent"], car["headway"], car["jam"]
            vehicle.LANE_CHANGE_MAX_BRAKING_IMPOSED, vehicle.brake_at = car["imposed"], car["brake_at"]
            vehicle.crashed, vehicle.merges = bool(car["crashed"]), car["kind"] == MERGING
            vehicle.LENGTH = float(car["length"])
            vehicle.diagonal = math.hypot(vehicle.LENGTH, vehicle.WIDTH)
        road.vehicles.append(vehicle)
    return road


SCENES = [PLAIN, {"lanes": 4, "density": 2, "aggressive": 1, "start_speed": 12},
          {"lanes": 2, "braking": 0.5, "ahead": "braking car", "gap": 60}, {"ahead": "stopped car", "aggressive": 0.5},
          {"lanes": 1, "density": 0.5, "speed": 28}, {"lanes": 2, "merging": 3}, {"density": 2, "merging": 1}]


@pytest.mark.parametrize("settings", SCENES)
def test_the_traffic_is_highway_envs(settings, long):
    """Car by car: where it is, its heading, its speed, and whether it has crashed, also after the agent's crash.

    Each second begins from their numbers: a car that rolls back steers by a rule that is unstable (it divides by a
    speed near zero), and what two programs round differently in the 16th digit is millimetres after some seconds."""
    pytest.importorskip("highway_env")
    for seed in range(12 if long else 1):
        cars, lanes, _, end = make_scene(world(**settings), np.random.default_rng(seed))
        road, actions = their_road(cars, lanes, end > 0), np.random.default_rng(seed)
        for second in range(15):
            action = int(actions.choice(5, p=[0.1, 0.3, 0.1, 0.3, 0.2]))
            road.vehicles[0].act(("LANE_LEFT", "IDLE", "LANE_RIGHT", "FASTER", "SLOWER")[action])
            choose(cars[0], action, lanes)
            for k in range(5):
                road.time = second + k * STEP
                for vehicle in road.vehicles[1:]:
                    if vehicle.merges:
                        vehicle.enable_lane_change = vehicle.position[0] >= end - 80
                road.act()
                road.step(STEP)
            simulate(cars, lanes, end - 80 if end > 0 else math.inf, float(second), 5)
            theirs = [(*one.position, one.heading, one.speed, one.crashed) for one in road.vehicles]
            mine = np.stack([cars[name] for name in ("x", "y", "heading", "speed", "crashed")], 1)
            assert np.allclose(mine, theirs, rtol=0, atol=1e-5), (seed, second)
            for name, values in zip(("x", "y", "heading", "speed"), np.transpose(theirs), strict=False):
                cars[name] = values


def test_a_plain_world_is_highway_fast():
    """The places of all cars, the rewards and the end of the episode are those of the environment, from its seed on."""
    pytest.importorskip("highway_env")
    import gymnasium
    import highway_env  # noqa: F401 (registers the environments)
    from gymnasium.utils import seeding
    targets = {"type": "DiscreteMetaAction", "target_speeds": np.linspace(0, 30, 7)}
    stock = gymnasium.make("highway-fast-v0", config={"action": targets}).unwrapped
    for seed in range(3):
        stock.reset(seed=seed)
        for vehicle in stock.road.vehicles:
            vehicle.check_collisions = True               # which its fast variant leaves out for the others
        game, actions = Drive(), np.random.default_rng(seed)
        game.reset(world(**PLAIN), seeding.np_random(seed)[0])
        for _ in range(20):
            assert np.allclose(game.cars["x"], [one.position[0] for one in stock.road.vehicles], rtol=0, atol=1e-5)
            action = int(actions.choice(5, p=[0.1, 0.4, 0.1, 0.3, 0.1]))
            _, reward, over, *_ = stock.step(action)
            mine, ended = game.step(action)
            assert ended == over and mine == pytest.approx(reward, abs=1e-6)
            if over:
                break


# --- scenes


def test_a_scene_is_as_it_is_written():
    cars, lanes, density, end = make_scene(
        world(lanes=2, density=1.5, ahead="stopped car", gap=95, speed=15, start_speed=20, aggressive=1, merging=2),
        np.random.default_rng(1))
    assert (lanes, density, end - cars[0]["x"]) == (2, 1.5, 280) and cars[0]["lane"] == 1 and cars[0]["speed"] == 20
    stopped = cars[cars["crashed"] > 0][0]
    assert stopped["x"] - cars[0]["x"] == pytest.approx(100) and stopped["lane"] == 1 and stopped["speed"] == 0
    others = cars[1:][(cars[1:]["kind"] == 1) & (cars[1:]["crashed"] == 0)]
    assert set(others["speed"]) == {15} and set(others["target_speed"]) == {15 * 1.25}
    assert not (others["x"][others["lane"] == 1] < stopped["x"]).any() and (cars["kind"] == MERGING).sum() == 2
    assert len(make_scene(world(**PLAIN | {"density": 0}), np.random.default_rng(0)).cars) == 1


def test_what_is_rare_in_the_ordinary_game():
    found = [Road().describe(None, seed) for seed in range(400)]
    for name in ("stopped", "braking", "merging"):
        assert 0.05 < np.mean([one[name] > 0 for one in found]) < 0.15
    assert {one["density"] for one in found} == {0.5, 1, 1.5}


@pytest.mark.parametrize("data, said", [
    ({"ahead": "stopped car", "gap": 40}, "gap: a stopped car is at least 87.5 m ahead of a car with 25 m/s, not 40"),
    ({"gap": 40}, "gap: a stopped car is at least 87.5 m ahead"),
    ({"ahead": "car", "gap": 30, "speed": 10}, "gap: a car is at least 37.5 m ahead"),
    ({"ahead": "braking car", "gap": 40, "start_speed": 30}, "at least 60 m"), ({"lanes": 9}, "lanes"),
    ({"ahead": "cow"}, "cow"), ({"weather": "rain"}, "there is no such setting")])
def test_what_cannot_be_is_said(data, said):
    none, complaints = check_world(RoadWorld, data)
    assert none is None and any(said in str(complaint) for complaint in complaints), complaints


@pytest.mark.parametrize("settings", [{"speed": 5, "lanes": 1, "density": 1}, {"speed": 10}, {"density": 1, "speed": 8},
                                      *(one for made in _PRACTICE.values() for one in made)])
def test_a_driver_who_brakes_from_the_start_is_not_in_a_crash_at_once(settings):
    """The traffic is slow, or stands: a world must leave the agent time for it."""
    with contextlib.closing(Road().make_vec([world(**settings)], num_envs=100, seed=3, episodes=1)) as venv:
        venv.reset()
        assert not venv.step(np.full(100, len(Road().actions) - 1))[2].any()


def test_warnings_name_what_is_without_effect():
    for settings, field in (({"ahead": "traffic", "gap": 50}, "gap"), ({"density": 0, "braking": 0.5}, "braking"),
                            ({"density": 1, "goal": "no_crash_light"}, "goal"),
                            ({"merging": 0, "goal": "pass_merge"}, "goal"),
                            ({"merging": 0, "lanes": 1, "goal": "pass_car"}, "goal")):
        assert [warning.field for warning in Road().warnings(world(**settings))] == [field]
    generator = random.Random(0)
    for _ in range(30):
        made = random_world(RoadWorld, generator, fill=0.7)
        if made.goal and not Road().warnings(made):        # then some episodes have the objective
            assert any(made.goal in Road().start(made, seed).possible for seed in range(60)), made


def drive(scene, choice, seed=0):
    game, over, steps = Road().start(world(**scene), seed), False, 0
    while not over and steps < 30:
        _, over = game.step(choice(game))
        steps += 1
    return game


def test_objectives():
    fast = drive(PLAIN | {"density": 0.5, "lanes": 1, "ahead": "stopped car", "gap": 120}, lambda game: 1)
    assert fast.death == CRASHES[0] and "keep_lane" not in fast.achieved
    slow = drive(PLAIN | {"lanes": 1, "ahead": "stopped car", "gap": 120}, lambda game: 4 if game.closing_in else 1)
    assert slow.achieved == {"brake_in_time", "no_crash_medium"} and slow.cars[0]["speed"] < 0.1
    around = drive(PLAIN | {"density": 0, "lanes": 2, "ahead": "stopped car", "gap": 120},
                   lambda game: (2 if game.cars[0]["lane"] == 0 else 0) if game.time < 0.5 else 1)
    assert around.achieved == around.possible - {"brake_in_time"} == {
        "keep_lane", "pass_car", "pass_stopped", "no_crash_light"}
    merge = drive(PLAIN | {"density": 0, "merging": 1, "lanes": 2}, lambda game: 4 if game.gap < 40 else 1)
    assert {"pass_merge", "no_crash_light"} <= merge.achieved
    assert "no_crash_medium" not in drive(PLAIN | {"length": 10}, lambda game: 4).possible


@pytest.mark.parametrize("place, kind", [((140, 0, 0), 1), ((110, 1, 25), 2), ((86, 0, 30), 3)])
def test_crashes_have_a_kind(place, kind):
    """A car that stands ahead, one beside into which the agent changes, and one that comes from behind."""
    cars = new_cars(2)
    put(cars[0], 110, 0, 25)
    put(cars[1], *place)
    cars["kind"], cars["free"], cars["brake_at"] = (AGENT, 1), 0, np.inf
    cars[1]["exponent"], cars[1]["jam"], cars[1]["headway"] = 400, 0, 0        # keeps its speed, whatever is ahead
    if kind == 3:
        cars[0]["target_speed"] = 0
    if kind == 2:
        cars[0]["target_lane"] = 1
    simulate(cars, 2, math.inf, 0.0, 25)
    assert cars[0]["crashed"] and cars[0]["hit"] == kind


def test_results_say_what_ended_an_episode():
    scene = world(**PLAIN | {"lanes": 1, "ahead": "stopped car", "gap": 90})
    venv = Road().make_vec([scene], num_envs=2, seed=1, obs="vector")
    venv.reset()
    for _ in range(10):
        *_, terminated, _, infos = venv.step(np.ones(2, int))
        if terminated.all():
            break
    assert infos["results"]["death"].tolist() == [1, 1] and infos["results"]["death"].dtype == np.uint8


# --- pictures and labels


def test_labels_are_the_scene():
    """Masks have the picture's outlines, and an object's pixels are where it is; numbers are those of the state."""
    scene = world(lanes=2, density=1.5, ahead="stopped car", gap=100, merging=2)
    game = Road().start(scene, 3)
    for action in (1, 2, 1):
        found, agent = game.labels(), game.cars[0]
        assert (found.instances > 0).tolist() == (found.classes >= 3).tolist()
        own = found.instances == 1
        assert (found.classes[own] == CLASSES.index("own car")).all() and own.any()
        for k in range(1, len(game.cars)):
            seen = np.argwhere(found.instances == k + 1)
            if len(seen) > 20:                            # a car at the left is at the left
                assert np.sign(seen[:, 1].mean() - 120) == np.sign(found.objects["right"][k]) or (
                    abs(found.objects["right"][k]) < 1)
        assert found.state["left_mark"] + found.state["right_mark"] == pytest.approx(4)
        ahead = game.cars[(game.cars["lane"] == agent["lane"]) & (game.cars["x"] > agent["x"])]
        assert found.state["distance_ahead"] == pytest.approx(min(ahead["x"].min() - agent["x"] - LENGTH, 150), abs=0.1)
        game.step(action)
    assert found.classes.shape == (160, 240) and set(np.unique(found.classes)) <= set(range(len(CLASSES)))


def test_the_prompt_is_made_from_the_world():
    text = first_prompt(load_templates(), get_simulator("road"))
    assert all(name in text for name in (*RoadWorld.model_fields, *Road.objectives))
    assert "stopped car" in text and "so that a crash can be avoided" in text


# --- a run


def test_a_run_by_hand_that_is_killed(tmp_path, monkeypatch):
    """Its prompt is answered by a file; a copy of the folder in the middle of training, as a kill leaves it, goes on to
    the same bits."""
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    hand = tmp_path / "hand"
    settings = make_settings(**SMALL, designer="manual", designer_options={
        "folder": str(hand), "timeout": 0.05, "poll": 0.01})
    assert settings.preset == "vector"
    path = create_run(settings, tmp_path / "run").path
    with pytest.raises(DesignerError, match="no reply came"):
        list(run_cycles(path))
    reply = "\n".join(f"Environment {k}:\n```json\n{made}\n```\nPurpose: to brake.\n" for k, made in enumerate(
        Road().practice("brake_in_time"), start=1))
    hand.joinpath("reply-cycle-1.md").write_text(reply)
    events, rollouts = [], 0
    for event in run_cycles(path):
        events.append(event)
        rollouts += isinstance(event, Training)
        if rollouts == 3 and not (tmp_path / "killed").exists():
            shutil.copytree(path, tmp_path / "killed")
    assert RunFolder(path).finished() and (path / "cycle-1" / "worlds.png").stat().st_size > 1_000
    measured = [event for event in events if isinstance(event, Evaluated)]
    assert measured and all(set(event.success) == set(Road.objectives) for event in measured)
    list(run_cycles(tmp_path / "killed"))
    assert same(*(load_checkpoint(one / "checkpoint.pt")["learner"]["policy"] for one in (path, tmp_path / "killed")))
    assert "death" in (path / "cycle-1" / "metrics.jsonl").read_text()
