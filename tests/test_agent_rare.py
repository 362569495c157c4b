"""What `ppo-rare` remembers is what happened, while a curriculum cuts and resumes episodes; its options; old states."""

import contextlib
import dataclasses

import numpy as np
import pytest
import torch
from states import same

from envgen_nb.agent.learner import learners, make_rollout, tree_map
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.curriculum import EnvGen
from envgen_nb.extras import rare
from envgen_nb.extras.rare import Examples, observations_after
from envgen_nb.game.simulator import get_simulator
from envgen_nb.simulators.crafter.symbols import THINGS, present

CRAFTER = get_simulator("crafter")
SMALL = get_preset("symbols", hidden=(16, 16), num_envs=6, rollout_steps=20, epochs=1, minibatches=2)
MINIGRID = get_simulator("minigrid")
WORLDS = [CRAFTER.practice(name)[0] for name in ("collect_wood", "collect_stone", "place_table")]


def playing(venv):
    "Which world each sub-environment plays, and how many steps of it, (2, N): no two episodes here agree in both."
    return np.stack([venv.running["world"], venv.running["length"]])


@pytest.fixture(scope="module")
def history():
    "A trainer after 24 rollouts, in six of which a cycle began, and all that happened, step by step."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with contextlib.closing(CRAFTER.make_vec([None], num_envs=6, seed=3, obs="symbols", length=90)) as venv:
        venv.add_worlds(WORLDS, 30)
        learner = learners.find("ppo-rare").for_game(CRAFTER, SMALL)(
            SMALL, venv.single_observation_space, venv.single_action_space, 0)
        trainer, steps, episode = Trainer(learner, venv, EnvGen(6, 0, 0.5)), [], np.arange(6)
        after, learn = [], learner.learn
        learner.learn = lambda *arguments: (after.append(playing(venv)), learn(*arguments))[1]   # before any change
        worlds, step = [], venv.step
        venv.step = lambda actions: (worlds.append(venv.running["world"]), step(actions))[1]
        for k in range(24):
            if k % 4 == 0:
                trainer.begin([1, 2, 3], 4 * SMALL.batch)
            if k:        # where a curriculum cut an episode, or took up another one again
                episode = np.where(np.any(playing(venv) != after[-1], 0), episode + 100, episode)
            trainer.rollout()
            kept = trainer.kept
            for t in range(SMALL.algorithm.rollout_steps):
                over = (kept.terminated | kept.truncated)[t].numpy()
                steps.append({"obs": tree_map(lambda value, t=t: value[t].clone(), kept.obs), "over": over,
                              "actions": kept.actions[t].clone(), "unlocked": kept.unlocked[t].clone(),
                              "rewards": kept.rewards[t].clone(), "episode": episode.copy(),
                              "world": worlds[len(steps)]})
                assert np.array_equal(kept.designed[t], worlds[len(steps) - 1] > 0)
                episode = np.where(over, episode + 100, episode)
    del learner.learn                                    # that of its class again
    torch.set_num_threads(threads)
    return learner, steps


def test_examples_are_pieces_of_one_episode_that_end_with_the_achievement(history):
    "With the rewards of the game alone, under the kind of episode that it was."
    learner, steps = history
    examples, kinds, checked = learner.examples, set(), 0
    obs = {name: torch.stack([step["obs"][name] for step in steps]) for name in steps[0]["obs"]}
    actions, rewards, unlocked = (torch.stack([step[name] for step in steps])
                                  for name in ("actions", "rewards", "unlocked"))
    episodes, worlds = (np.stack([step[name] for step in steps]) for name in ("episode", "world"))
    for row in examples.lengths.nonzero()[:, 0].tolist():
        length, (kind, objective) = int(examples.lengths[row]), divmod(row // Examples.KEPT, len(CRAFTER.objectives))
        kept, found = {name: value[row, -length:] for name, value in examples.kept["obs"].items()}, []
        for t in range(length - 1, len(steps)):
            part = slice(t + 1 - length, t + 1)
            for n in range(6):
                if (unlocked[t, n, objective] and torch.equal(actions[part, n], examples.kept["actions"][row, -length:])
                        and all(torch.equal(value[part, n], kept[name]) for name, value in obs.items())):
                    found.append((t, n))
        assert len(found) == 1, f"example {row} happened {len(found)} times"
        (t, n), = found
        assert len(set(episodes[t + 1 - length:t + 1, n])) == 1, "it goes over from one episode to another"
        alone = t == 0 or episodes[t - 1, n] != episodes[t, n]
        assert alone or not unlocked[t - 1, n, objective], "it had been achieved before"
        assert length == Examples.LENGTH or t + 1 == length or episodes[t - length, n] != episodes[t, n], "too short"
        assert torch.equal(rewards[t + 1 - length:t + 1, n], examples.kept["rewards"][row, -length:])
        assert kind == (worlds[t, n] > 0)
        if t + 1 < len(steps) and episodes[t + 1, n] == episodes[t, n]:
            assert examples.kept["goes_on"][row] and all(
                torch.equal(value[t + 1, n], examples.kept["after"][name][row]) for name, value in obs.items())
        kinds.add((kind, objective))
        checked += 1
    assert checked > 40 and len(kinds) > 4 and {kind for kind, _ in kinds} == {0, 1}


def test_what_counts_as_met_is_what_was_together(history):
    learner, steps = history
    last = steps[-1]["episode"]
    for n in np.flatnonzero(~steps[-1]["over"]):
        seen = [present({name: value[n].numpy() for name, value in step["obs"].items()})
                for step in steps if step["episode"][n] == last[n]]
        met = np.any([np.outer(one, one) for one in seen], 0)
        pairs = np.zeros_like(met)
        pairs[learner.pairs.first, learner.pairs.second] = learner.pairs.met[n]
        new = np.triu(met, 1) & ~pairs
        assert not new.any(), [(THINGS[i], THINGS[j]) for i, j in np.argwhere(new)]


def test_an_environment_that_is_silent_is_refused(history):
    learner, _ = history
    rollout = make_rollout(2, 6, learner.observation_space)
    with pytest.raises(ValueError, match="`unlocked`"):
        learner.learn(dataclasses.replace(rollout, carry=learner.start(6), next_carry=learner.start(6)))


def start(game, preset=SMALL, **options):
    "A trainer in a game with a designed world, in half of the sub-environments."
    preset = preset.replace(num_envs=4)
    venv = game.make_vec([None], num_envs=4, seed=0, obs=preset.obs, length=60)
    venv.add_worlds(game.practice(game.objectives[0])[:1], 25)
    learner = learners.find("ppo-rare").for_game(game, preset, **options)(
        preset, venv.single_observation_space, venv.single_action_space, 0)
    trainer = Trainer(learner, venv, EnvGen(4, 0, 0.5))
    trainer.begin([1], 6 * preset.batch)
    return trainer


@pytest.mark.parametrize("game, options", [
    (CRAFTER, {"novelty": "things"}), (CRAFTER, {"stratified": False}), (CRAFTER, {"novelty": "rnd"}), (MINIGRID, {})])
def test_with_every_option_a_stopped_training_goes_on_with_the_same_bits(game, options):
    straight, stopped = start(game, **options), start(game, **options)
    reports = [straight.rollout() for _ in range(6)]
    for _ in range(3):
        stopped.rollout()
    rebuilt = start(game, **options)
    rebuilt.load_state_dict(stopped.state_dict())
    for _ in range(3):
        rebuilt.rollout()
    assert same(straight.state_dict(), rebuilt.state_dict())
    assert any(report.metrics["novelty"] > 0 for report in reports)
    assert not same(straight.learner.policy.state_dict(), start(game, **options).learner.policy.state_dict())


def test_a_reward_for_what_is_unlearned_is_stopped_and_resumed_and_is_for_the_original_game(monkeypatch):
    monkeypatch.setattr(rare, "EPISODES", 2)                    # so that rates rise and fall within a few rollouts
    preset = SMALL.replace(rarity_coef=1.0, retention_lr=2.5)
    straight, stopped, without = start(CRAFTER, preset), start(CRAFTER, preset), start(CRAFTER)
    reports = [straight.rollout() for _ in range(20)]
    for _ in range(15):
        stopped.rollout()
    rebuilt = start(CRAFTER, preset)
    rebuilt.load_state_dict(stopped.state_dict())
    for _ in range(5):
        rebuilt.rollout()
    assert same(straight.state_dict(), rebuilt.state_dict())
    assert any(report.metrics["retention"] > 0 for report in reports)
    assert any(report.metrics["rarity"] > 0 for report in reports)
    retention = straight.learner.retention
    assert (retention.best >= 0).all() and (retention.best <= 1 + 1e-5).all() and retention.rewards.max() > 0
    assert "retention" not in without.learner.state_dict() and without.rollout().metrics["retention"] == 0

    rollout = make_rollout(2, 4, straight.learner.observation_space)
    unlocked = torch.tensor([False, True])[:, None, None].expand(2, 4, len(CRAFTER.objectives))
    rollout.extras = {"unlocked": unlocked, "designed": torch.tensor([[False, True, False, True]] * 2)}
    found = straight.learner.retained(rollout, torch.ones(4, dtype=torch.bool))
    assert found[0].tolist() == [0] * 4                         # achieved in the second step, for the first time
    assert found[1].tolist() == pytest.approx([float(retention.rewards.sum()), 0] * 2)


def test_of_pixels_fewer_examples_are_kept_and_no_list_of_things_is_needed():
    "Of symbols their number is the limit, and not the memory."
    trainer = start(CRAFTER, get_preset("laptop", hidden=(16, 16), rollout_steps=32, novelty_coef=0, rarity_coef=1))
    reports = [trainer.rollout() for _ in range(3)]
    assert all(report.metrics["novelty"] == 0 for report in reports)
    assert any(report.metrics["rarity"] > 0 and report.metrics["imitated"] > 0 for report in reports)
    examples = trainer.learner.examples
    assert 0.9 * Examples.MEMORY < examples.kept["obs"].nbytes <= Examples.MEMORY and examples.room < Examples.KEPT
    assert start(CRAFTER).learner.examples.room == Examples.KEPT


def test_a_state_from_before_kinds_of_episodes_were_counted_is_read():
    "Its weights stay, and what is rare is counted anew."
    trainer = start(CRAFTER)
    trainer.rollout()
    state = trainer.learner.state_dict()
    state["pairs"]["share"] = state["pairs"]["share"][0]
    state["examples"]["kept"] = {name: state["examples"]["kept"][name] for name in ("obs", "actions")} | {
        "returns": state["examples"]["kept"]["rewards"]}
    other = start(CRAFTER)
    other.learner.load_state_dict(state)
    assert same(other.learner.policy.state_dict(), trainer.learner.policy.state_dict())
    assert same(other.learner.examples.state_dict(), start(CRAFTER).learner.examples.state_dict())
    other.rollout()


def test_on_a_gpu_examples_come_to_the_cpu():
    "What the learner has made is on its device; the environment's arrays are not."
    rollout = make_rollout(3, 2, CRAFTER.make_vec(num_envs=2, obs="symbols").single_observation_space)
    rollout.next_obs = {name: value[0].numpy() for name, value in rollout.obs.items()}
    rollout.obs = tree_map(OnAnotherDevice, rollout.obs)
    found = observations_after(rollout)
    assert all(type(value) is torch.Tensor and len(value) == 3 for value in found.values())


class OnAnotherDevice(torch.Tensor):
    "A tensor that can be used with others only after `cpu`."

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function is torch.Tensor.cpu:
            return arguments[0].as_subclass(torch.Tensor)
        if function in (torch.cat, torch.Tensor.copy_):
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, arguments, named or {})


def test_episodes_without_an_objective_do_not_count_for_its_rate():
    """Of two objectives the second is there in every fourth episode, and always reached."""
    examples = Examples(2, 4, CRAFTER.make_vec(num_envs=1, obs="symbols").single_observation_space)
    rollout = make_rollout(600, 4, CRAFTER.make_vec(num_envs=1, obs="symbols").single_observation_space)
    rollout.terminated[:] = True
    rollout.next_obs = tree_map(lambda value: value[0], rollout.obs)
    possible = torch.tensor([[True, False], [True, False], [True, False], [True, True]]).expand(600, 4, 2)
    rollout.extras = {"unlocked": possible & torch.tensor([False, True]), "possible": possible}
    examples.add(rollout, torch.ones(4, dtype=torch.bool))
    assert examples.rate[0].tolist() == pytest.approx([0, 1 - (1 - 1 / 500) ** 600], abs=1e-4)
    rollout.extras.pop("possible")
    whole = Examples(2, 4, CRAFTER.make_vec(num_envs=1, obs="symbols").single_observation_space)
    whole.add(rollout, torch.ones(4, dtype=torch.bool))
    assert whole.rate[0, 1] < 0.3


def test_a_game_that_says_what_is_possible():
    trainer, ended, lacked = start(MINIGRID), 0, 0
    for _ in range(6):
        trainer.rollout()
        kept = trainer.kept
        over = kept.terminated | kept.truncated
        assert not (kept.unlocked & ~kept.possible)[over].any()
        ended, lacked = ended + int(over.sum()), lacked + int((~kept.possible)[over].sum())
    assert ended > 3 and lacked
