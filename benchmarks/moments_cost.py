"""What it costs a run that the environment keeps moments to start from: user CPU seconds of training in the original
game, with and without, rollout by rollout in turns, in one process.

    python benchmarks/moments_cost.py [rollouts]
"""
import os
import sys

import torch

from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.game.simulator import get_simulator

WARM_UP = 8     # rollouts of each that are not counted: compiling, and the first episodes


def trainer(moments: bool) -> Trainer:
    """A learner in the original game, the same in both."""
    preset = get_preset("symbols")
    venv = get_simulator("crafter").make_vec(num_envs=preset.num_envs, seed=0, obs=preset.obs, copy=False,
                                             moments=moments)
    learner = learners.find("ppo")(preset, venv.single_observation_space, venv.single_action_space, 0, "cpu")
    learner.speed_up(1)
    return Trainer(learner, venv)


def main(rollouts: int) -> None:
    torch.set_num_threads(1)
    trainers = {moments: trainer(moments) for moments in (False, True)}
    spent = dict.fromkeys(trainers, 0.0)
    for rollout in range(WARM_UP + rollouts):
        for moments in (False, True) if rollout % 2 else (True, False):
            begin = os.times().user
            trainers[moments].rollout()
            if rollout >= WARM_UP:
                spent[moments] += os.times().user - begin
    steps = rollouts * get_preset("symbols").batch
    kept = sum(trainers[True].venv.moments.values())
    print(f"{steps:,} steps each: {spent[False]:.1f} s of user CPU time without moments, {spent[True]:.1f} s with "
          f"({100 * (spent[True] / spent[False] - 1):+.1f}%); {kept} moments are kept")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
