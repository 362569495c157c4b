"""What keeps an agent from eating plants? Designs that are aimed at it, and worlds in which all else is achieved.

    python benchmarks/plants.py --seeds 0 1 2 3 4 --jobs 2               # all arms; each run is a line of plants.jsonl
    python benchmarks/plants.py --arms half far_half --seeds 0           # some of them

The eight worlds are at a shore, with water near. A plant grows near the player, which has stones, wood, the tools of
stone and another sapling. All but eating the plant is achieved, and when the plant is eaten the episode is cut. They
differ in how long the plant still has to grow, and in the zombies: none, few, as many as in the game. An arm plays a
share of its training in them, the rest in the original game. Every agent then plays 200 episodes in each of them, and
300 of the game: how often is a plant eaten, how often does one get ripe, and of what does the player die?
"""
import argparse
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agent_tuning import score
from sleep import OBJECTIVES, RIPE, gardens, play

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.files import append_jsonl, read_jsonl
from envgen_nb.game.simulator import get_simulator, make_vec
from envgen_nb.results.statistics import mean
from envgen_nb.simulators.crafter.world import ExtendedCrafterWorld

RESULTS = Path(__file__).with_suffix(".jsonl")
EAT_PLANT = OBJECTIVES.index("eat_plant")
BAG = {"sapling": 1, "wood": 5, "stone": 9, "wood_pickaxe": 1, "stone_pickaxe": 1, "wood_sword": 1, "stone_sword": 1}
RARE, FAR = {"rarity_coef": 1.0}, {"gamma": 0.997, "gae_lambda": 0.95}
ARMS: dict[str, tuple[str, dict[str, float], float, int]] = {       # learner, preset, share in plant worlds, steps
    "alone": ("ppo", {}, 1.0, 999_424),
    "alone_0.997": ("ppo", FAR, 1.0, 999_424),
    "rare": ("ppo-rare", RARE, 0.0, 1_961_984),
    "half": ("ppo-rare", RARE, 0.5, 1_961_984),
    "half_no_novelty": ("agent_designs:NoveltyInGame", RARE, 0.5, 1_961_984),
    "far_half": ("agent_designs:FarRare", RARE, 0.5, 1_961_984),
    "far": ("agent_designs:FarRare", RARE, 0.0, 1_961_984)}


def world(grown: int, zombies: str, length: int) -> ExtendedCrafterWorld:
    "A world in which a plant has grown for so many steps."
    return ExtendedCrafterWorld.model_validate({
        "creature_settings": {"peaceful": True} if zombies == "none" else {"zombies": zombies},
        "start_settings": {"place": "shore", "near": ["water"], "plant_grown": grown}, "inventory_settings": BAG,
        "episode_settings": {"length": length, "goal": "eat_plant",
                             "achieved": [name for name in OBJECTIVES if name != "eat_plant"]}})


WORLDS = {(grown, zombies): world(grown, zombies, length) for grown, zombies, length in (
    (150, "none", 280), (0, "none", 500), (200, "rare", 220), (0, "rare", 500),
    (220, "common", 200), (150, "common", 280), (75, "common", 400), (0, "common", 500))}


def measure(played: dict[str, np.ndarray]) -> dict[str, Any]:
    "Return what `sleep.play` says of plants and deaths, in percent of the episodes, and their `length` in steps."
    ripe = (np.where(played["plants"] & played["playing"], played["grown"], 0) > RIPE).any(0)
    return {"eaten": 100 * float(played["unlocked"][:, EAT_PLANT].mean()), "ripe": 100 * float(ripe.mean()),
            "length": float(played["playing"].sum(0).mean()),
            "deaths": {name: 100 * float((played["deaths"] == k).mean())
                       for k, name in enumerate(get_simulator("crafter").deaths, 1)}}


def run(arm: str, seed: int) -> dict[str, Any]:
    "Train one agent and measure it."
    learner, changes, share, steps = ARMS[arm]
    torch.set_num_threads(1)
    keep_memory()
    learners.take(learner)
    preset, simulator = get_preset("symbols-long", **changes), get_simulator("crafter")
    venv = make_vec("crafter", (None, *WORLDS.values()), preset.num_envs, seed, preset.obs)
    designed = round(share * preset.num_envs)           # each game in the same world all the time
    venv.assign({n: 1 + n % len(WORLDS) if n < designed else 0 for n in range(preset.num_envs)})
    make = learners.find(learner).for_game(simulator, preset)
    agent, begin = make(preset, venv.single_observation_space, venv.single_action_space, seed), time.process_time()
    train(agent, venv, steps)
    venv.close()
    seconds, game = time.process_time() - begin, play(agent, 300, False)
    return {"arm": arm, "seed": seed, "learner": learner, "changes": changes, "share": share, "steps": agent.steps,
            "steps_per_cpu_s": round(agent.steps / seconds),
            "score": score(game["unlocked"]), "return": float(game["rewards"].sum(0).mean()),
            "game": measure(game) | {"gardens": gardens(game)},
            "worlds": [{"grown": grown, "zombies": zombies} | measure(play(agent, 200, False, world=one))
                       for (grown, zombies), one in WORLDS.items()]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        tasks = [pool.apply_async(run, (arm, seed)) for arm in args.arms for seed in args.seeds]
        for task in tasks:
            append_jsonl(RESULTS, task.get())
    for arm in ARMS:
        rows = [row for row in read_jsonl(RESULTS) if row["arm"] == arm]
        if rows:
            print(f"{arm}, {len(rows)} seeds: score {mean(row['score'] for row in rows):.1f}, eat_plant in the game "
                  f"{mean(row['game']['eaten'] for row in rows):.1f}%; in the worlds " + ", ".join(
                      f"{301 - grown} steps, zombies {zombies}: {mean(row['worlds'][k]['eaten'] for row in rows):.1f}%"
                      for k, (grown, zombies) in enumerate(WORLDS)))


if __name__ == "__main__":
    main()
