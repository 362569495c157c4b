"""How fast the walker is on this machine, beside Gymnasium's own environment and EnvPool's.

    python benchmarks/walker_speed.py                                    # two minutes; without EnvPool if there is none
    python benchmarks/walker_speed.py --out benchmarks/walker_speed.json

EnvPool is an extra: `pip install 'envgen_nb[envpool]'` (Linux, macOS, Windows; 0.75 GB with what it needs). It has
BipedalWalkerHardcore and nothing else: its terrain has no settings.

All play 16 walkers with random actions, resets included, in turns: a window of each, then again. What counts are the
ratios within a turn, since speeds of different hours say little. Beside the clock's seconds there are those of the
processors, of all processes and threads together, which say the same on a busy machine. A walker takes the longer, the
longer it stands, so all have played 300 steps before. With two processes these are two environments of 8, side by side,
as two runs of an experiment are.
"""
import argparse
import functools
import importlib.metadata
import importlib.util
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import TimeLimit

from envgen_nb.game.files import machine, write_json
from envgen_nb.simulators.walker import Walker, WalkerWorld, engine

WALKERS, WARM, GYMNASIUM = 16, 300, "Gymnasium's SyncVectorEnv"
COURSES = tuple(WalkerWorld(course=[{"kind": kind, "size": size}] * 6) for kind, size in (
    ("stump", 0.4), ("pit", 2), ("stairs up", 0.5), ("flat", 10)))
Make = Callable[[int], Any]      # so many walkers → a vector environment


def processor_time() -> float:
    "Return the seconds that this process and those that it has started have used so far."
    me, spent = psutil.Process(), 0.0
    for process in (me, *me.children()):
        used = process.cpu_times()
        spent += used.user + used.system
    return spent


def kit(num_envs: int, worlds: tuple[WalkerWorld | None, ...] = (None,)) -> Any:
    "Make the kit's vector environment."
    return Walker().make_vec(worlds, num_envs=num_envs, seed=0)


def stock(num_envs: int, mode: str = "sync") -> Any:
    "Make Gymnasium's."
    return gymnasium.make_vec("BipedalWalkerHardcore-v3", num_envs=num_envs, vectorization_mode=mode)


def course(k: int) -> gymnasium.Env:
    "Make a single walker on a course, as an environment of Gymnasium."
    return TimeLimit(engine()(COURSES[k % len(COURSES)]), 2000)


def shared(num_envs: int) -> AsyncVectorEnv:
    "Make a process for each walker on a course, with observations in shared memory."
    return AsyncVectorEnv([functools.partial(course, k) for k in range(num_envs)], shared_memory=True)


def pool(num_envs: int, threads: int = 1) -> Any:
    "Make EnvPool's."
    import envpool

    return envpool.make_gymnasium("BipedalWalkerHardcore-v3", num_envs=num_envs, num_threads=threads, seed=0)


class Player:
    "Plays random actions in a vector environment."

    def __init__(self, make: Make, num_envs: int = WALKERS):
        self.venv, self.num_envs, self.played = make(num_envs), num_envs, 0
        self.actions = np.random.default_rng(0).uniform(-1, 1, (1024, num_envs, 4)).astype(np.float32)
        self.venv.reset()
        for _ in range(WARM):
            self.step()

    def step(self) -> None:
        self.venv.step(self.actions[self.played % 1024])
        self.played += 1

    def window(self, seconds: float) -> float:
        "Play so long; return the steps of all walkers."
        begun, before = time.perf_counter(), self.played
        while time.perf_counter() - begun < seconds:
            self.step()
        return (self.played - before) * self.num_envs


def answer(make: Make, num_envs: int, pipe: Connection) -> None:
    "Play a window whenever its length comes, in a process of its own."
    player = Player(make, num_envs)
    pipe.send("ready")
    while seconds := pipe.recv():
        pipe.send(player.window(seconds))


class Beside:
    "Two players in two processes."

    def __init__(self, make: Make):
        context, self.pipes = multiprocessing.get_context("spawn"), []
        for _ in range(2):
            here, there = context.Pipe()
            context.Process(target=answer, args=(make, WALKERS // 2, there), daemon=True).start()
            self.pipes.append(here)
        for pipe in self.pipes:
            pipe.recv()

    def window(self, seconds: float) -> float:
        for pipe in self.pipes:
            pipe.send(seconds)
        return sum(pipe.recv() for pipe in self.pipes)


def players() -> dict[str, Player | Beside]:
    "Make all that is compared."
    found = {
        GYMNASIUM: Player(stock),
        "envgen_nb": Player(kit),
        "envgen_nb, courses": Player(functools.partial(kit, worlds=COURSES)),
        "envgen_nb, two processes": Beside(kit),
        "courses in Gymnasium's AsyncVectorEnv": Player(shared),
        "Gymnasium's AsyncVectorEnv": Player(functools.partial(stock, mode="async")),
    }
    if importlib.util.find_spec("envpool"):
        found["EnvPool, one thread"] = Player(pool)
        found["EnvPool, two threads"] = Player(functools.partial(pool, threads=2))
    return found


def measure(player: Player | Beside, seconds: float) -> tuple[float, float]:
    "Play a window; return steps per second of the clock, and of the processors."
    clock, processors = time.perf_counter(), processor_time()
    steps = player.window(seconds)
    return steps / (time.perf_counter() - clock), steps / (processor_time() - processors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window (default 1.5)")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    found = players()
    turns = [{name: measure(player, args.seconds) for name, player in found.items()} for _ in range(args.turns)]
    rows = []
    for name in found:
        row = {"name": name}
        for k, what in enumerate(("clock", "processors")):
            ratios = [turn[name][k] / turn[GYMNASIUM][k] for turn in turns]
            row[what] = {"steps_per_second": round(statistics.median(turn[name][k] for turn in turns)),
                         "ratio": round(statistics.median(ratios), 2), "ratios": [round(one, 2) for one in ratios]}
        rows.append(row)
        print(f"{name:40}", *(f"{row[what]['steps_per_second']:9,} a second of the {what} ({row[what]['ratio']:.2f})"
                              for what in ("clock", "processors")))
    if args.out:
        envpool = importlib.metadata.version("envpool") if importlib.util.find_spec("envpool") else None
        write_json(args.out, {"machine": machine(), "envpool": envpool, "walkers": WALKERS, "seconds": args.seconds,
                              "rows": rows})


if __name__ == "__main__":
    main()
