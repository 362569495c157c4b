"""Does an agent learn MiniGrid's ordinary game, alone and with easier worlds beside it?

    python benchmarks/minigrid_learning.py            # eight worlds, from one room to the ordinary game
    python benchmarks/minigrid_learning.py --alone    # the ordinary game only

Every 60,000 steps it prints in how many percent of the episodes that ended the target was reached, for each world.
"""
import argparse

import numpy as np
import torch

from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Report, train
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world

DOOR = {"room": [0, 0], "side": "right", "colour": "red", "state": "locked"}
KEY = [{"colour": "red", "room": [0, 0]}]
WORLDS = [
    {"columns": 1, "room_size": 5},
    {"room_size": 5, "doors": [DOOR | {"state": "closed"}]},
    {"room_size": 4, "doors": [DOOR], "keys": KEY},
    {"room_size": 5, "doors": [DOOR], "keys": KEY},
    {"room_size": 5, "doors": [DOOR | {"state": "closed", "blocked": True}]},
    {"room_size": 5, "doors": [DOOR]},
    {"doors": [DOOR | {"blocked": True}], "keys": KEY},
    {}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", action="store_true", help="no easier worlds")
    parser.add_argument("--steps", type=int, default=700_000, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    game, chosen = get_simulator("minigrid"), WORLDS[-1:] if args.alone else WORLDS
    worlds = [check_world(game.world_class(), data)[0] for data in chosen]
    preset = get_preset("symbols", **game.defaults["preset_options"])
    venv = game.make_vec(worlds, num_envs=preset.num_envs, seed=args.seed, obs="symbols", copy=False,
                         length=None if args.alone else game.defaults["world_length"])
    agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed=args.seed)
    ended, reached, printed = np.zeros(len(worlds)), np.zeros(len(worlds)), 0

    def note(report: Report) -> None:
        nonlocal printed
        episodes = report.episodes
        if len(episodes):
            np.add.at(ended, episodes.worlds, 1)
            np.add.at(reached, episodes.worlds, episodes.unlocked[:, -1])
        if report.steps - printed >= 60_000:
            print(report.steps, np.round(100 * reached / np.maximum(ended, 1)).astype(int), flush=True)
            ended[:], reached[:], printed = 0, 0, report.steps

    train(agent, venv, args.steps, callback=note)


if __name__ == "__main__":
    main()
