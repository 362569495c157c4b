"""The one training loop with curricula: who plays what, which episodes are counted, and going on from a saved state."""

import numpy as np
import pytest
import torch

from envgen_nb.agent.checkpoint import load_checkpoint, save_checkpoint
from envgen_nb.agent.learner import RandomLearner
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.curriculum import Constant, EnvGen
from envgen_nb.game.episodes import Changes, Curriculum, Episodes
from envgen_nb.game.simulator import get_simulator

SMALL = get_preset("symbols", hidden=(16, 16), num_envs=4, rollout_steps=32, epochs=1, minibatches=2)
CRAFTER = get_simulator("crafter")
WORLDS = CRAFTER.practice("collect_wood")[:1] + CRAFTER.practice("collect_stone")[:1]


def start(curriculum, kind=RandomLearner, length=25, seed=0):
    "A trainer in four games of Crafter that know two designed worlds."
    venv = CRAFTER.make_vec([None], num_envs=4, seed=seed, obs="symbols", length=60)
    assert list(venv.add_worlds(WORLDS, length)) == [1, 2]
    learner = kind(SMALL, venv.single_observation_space, venv.single_action_space, seed)
    return Trainer(learner, venv, curriculum)


def trained(trainer, cycles):
    "The reports of cycles of so many rollouts, each of which begins with worlds."
    reports = []
    for worlds, rollouts in cycles:
        cut = trainer.begin(worlds, rollouts * SMALL.batch)
        for _ in range(rollouts):
            report = trainer.rollout()
            reports.append(Episodes.join([cut, report.episodes]))
            cut = Episodes.join([])
    return reports


@pytest.mark.parametrize("kind", [EnvGen, Constant])
def test_each_step_is_in_one_episode(kind):
    "Those of the original game go on after an interruption; those of designed worlds end with it."
    trainer = start(kind(4, 0, 0.5))
    episodes = Episodes.join([*trained(trainer, [([1, 2], 4), ([2], 4), ([], 3)]), trainer.finish()])
    assert episodes.lengths.sum() == 11 * SMALL.batch
    original, designed = episodes[episodes.worlds == 0], episodes[episodes.worlds > 0]
    assert designed.lengths.max() <= 25 and set(designed.worlds.tolist()) == {1, 2}
    assert original.lengths.max() == 60 and (original.lengths[~original.cut] <= 60).all()
    share = designed.lengths.sum() / episodes.lengths.sum()
    assert share == pytest.approx(4 / 11 if kind is EnvGen else 1 / 2, abs=0.06)
    assert (designed.cut.sum() == 8) == (kind is EnvGen) and original.cut.sum() <= 4
    venv = trainer.venv
    assert trainer.waiting == {} and (venv.assigned == ([0] * 4 if kind is EnvGen else [2, 2, 0, 0])).all()


@pytest.mark.parametrize("kind", [EnvGen, Constant])
@pytest.mark.parametrize("learner", [RandomLearner, PPO])
def test_a_killed_training_goes_on_the_same(kind, learner, tmp_path):
    straight = start(kind(4, 0, 0.5), learner)
    trained(straight, [([1, 2], 4)])
    for stop in (1, 2, 3):
        trainer = start(kind(4, 0, 0.5), learner)
        trainer.begin([1, 2], 4 * SMALL.batch)
        for _ in range(stop):
            trainer.rollout()
        save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
        rebuilt = start(kind(4, 0, 0.5), learner)
        rebuilt.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
        for _ in range(4 - stop):
            rebuilt.rollout()
        one, two = straight.state_dict(), rebuilt.state_dict()
        assert all(torch.equal(a, b) for a, b in zip(one["venv"], two["venv"], strict=True))
        assert torch.equal(one["learner"]["act_generator"], two["learner"]["act_generator"])
        assert one["curriculum"] == two["curriculum"] and one["waiting"].keys() == two["waiting"].keys()
        if learner is PPO:
            assert all(torch.equal(w, two["learner"]["policy"][k]) for k, w in one["learner"]["policy"].items())


class Swap(Curriculum):
    "Sub-environment 0 changes over in every rollout, at once."

    def begin(self, worlds, steps):
        self.rounds = 0
        return Changes()

    def update(self, steps, episodes):
        self.rounds += 1
        return Changes({0: self.rounds % 2}, now=True)


class Remembers(RandomLearner):
    "Counts the steps of each episode, and says how many it has counted."

    def start(self, num_envs):
        return {"steps": torch.zeros(num_envs)}

    def act(self, obs, carry=None, generator=None):
        return *super().act(obs, carry, generator)[:1], {"steps": carry["steps"] + 1}, {"steps": carry["steps"]}


def test_what_is_remembered_waits_with_the_episode():
    "The carry of an episode that was interrupted comes back with it; the others' is not touched."
    trainer = start(Swap(4, 0, 0.5), Remembers)
    trainer.begin([], 10 * SMALL.batch)
    for _ in range(10):
        trainer.rollout()
        assert np.array_equal(trainer.carry["steps"].numpy(), trainer.venv.running["length"])
        assert (trainer.kept.extras["steps"][0] == trainer.kept.carry["steps"]).all()
    assert trainer.carry["steps"][0] > 0
