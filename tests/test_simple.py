"""Games of one small class: episodes, seeds, saved states, and a whole run of one."""
import numpy as np
import pytest
from gymnasium import spaces
from pydantic import Field

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simple import Game, SimpleSimulator
from envgen_nb.game.simulator import games
from envgen_nb.game.world import World


class StairsWorld(World):
    height: int | None = Field(None, ge=1, le=8, description="how many steps up to the door")
    door: bool | None = Field(None, description="whether there is a door to go through")


class Stairs(Game):
    """Up wins in the end; a slippery stair, drawn as it is stepped on, throws one down."""

    def reset(self, world, random):
        self.random, self.at, self.achieved = random, 0, set()
        self.colour, self.height = random.integers(256, size=3), world.height or int(random.integers(3, 9))
        self.possible = {"climb"} if world.door is False else {"climb", "door"}

    def step(self, action):
        self.at = 0 if self.random.random() < 0.1 else max(self.at + (1 if action else -1), 0)
        if self.at < self.height:
            return -0.01, False
        self.achieved |= {"climb", "door"} & self.possible
        return 1.0, True

    def observe(self, obs):
        seen = np.array([self.at, self.height, self.colour[0]], np.float32)
        return {"stairs": seen} if obs == "symbols" else np.full((8, 8, 3), self.at + self.colour // 2, np.uint8)

    def picture(self):
        return np.full((8, 8, 3), self.colour, np.uint8)


class Building(SimpleSimulator):
    name, game, length = "building", Stairs, 30
    task, rules = "Somebody climbs stairs.", ("One in ten stairs is slippery.",)
    objectives, actions = ("climb", "door"), ("down", "up")
    keys = {"down": "ArrowDown", "up": "ArrowUp"}
    vocabularies = {"default": StairsWorld}
    spaces = {"symbols": spaces.Dict({"stairs": spaces.Box(0, 255, (3,), np.float32)}),
              "pixels": spaces.Box(0, 255, (8, 8, 3), np.uint8)}
    requires = {"door": ("climb",)}

    def describe(self, world=None, seed=0):
        return {"height": self.start(world, seed).height}

    def score(self, success_rates):
        return success_rates["climb"]


games.register("building", "test_simple:Building")


def test_it_keeps_the_contract():
    check_simulator(Building())
    assert Building.observations == ("symbols", "pixels")


class Misspelt(Stairs):
    def step(self, action):
        self.achieved |= {"clim"}
        return 0.0, False


@pytest.mark.parametrize("change, wrong", [
    ({"game": Misspelt}, "'clim' is not one of"), ({"rules": ("One in ten stairs is slippery.")}, "rules is a text"),
    ({"requires": {"dor": ("climb",)}}, "requires: 'dor' is no objective"),
    ({"practice_settings": {"clim": [{"height": 1}, {"height": 2}]}}, "practice_settings: 'clim' is no objective")])
def test_what_is_misspelt_is_refused(change, wrong):
    with pytest.raises((AssertionError, ValueError), match=wrong):
        check_simulator(type("Wrong", (Building,), change)())


class Deadly(Stairs):
    def step(self, action):
        self.death = "a fall"
        return 0.0, True


def test_a_death_is_of_its_episode():
    """The next one begins without it, though the game does not take it back; worlds are as long as the game."""
    game = type("Well", (Building,), {"game": Deadly, "deaths": ("a fall",)})()
    venv = game.make_vec(num_envs=1, seed=0)
    venv.reset()
    assert venv.step([1])[-1]["results"]["death"].tolist() == [1] and venv.running["death"].tolist() == [0]
    assert game.defaults["world_length"] == make_settings(simulator="building").world_length == 30
    game.deaths = ("thirst",)
    with pytest.raises(ValueError, match="death: 'a fall' is not one of"):
        venv.step([1])


def test_an_episode_is_its_seed_its_world_and_its_actions():
    """What was drawn in the middle of an episode is drawn again after a restore, in another environment, too."""
    actions = np.random.default_rng(0).integers(2, size=(200, 4))
    venv, other = (Building().make_vec([None, StairsWorld(height=8)], num_envs=4, seed=k, length=25) for k in (7, 8))
    venv.reset(), other.reset()
    for row in actions[:60]:
        venv.step(row)
    for rest in (actions[60:130], actions[130:]):
        seen = other.set_state(venv.get_state())
        assert all(np.array_equal(value, venv._observe()[name]) for name, value in seen.items())
        assert all(np.array_equal(value, other.running[name]) for name, value in venv.running.items())
        for row in rest:
            one, two = venv.step(row), other.step(row)
            assert np.array_equal(one[0]["stairs"], two[0]["stairs"])
            assert all(np.array_equal(one[k], two[k]) for k in (1, 2, 3)) and one[4].keys() == two[4].keys()


def test_what_an_episode_cannot_reach_is_told():
    venv = Building().make_vec([StairsWorld(door=False), StairsWorld(height=1)], num_envs=2, seed=1, episodes=4)
    venv.reset()
    told = []
    while not venv.finished.all():
        infos = venv.step([1, 1])[-1]
        told += [infos["results"]] if "results" in infos else []
    assert all(results["possible"].tolist() == [[True, False], [True, True]] for results in told)
    assert any(results["unlocked"][1].all() for results in told)
    assert not any(results["unlocked"][0, 1] for results in told)


@pytest.mark.parametrize("change", [
    lambda state: np.append(state, 0), lambda state: np.append(state[:-1], 2), lambda state: -state,
    lambda state: state[:11], lambda state: np.where(np.arange(len(state)) == 11, 2**40, state),
    lambda state: np.where(np.arange(len(state)) == 10, 2, state), lambda state: np.where(state > 0, 0, state),
    lambda state: np.where(np.arange(len(state)) == 0, 1, state)])
def test_a_state_is_checked(change):
    venv = Building().make_vec(num_envs=1, seed=3)
    with pytest.raises(RuntimeError, match="reset"):
        venv.get_state()
    venv.reset()
    venv.step([1])
    before, (state,) = venv.get_state(), venv.get_state()
    with pytest.raises(ValueError, match="no state of building"):
        venv.set_state([change(np.frombuffer(state, np.int64)).astype(np.int64).tobytes()])
    assert venv.get_state() == before
    with pytest.raises(ValueError, match="need 1 states"):
        venv.set_state(before * 2)


def test_a_whole_run_of_it(tmp_path):
    settings = make_settings(
        simulator="building", num_cycles=2, num_worlds=2, cycle_steps=4096, final_steps=2048, evaluation_runs=2,
        evaluation_episodes=8, threads=1, seed=1,
        preset_options={"num_envs": 16, "rollout_steps": 32, "minibatches": 2})
    events = list(run_cycles(create_run(settings, tmp_path / "run").path))
    run = RunFolder(tmp_path / "run")
    assert all("drawn at random" in purpose for purpose in run.purposes("cycle-1"))      # by `rules`: no `practice`
    assert run.worlds("cycle-1") != run.worlds("cycle-2")
    rates = [event.success["climb"][0] for event in events if isinstance(event, Evaluated)]
    assert len(rates) == 4 and rates[-1] > rates[0]                   # to climb is easily learned
