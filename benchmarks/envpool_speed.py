"""How fast the kit plays EnvPool's games on this machine, beside EnvPool itself.

    python benchmarks/envpool_speed.py                                   # two minutes
    python benchmarks/envpool_speed.py --out benchmarks/envpool_speed.json

It needs the extra: pip install 'envgen_nb[envpool]'.

Both play the same number of copies with the same number of threads and the same random actions, resets included, in
turns: a window of each, then again; what counts are the ratios within a turn. In EnvPool a step that begins an episode
plays nothing, and is counted; the kit resets the copies whose episodes have ended by a second call in the same step.
"""
import argparse
import importlib.metadata
import statistics
import time
from typing import Any

import envpool
import numpy as np

from envgen_nb.game.files import machine, write_json
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.vector import random_actions

GAMES = ("CartPole-v1", "LunarLander-v3", "HalfCheetah-v5", "Pong-v5")


class Player:
    "Plays random actions in a vector environment."

    def __init__(self, venv: Any, actions: np.ndarray):
        self.venv, self.actions, self.played = venv, actions, 0
        venv.reset()

    def window(self, seconds: float) -> float:
        "Play so long; return steps per second, of all copies together."
        begun, before = time.perf_counter(), self.played
        while time.perf_counter() - begun < seconds:
            for _ in range(8):
                self.venv.step(self.actions[self.played % len(self.actions)])
                self.played += 1
        return (self.played - before) * len(self.actions[0]) / (time.perf_counter() - begun)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    "Play one game in turns; return the row of the table."
    simulator, options = get_simulator(f"envpool:{name}"), {"num_envs": args.envs, "num_threads": args.threads}
    actions = random_actions(simulator.action_space, (256, args.envs), np.random.default_rng(0))
    found = {"EnvPool": envpool.make_gymnasium(name, seed=0, **options),
             "envgen_nb": simulator.make_vec(seed=0, **options),
             "envgen_nb, copy=False": simulator.make_vec(seed=0, copy=False, **options)}
    players = {who: Player(venv, actions) for who, venv in found.items()}
    for player in players.values():
        player.window(args.seconds / 2)
    turns = [{who: player.window(args.seconds) for who, player in players.items()} for _ in range(args.turns)]
    row: dict[str, Any] = {"game": name}
    for who in players:
        ratios = [turn[who] / turn["EnvPool"] for turn in turns]
        row[who] = {"steps_per_second": round(statistics.median(turn[who] for turn in turns)),
                    "ratio": round(statistics.median(ratios), 2), "ratios": [round(one, 2) for one in ratios]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=GAMES)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window (default 1)")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    rows = []
    for name in args.games:
        rows.append(row := measure(name, args))
        print(f"{name:16}", *(f"{who}: {row[who]['steps_per_second']:,} ({row[who]['ratio']:.2f})"
                              for who in list(row)[1:]), sep="   ", flush=True)
    if args.out:
        write_json(args.out, {"machine": machine(), "envpool": importlib.metadata.version("envpool"),
                              "envs": args.envs, "threads": args.threads, "seconds": args.seconds, "rows": rows})


if __name__ == "__main__":
    main()
