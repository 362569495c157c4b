"""What `ppo-rare` remembers is what happened: its examples and pairs, while a curriculum cuts and resumes episodes."""

import contextlib
import dataclasses

import numpy as np
import pytest
import torch

from envgen_nb.agent.learner import learners, make_rollout, tree_map
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.curriculum import EnvGen
from envgen_nb.extras.rare import Examples
from envgen_nb.game.simulator import get_simulator
from envgen_nb.simulators.crafter.symbols import THINGS, present

CRAFTER = get_simulator("crafter")
SMALL = get_preset("symbols", hidden=(16, 16), num_envs=6, rollout_steps=20, epochs=1, minibatches=2)
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
                              "episode": episode.copy()})
                episode = np.where(over, episode + 100, episode)
    del learner.learn                                    # that of its class again
    torch.set_num_threads(threads)
    return learner, steps


def test_examples_are_pieces_of_one_episode_that_end_with_the_achievement(history):
    learner, steps = history
    examples, checked = learner.examples, 0
    obs = {name: torch.stack([step["obs"][name] for step in steps]) for name in steps[0]["obs"]}
    actions = torch.stack([step["actions"] for step in steps])
    unlocked = torch.stack([step["unlocked"] for step in steps])
    episodes = np.stack([step["episode"] for step in steps])
    for row in examples.lengths.nonzero()[:, 0].tolist():
        length, objective = int(examples.lengths[row]), row // Examples.KEPT
        found = []
        for t in range(length - 1, len(steps)):
            part = slice(t + 1 - length, t + 1)
            for n in range(6):
                if (unlocked[t, n, objective] and torch.equal(actions[part, n], examples.kept["actions"][row, :length])
                        and all(torch.equal(value[part, n], examples.kept["obs"][name][row, :length])
                                for name, value in obs.items())):
                    found.append((t, n))
        assert len(found) == 1, f"example {row} happened {len(found)} times"
        (t, n), = found
        assert len(set(episodes[t + 1 - length:t + 1, n])) == 1, "it goes over from one episode to another"
        alone = t == 0 or episodes[t - 1, n] != episodes[t, n]
        assert alone or not unlocked[t - 1, n, objective], "it had been achieved before"
        assert length == Examples.LENGTH or t + 1 == length or episodes[t - length, n] != episodes[t, n], "too short"
        checked += 1
    assert checked > 40 and len(set((examples.lengths.nonzero()[:, 0] // Examples.KEPT).tolist())) > 4


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
