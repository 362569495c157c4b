"""Every learner of the kit keeps the contract: kills and resume, evaluation, clips, what it remembers, other games."""

import contextlib

import gymnasium
import numpy as np
import pytest
import torch
from device import DEVICE
from gymnasium.vector import AutoresetMode
from states import same

from envgen_nb.agent.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envgen_nb.agent.clips import record
from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import learners
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.curriculum import EnvGen
from envgen_nb.game.simulator import get_simulator

SYMBOLS = get_preset("symbols", hidden=(16, 16), memory=8, num_envs=4, rollout_steps=32, epochs=1, minibatches=2,
                     phase_rollouts=2, phase_epochs=1, rarity_coef=1.0, retention_lr=2.5)
PIXELS = get_preset("laptop", hidden=(16, 16), embedding=8, heads=2, memory=8, num_envs=4, rollout_steps=16, epochs=1,
                    minibatches=2, phase_rollouts=2, phase_epochs=1, novelty_coef=0.0, rarity_coef=1.0)
CRAFTER = get_simulator("crafter")
WORLDS = CRAFTER.practice("collect_wood")[:1] + CRAFTER.practice("collect_stone")[:1]
PRESETS = [pytest.param(SYMBOLS, id="symbols"), pytest.param(PIXELS, id="pixels", marks=pytest.mark.long)]
NEW = ["ppo-memory", "ad", "ppo-rare"]
NAMES = [*NEW, *(pytest.param(name, marks=pytest.mark.long) for name in ("ppo", "random"))]   # others try them, too


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start(name, preset=SYMBOLS, seed=0, **changes):
    "A trainer in four games of Crafter that know two designed worlds."
    preset = preset.replace(**changes)
    venv = CRAFTER.make_vec([None], num_envs=preset.num_envs, seed=seed, obs=preset.obs, length=60)
    venv.add_worlds(WORLDS, 25)
    made = learners.find(name).for_game(CRAFTER, preset)
    learner = made(preset, venv.single_observation_space, venv.single_action_space, seed, DEVICE)
    return Trainer(learner, venv, EnvGen(preset.num_envs, 0, 0.5))


def rollouts(trainer, first, last):
    "Play and learn; a cycle of four rollouts begins with the first and with the fifth."
    for k in range(first, last):
        if k % 4 == 0:
            trainer.begin([1, 2], 4 * trainer.learner.preset.batch)
        trainer.rollout()


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_training_goes_on_with_the_same_bits(name, tmp_path, long):
    "Wherever it was killed, also while episodes of the original game wait for their turn."
    total = 6
    straight = start(name)
    rollouts(straight, 0, total)
    for stop in range(1, total) if long else (5,):
        trainer = start(name)
        rollouts(trainer, 0, stop)
        save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
        rebuilt = start(name, seed=0)
        rebuilt.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
        rollouts(rebuilt, stop, total)
        assert same(straight.state_dict(), rebuilt.state_dict()), f"killed after {stop} rollouts"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_it_plays_and_stays_as_it_was(name, preset):
    "Evaluations and clips are the same each time, and leave the learner as it was; threads change nothing."
    trainer = start(name, preset)
    learner = trainer.learner
    learner.speed_up(2)
    trainer.rollout()
    before, found = learner.state_dict(), []
    for _ in range(2):
        with contextlib.closing(CRAFTER.make_vec([None], num_envs=6, seed=9, obs=preset.obs, episodes=1,
                                                 length=40)) as venv:
            found.append(evaluate(learner, venv, runs=2, seed=5).to_dict())
    assert found[0] == found[1] and max(found[0]["lengths"]) <= 40
    clips = [record(CRAFTER, agent=learner, steps=12) for _ in range(2)]
    assert clips[0].length == 12 and all(map(np.array_equal, clips[0].frames, clips[1].frames))
    assert same(before, learner.state_dict())
    other = start(name, preset)
    other.rollout()
    assert same(other.state_dict(), trainer.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_the_probabilities_that_it_tells_are_those_it_draws_from(name):
    "Also with what it remembers, of which both know the same."
    trainer = start(name)
    learner = trainer.learner
    trainer.rollout()
    told = learner.probabilities(trainer.obs, trainer.carry)
    assert told.shape == (4, 17) and torch.allclose(told.sum(1), torch.ones(4))
    actions, _, extras = learner.act(trainer.obs, trainer.carry)
    if "log_probs" in extras:
        assert torch.allclose(told.gather(1, actions[:, None])[:, 0].log(), extras["log_probs"], atol=1e-6)
    if trainer.carry and name in ("ppo-memory", "ad"):
        assert not torch.equal(told, learner.probabilities(trainer.obs, learner.start(4)))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_remembered_begins_with_the_episode(name):
    "Where an episode ended in the last step of a rollout, and where a curriculum cut it, the carry is that of a start."
    trainer = start(name)
    trainer.begin([], 10 * SYMBOLS.batch)
    ends = 0
    for _ in range(4):
        fresh = trainer.learner.start(4)                # it may say when that was
        trainer.rollout()
        kept = trainer.kept
        over = (kept.terminated | kept.truncated)[-1]
        ends += int(over.sum())
        for key, value in trainer.carry.items():
            assert torch.equal(value[over], fresh[key][over])
            assert name != "ppo-memory" or (value[~over] != fresh[key][~over]).any(1).all()
    trainer.begin([1, 2], 10 * SYMBOLS.batch)
    assert same({key: value.clone() for key, value in trainer.carry.items()}, trainer.learner.start(4))


def test_a_rollout_tells_what_was_unlocked():
    "After each step, the last step of an episode included."
    trainer = start("ppo")
    trainer.venv.reset()
    seen, told, reached = [], trainer.venv.step, False

    def step(actions):
        found = told(actions)
        after = trainer.venv.unlocked
        if "results" in found[4]:
            ended = found[4]["_results"]
            after[ended] = found[4]["results"]["unlocked"][ended]
        seen.append(after)
        return found

    trainer.venv.step = step
    for _ in range(3):
        seen.clear()
        trainer.rollout()
        assert np.array_equal(trainer.kept.unlocked.numpy(), np.stack(seen))
        reached |= bool(trainer.kept.unlocked.any())
    assert reached


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [NEW[0], *(pytest.param(name, marks=pytest.mark.long) for name in ("ppo", *NEW[1:]))])
def test_every_network_can_learn_to_predict_changes(name, preset, tmp_path):
    "It is an option. Then the loss falls below that of expecting no change, and a killed training goes on the same."
    trainer, losses = start(name, preset, prediction_coef=1.0, epochs=4, learning_rate=3e-3), []
    trainer.learner.speed_up(2)
    for k in range(6):
        losses.append(trainer.rollout().metrics["prediction_loss"])
        if k == 4:
            save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
    assert np.isfinite(losses).all() and (preset is PIXELS or losses[-1] < min(1, losses[0]))
    rebuilt = start(name, preset, prediction_coef=1.0, epochs=4, learning_rate=3e-3)
    rebuilt.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
    rebuilt.rollout()
    assert same(rebuilt.state_dict(), trainer.state_dict())


def test_a_preset_that_was_saved_before_a_number_was_thought_of_fits():
    learner = start("ppo", memory=128).learner
    state = learner.state_dict()
    del state["preset"]["network"]["memory"]
    other = start("ppo", seed=1, memory=128).learner
    other.load_state_dict(state)
    assert same(other.policy.state_dict(), learner.policy.state_dict())
    with pytest.raises(CheckpointError, match="memory 8 there and 9 here"):
        start("ppo-memory", memory=9).learner.load_state_dict(start("ppo-memory").learner.state_dict())


def test_a_state_from_a_gpu_goes_on_like_one_from_here():
    """There convolutions and what Adam keeps of them are `channels_last`; the numbers are the same."""
    preset = get_preset("paper", hidden=(16,), channels=(8, 8), num_envs=4, rollout_steps=8, epochs=1, minibatches=2)
    straight, moved = start("ppo", preset), start("ppo", preset)
    straight.rollout()
    state = straight.learner.state_dict()
    strides = set()
    for kept in state["optimizer"]["state"].values():
        for name in ("exp_avg", "exp_avg_sq"):
            if kept[name].dim() == 4:
                kept[name] = kept[name].contiguous(memory_format=torch.channels_last)
                strides.add(kept[name].stride() == kept[name].contiguous().stride())
    assert False in strides
    moved.learner.load_state_dict(state)
    rollout = straight.kept
    assert straight.learner.learn(rollout) == moved.learner.learn(rollout)
    assert same(straight.learner.policy.state_dict(), moved.learner.policy.state_dict())


def test_a_clip_ends_with_the_episode_and_leaves_the_step_limit_as_it_is():
    pytest.importorskip("minigrid")
    game = get_simulator("minigrid")
    with contextlib.closing(game.make_vec(num_envs=1)) as venv:
        limit = venv.lengths[0]
    lengths = [record(game, seed=seed, steps=steps).length for seed in range(3) for steps in (7, 2 * limit)]
    assert 7 in lengths and max(lengths) == limit


def test_what_only_a_game_of_the_kit_can_do_is_said():
    venv = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync",
                              vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    preset = get_preset("vector", num_envs=2, rollout_steps=8, minibatches=2)
    learner = PPO(preset, venv.single_observation_space, venv.single_action_space, 0)
    trainer = Trainer(learner, venv)
    trainer.rollout()
    with pytest.raises(ValueError, match="only a game of the kit can be saved"):
        trainer.state_dict()
    with pytest.raises(ValueError, match="only a game of the kit"):
        evaluate(learner, venv, 1, 0)
    with pytest.raises(ValueError, match="prediction_coef needs observations with finite bounds"):
        PPO(preset.replace(prediction_coef=1.0), venv.single_observation_space, venv.single_action_space, 0)
