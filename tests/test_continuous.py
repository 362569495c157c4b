"""Continuous actions: conformance, bits, checkpoints, refusals, and a whole run that is killed and goes on."""
import copy
import io
import math
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import ClipAction
from pydantic import Field

from envgen_nb.agent import ppo
from envgen_nb.agent.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envgen_nb.agent.clips import record
from envgen_nb.agent.continuous import GAUSSIAN
from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import RandomLearner, generators, learners
from envgen_nb.agent.networks import Policy
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer, train
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.examples import Ice, IceWorld
from envgen_nb.game.simple import Game, SimpleSimulator
from envgen_nb.game.world import World

SMALL = get_preset("vector", num_envs=8, rollout_steps=32, minibatches=4, epochs=2, learning_rate=1e-3)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name="ppo", seed=1, preset=SMALL, length=20):
    venv = Ice().make_vec([None, IceWorld(distance=0.3)], preset.num_envs, seed, length=length)
    kind = learners.find(name).for_game(Ice(), preset)
    return kind(preset, venv.single_observation_space, venv.single_action_space, seed), venv


def bits(learner):
    return b"".join(value.numpy().tobytes() for value in learner.policy.state_dict().values())


def test_the_contract():
    check_simulator(Ice(), length=8)


class Outside(Ice):
    "It plays actions that are outside the bounds."
    def make_vec(self, *arguments, **options):
        venv = super().make_vec(*arguments, **options)
        venv.checked_actions = lambda actions: np.asarray(actions)
        return venv


@pytest.mark.parametrize("changes, said", [
    ({"action_space": spaces.Box(-1, 1, (3,), np.float32)}, "a number for each name"),
    ({"action_space": spaces.Box(-np.inf, 1, (2,), np.float32)}, "finite"),
    ({"action_space": spaces.Box(-1, 1, (2,), np.float64)}, "float32"),
    ({"action_space": spaces.MultiDiscrete([2, 2])}, "Discrete or a Box"), ({"keys": {"push up": "ArrowUp"}}, "key")])
def test_what_breaks_the_contract_is_named(changes, said):
    with pytest.raises(AssertionError, match=said):
        check_simulator(type("Changed", (Ice,), changes)())


def test_actions_outside_the_bounds_are_refused():
    with pytest.raises(AssertionError, match="is not refused"):
        check_simulator(Outside(), length=8)
    venv = Ice().make_vec(num_envs=2)
    venv.reset()
    for wrong in (np.full((2, 2), 1.5), np.full((2, 2), np.nan), np.zeros((2, 3)), np.zeros((2, 2), int)):
        with pytest.raises(ValueError, match="actions"):
            venv.step(wrong)


def test_the_probability_is_that_of_the_action_before_it_is_clipped():
    learner, venv = make()
    with torch.no_grad():
        learner.policy.log_std.fill_(1.0)                          # most actions are outside
    taken, step = [], venv.step
    venv.step = lambda actions: taken.append(actions.copy()) or step(actions)
    trainer = Trainer(learner, venv)
    before = copy.deepcopy(learner.policy)
    trainer.rollout()
    rollout, played = trainer.kept, torch.from_numpy(np.stack(taken))
    assert (rollout.actions.abs() > 1).float().mean() > 0.5
    assert torch.equal(played, rollout.actions.clamp(-1, 1)) and played.abs().max() == 1
    with torch.no_grad():
        mean, log_std = before(rollout.obs.flatten(0, 1))[0].chunk(2, -1)
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(rollout.actions.flatten(0, 1)).sum(-1)
    torch.testing.assert_close(rollout.extras["log_probs"].flatten(), expected, rtol=1e-5, atol=1e-5)


def test_the_learner_is_the_chapter():
    learner, venv = make(seed=3)
    policy = Policy(SMALL.network, venv.single_observation_space, venv.single_action_space, generators(3, 1)[0])
    ppo.train(ClipAction(make(seed=3)[1]), policy, SMALL.algorithm, 3, seed=3, distribution=GAUSSIAN)
    train(learner, venv, 3 * SMALL.batch)
    for name, value in policy.state_dict().items():
        torch.testing.assert_close(learner.policy.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_observations_are_normalised_by_what_was_seen_before():
    learner, venv = make()
    trainer, norm = Trainer(learner, venv), learner.policy.encoder.norm
    seen = []
    for _ in range(3):
        trainer.rollout()
        seen.append(trainer.kept.obs.flatten(0, 1).double().clone())
        every = torch.cat(seen)
        assert norm.count == len(every)
        torch.testing.assert_close(norm.mean, every.mean(0))
        torch.testing.assert_close(norm.var, every.var(0, correction=0))
    before = bits(learner)
    evaluate(learner, Ice().make_vec(num_envs=4, seed=7, episodes=1, length=10), runs=2, seed=0)
    assert bits(learner) == before                                 # a measurement changes nothing


@pytest.mark.parametrize("name", ["ppo", "ppo-memory", "random"])
def test_saved_and_loaded_it_goes_on_with_the_same_bits(name, tmp_path):
    whole, venv = make(name)
    trainer = Trainer(whole, venv)
    for _ in range(2):
        trainer.rollout()
    save_checkpoint(tmp_path / "half.pt", trainer.state_dict())
    rest = [trainer.rollout() for _ in range(2)]
    other, venv = make(name, seed=9)
    again = Trainer(other, venv)
    again.venv.reset(seed=1)
    again.load_state_dict(load_checkpoint(tmp_path / "half.pt"))
    more = [again.rollout() for _ in range(2)]
    assert [r.metrics for r in rest] == [m.metrics for m in more]
    assert torch.equal(trainer.kept.actions, again.kept.actions)
    if name != "random":
        assert bits(whole) == bits(other)
        assert bits(copy.deepcopy(whole)) == bits(pickle.loads(pickle.dumps(whole))) == bits(whole)


def test_a_checkpoint_of_other_actions_is_refused():
    learner, _ = make()
    other = PPO(SMALL, learner.observation_space, spaces.Box(-1, 1, (3,), np.float32), 0)
    with pytest.raises(CheckpointError, match="other observations or actions"):
        other.load_state_dict(learner.state_dict())
    discrete = PPO(SMALL, learner.observation_space, spaces.Discrete(2), 0)
    with pytest.raises(CheckpointError, match="other observations or actions"):
        discrete.load_state_dict(learner.state_dict())
    plain = PPO(SMALL.replace(normalize_obs=False), learner.observation_space, learner.action_space, 0)
    with pytest.raises(CheckpointError, match="normalize_obs"):
        plain.load_state_dict(learner.state_dict())


def test_the_preset_plays_discrete_actions_too():
    space = spaces.Box(-1, 1, (3,), np.float32)
    learner = PPO(SMALL, space, spaces.Discrete(4), 0)
    actions, _, _ = learner.act(torch.zeros(5, 3))
    assert actions.dtype == torch.int64 and learner.probabilities(torch.zeros(5, 3)).shape == (5, 4)


@pytest.mark.parametrize("name", ["ppo-rare", "ad"])
def test_learners_of_discrete_actions_say_so(name):
    with pytest.raises(ValueError, match="discrete actions, and here they are continuous"):
        make(name)


@pytest.mark.parametrize("changes, observations, actions, said", [
    ({"prediction_coef": 1.0}, (4,), spaces.Box(-1, 1, (2,)), "prediction_coef is for discrete"),
    ({}, (4,), spaces.Box(-np.inf, np.inf, (2,)), "finite bounds"), ({}, (4, 4), spaces.Box(-1, 1, (2,)), "vectors"),
    ({}, (4,), spaces.Box(-1, 1, (2, 2)), r"Box \(A,\)")])
def test_what_cannot_be_played_is_refused(changes, observations, actions, said):
    with pytest.raises(ValueError, match=said):
        PPO(SMALL.replace(**changes), spaces.Box(-1, 1, observations, np.float32), actions, 0)


def test_random_actions_and_recordings():
    venv = Ice().make_vec(num_envs=2)
    learner = RandomLearner(SMALL, venv.single_observation_space, venv.single_action_space, 0)
    found = evaluate(learner, Ice().make_vec(num_envs=4, episodes=1, length=15), runs=2, seed=0)
    assert found.lengths.tolist() == [15] * 4
    for agent in (None, make()[0]):
        recording = record(Ice(), IceWorld(distance=0.3), agent, seed=2, steps=6, tell=True)
        assert recording.length == 6 and all(venv.single_action_space.contains(one) for one in recording.actions)
        assert recording.probabilities is None
        again = record(Ice(), IceWorld(distance=0.3), agent, seed=2, steps=6)
        assert np.array_equal(recording.actions, again.actions)


class PendulumWorld(World):
    gravity: float | None = Field(None, ge=0.0, le=20.0, description="gravity, m/s²; 10 in the original game")


class Pendulum(Game):
    "Gymnasium's Pendulum-v1, as the guide `add_game.md` has it."

    def reset(self, world, random):
        self.achieved, self.up = set(), 0
        gravity = 10.0 if world.gravity is None else world.gravity
        self.env = gymnasium.make("Pendulum-v1", g=gravity, max_episode_steps=-1, render_mode="rgb_array").unwrapped
        self.seen, _ = self.env.reset(seed=int(random.integers(2 ** 31)))

    def step(self, action):
        self.seen, reward, *_ = self.env.step(action)
        self.up = self.up + 1 if self.seen[0] > 0.95 else 0
        self.achieved |= {"rise"} if self.up else set()
        self.achieved |= {"stay_up"} if self.up >= 20 else set()
        return float(reward), False

    def observe(self, obs):
        return self.seen

    def picture(self):
        angle = math.atan2(self.seen[1], self.seen[0])
        picture = np.full((64, 64, 3), 255, np.uint8)
        for r in np.linspace(0, 28, 60):
            picture[int(32 - r * math.cos(angle)), int(32 - r * math.sin(angle))] = (200, 60, 60)
        return picture


class Pendulums(SimpleSimulator):
    name, game, length = "pendulum", Pendulum, 200
    task = "A pendulum is swung up by a motor that is too weak to lift it at once, and should stay up."
    rules = ("The motor turns with at most 2 Nm.",)
    objectives, requires = ("rise", "stay_up"), {"stay_up": ("rise",)}
    actions, keys, action_space = ("torque",), {}, spaces.Box(-2, 2, (1,), np.float32)
    vocabularies = {"default": PendulumWorld}
    spaces = {"vector": spaces.Box(-8, 8, (3,), np.float32)}
    defaults = {"preset": "vector"}
    practice_settings = {name: [{"gravity": 2.0}, {"gravity": 5.0}] for name in objectives}

    def describe(self, world=None, seed=0):
        game = self.start(world, seed)
        return {"degrees from upright": round(math.degrees(math.atan2(game.seen[1], game.seen[0])), 1)}


def test_an_environment_of_gymnasium_keeps_the_contract():
    check_simulator(Pendulums(), length=8)


def test_gymnasiums_own_vector_environment_can_be_learned_from():
    venv = gymnasium.make_vec("Pendulum-v1", num_envs=SMALL.num_envs, vectorization_mode="sync",
                              vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    learner = PPO(SMALL, venv.single_observation_space, venv.single_action_space, 0)
    trainer = train(learner, venv, 2 * SMALL.batch)
    assert trainer.learner.steps == 2 * SMALL.batch
    buffer = io.BytesIO()
    torch.save(learner.state_dict(), buffer)
