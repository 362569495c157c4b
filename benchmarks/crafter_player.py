"""How far does the player by rules get in Crafter? One episode each in many games, to their end.

    python benchmarks/crafter_player.py                                   # 1,000 episodes, prints a table
    python benchmarks/crafter_player.py --out benchmarks/crafter_player.json
    python benchmarks/crafter_player.py --episodes 100 --seed 7

The games' base seeds all come from one seed, which no training uses. An interval is Wilson's, over the episodes.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from envgen_nb.agent.evaluate import Evaluation, evaluate
from envgen_nb.agent.learner import ScriptedLearner
from envgen_nb.agent.presets import get_preset
from envgen_nb.game.files import write_json
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results.statistics import wilson_interval

SEED = 2_000_000          # of the base seeds of the episodes
AT_ONCE = 100             # games side by side; the player by rules remembers a map of each


def play(episodes: int, seed: int) -> Iterator[Evaluation]:
    "So many episodes, a part at a time, with the seeds seed, seed + 1, ...: all so far, after each part."
    game, preset, parts = get_simulator("crafter"), get_preset("symbols"), []
    for part, first in enumerate(range(0, episodes, AT_ONCE)):
        venv = game.make_vec(num_envs=min(AT_ONCE, episodes - first), seed=seed + part, obs="symbols", episodes=1,
                             num_threads=1, copy=False)
        learner = ScriptedLearner.for_game(game, preset)(preset, venv.single_observation_space,
                                                         venv.single_action_space, 0)
        parts.append(evaluate(learner, venv, runs=1, seed=0))
        venv.close()
        yield Evaluation(1, **{name: np.concatenate([getattr(part, name) for part in parts])
                               for name in ("returns", "lengths", "unlocked", "deaths")})


def record_of(found: Evaluation, seed: int, seconds: float) -> dict[str, Any]:
    "What is written down."
    game, count = get_simulator("crafter"), len(found.returns)
    success = {name: 100 * float(rate) for name, rate in zip(game.objectives, found.unlocked.mean(0), strict=True)}
    ends = np.bincount(found.deaths, minlength=1 + len(game.deaths)).tolist()
    return {"episodes": count, "seed": seed, "at_once": AT_ONCE, "score": game.score(success),
            "reward": float(found.returns.mean()), "reward_error": float(found.returns.std() / count ** 0.5),
            "achieved": float(found.unlocked.sum(1).mean()), "length": float(found.lengths.mean()), "success": success,
            "intervals": {name: wilson_interval(int(reached), count) for name, reached
                          in zip(game.objectives, found.unlocked.sum(0), strict=True)},
            "ends": dict(zip(("time", *game.deaths), ends, strict=True)), "seconds": round(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    begin = time.perf_counter()
    for found in play(args.episodes, args.seed):
        record = record_of(found, args.seed, time.perf_counter() - begin)
        print(f"{record['episodes']:,} episodes, score {record['score']:.1f}", flush=True)
        if args.out:
            write_json(args.out, record)
    print(f"score {record['score']:.1f}, reward {record['reward']:.2f} ± {record['reward_error']:.2f}, "
          f"{record['achieved']:.1f} objectives, {record['length']:.0f} steps; ends: {record['ends']}")
    for name, rate in record["success"].items():
        low, high = record["intervals"][name]
        print(f"{name:20} {rate:5.1f}% [{low:.1f}, {high:.1f}]")


if __name__ == "__main__":
    main()
