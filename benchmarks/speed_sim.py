"""How fast the simulators are on this machine, beside what one would use without this kit: `envgen bench sim`.

    python benchmarks/speed_sim.py            # all sizes of batches, some minutes
    python benchmarks/speed_sim.py --quick    # less than a minute, and less exact
    python benchmarks/speed_sim.py --json     # one JSON object instead of a table

Speeds of different machines, or of the same machine at different hours, say little. So the package that the engine
replaces is timed in the same process, on the same cores, and what counts is the ratio.
"""


import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from envgen_nb.game.files import machine, usable_cores
from envgen_nb.game.simulator import make_vec
from envgen_nb.simulators.crafter.fast.batch import LOOK
from envgen_nb.simulators.crafter.reference import _env
from envgen_nb.simulators.heist.game import procgen_package
from envgen_nb.simulators.heist.world import HeistWorld

# How it is measured: the process is pinned to as many cores as there are threads. Actions are random, resets are
# part of the game, and the worlds that the engine makes ahead are made within the timed window. Before it, every
# sub-environment has played for 1,000 steps (about five episodes), so that they stand at all times of the day. The
# figure is the median of five windows. Environments are made with `copy=False`, as the trainer makes them.
# The time of single steps matters too: a batch waits for its slowest game. So a number of steps is timed one by
# one, and the slowest of a thousand is reported beside the median.

WARM = 1000        # steps that every sub-environment plays before it is timed


@contextlib.contextmanager
def pinned(cores: int) -> Iterator[None]:
    "Stay on so many of this process's cores meanwhile, where the system allows to say so."
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def windows(
    play: Callable[[int], None],   # plays so many steps
    seconds: float,                # how long a window is to last, about
) -> tuple[float, float]:          # calls per second of wall time, and of processor time
    "Medians of five windows."
    count, spent = 8, 0.0
    while spent < seconds / 4:
        count, started = count * 2, time.perf_counter()
        play(count)
        spent = time.perf_counter() - started
    count = max(1, round(count * seconds / spent))
    found = []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        play(count)
        found.append((count / (time.perf_counter() - wall), count / (time.process_time() - cpu)))
    return tuple(statistics.median(part) for part in zip(*found, strict=True))


def stock_env(seed: int) -> Any:
    "The unmodified `crafter` package's environment, without gym."
    return _env.Env(seed=seed)             # the package's own class, from which the reference is made


def stock_crafter(seconds: float) -> float:
    "Steps per second of the package with random actions, resets included."
    env, rng = stock_env(seed=0), np.random.default_rng(0)
    env.reset()

    def play(count: int) -> None:
        for action in rng.integers(17, size=count).tolist():
            if env.step(action)[2]:
                env.reset()

    play(300)
    return windows(play, seconds)[0]


def crafter_row(obs: str, num_envs: int, num_threads: int, stock: float, seconds: float, **options: Any) -> dict:
    "One row of the table: this many games of the fast engine."
    venv = make_vec("crafter", num_envs=num_envs, obs=obs, num_threads=num_threads, copy=False, **options)
    venv.reset()
    actions = np.random.default_rng(1).integers(17, size=(1024, num_envs)).astype(np.uint8)
    played = 0

    def play(count: int) -> None:
        nonlocal played
        for _ in range(count):
            venv.step(actions[played % 1024])
            played += 1

    def one_by_one(count: int) -> np.ndarray:
        ends = [time.perf_counter()]
        for _ in range(count):
            play(1)
            ends.append(time.perf_counter())
        return 1e6 * np.diff(ends)

    with contextlib.closing(venv), pinned(num_threads):
        play(WARM)
        wall, cpu = windows(play, seconds)
        median, slow = np.quantile(one_by_one(max(1000, round(wall * seconds))), (0.5, 0.999))
    name = obs if options.get("noise", True) else f"{obs}, noise=False"
    return {"simulator": "crafter", "engine": "fast", "obs": name, "num_envs": num_envs, "num_threads": num_threads,
            "steps_per_s": round(wall * num_envs), "stock_steps_per_s": round(stock),
            "ratio": round(wall * num_envs / stock, 1), "cpu_steps_per_s": round(cpu * num_envs),
            "step_us": round(float(median), 1), "slow_step_us": round(float(slow), 1)}


# Heist is played by Procgen itself, so what counts is what our levels and our following of keys and locks
# cost beside it: both are timed in turns, with the same number of games and threads and the same actions, and the
# ratio is the median of five such pairs. One row is the ordinary game, one a world whose levels are made here.

def plain_heist(
    num: int,                # games, N
    seed: int = 0,
    mode: str = "easy",
    threads: int = 1,
) -> tuple[Any, Callable]:   # the games, and their step: actions (N,) int32 to pictures, rewards, first
    "Heist as the package that has Procgen offers it to everybody."
    options = {"env_name": "heist", "distribution_mode": mode, "rand_seed": seed,
               "num_threads": threads if threads > 1 else 0}
    if procgen_package() == "procgen_gym":
        from procgen_gym import ProcgenVecEnv
        games = ProcgenVecEnv(num_envs=num, **options)
        return games, lambda actions: games.step(actions)[:3]
    from procgen import ProcgenGym3Env
    games = ProcgenGym3Env(num=num, **options)

    def step(actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        games.act(actions)
        rewards, obs, first = games.observe()
        return obs["rgb"], rewards, first

    return games, step


# Both play the same actions in turns, so that a slow moment of the machine meets both.

def heist_row(world: Any, num_envs: int, num_threads: int, seconds: float) -> dict:
    "One row of the table; `ImportError` without Procgen."
    venv = make_vec("heist", [world], num_envs, num_threads=num_threads, copy=False)
    games, step = plain_heist(num_envs, threads=num_threads)
    actions, ends = np.random.default_rng(1).integers(15, size=(1024, num_envs)).astype(np.int32), []

    def plain(count: int) -> None:
        for i in range(count):
            step(actions[i % 1024])

    def ours(count: int) -> None:
        for i in range(count):
            venv.step(actions[i % 1024])
            ends.append(time.perf_counter())

    def speed(play: Callable[[int], None], count: int) -> float:
        begun = time.perf_counter()
        play(count)
        return count * num_envs / (time.perf_counter() - begun)

    with contextlib.closing(venv), contextlib.closing(games), pinned(num_threads):
        venv.reset()
        plain(100), ours(100)
        count = max(10, round(speed(plain, 100) * seconds / num_envs))
        ends.clear()
        stock, found = np.array([(speed(plain, count), speed(ours, count)) for _ in range(5)]).T
    steps = np.concatenate([1e6 * np.diff(part) for part in np.array_split(ends, 5)])
    median, slow = np.quantile(steps, (0.5, 0.999))
    name = f"{world.maze_size} tiles, {world.locks} locks" if world else "pixels"
    return {"simulator": "heist", "engine": "procgen", "obs": name, "num_envs": num_envs, "num_threads": num_threads,
            "steps_per_s": round(np.median(found)), "stock_steps_per_s": round(np.median(stock)),
            "ratio": round(float(np.median(found / stock)), 2), "step_us": round(float(median), 1),
            "slow_step_us": round(float(slow), 1)}


def heist_rows(quick: bool) -> list[Callable[[], dict]]:
    "What is measured of Heist; nothing where Procgen is not installed."
    if procgen_package() is None:
        return []
    worlds, seconds = (None, HeistWorld(maze_size=9, locks=2)), 0.25 if quick else 1.5
    return [functools.partial(heist_row, world, 64, threads, seconds)
            for threads in ((1, 2) if usable_cores() > 1 else (1,)) for world in worlds]


# Parts of it: what a new world takes, a reset (a new world and the first picture of it), a picture by day, and one
# at night. For the package, worlds are timed by leaving out the picture that its `reset` makes.

def _microseconds(act: Callable[[], Any], seconds: float, things: int = 1) -> float:
    "What one thing takes, if `act` does so many."
    def play(count: int) -> None:
        for _ in range(count):
            act()

    play(2)
    return 1e6 / (windows(play, seconds)[0] * things)


def _stock_parts(seconds: float) -> dict[str, float]:
    "The parts in the package, microseconds each."
    env = stock_env(seed=0)
    found = {"reset": _microseconds(env.reset, seconds)}
    for name, light in (("picture by day", 1.0), ("picture at night", 0.05)):
        env._world.daylight = light
        found[name] = _microseconds(env._obs, seconds)
    env._obs = lambda: None                     # this one environment's, from here on
    return {"new world": _microseconds(env.reset, seconds)} | found


def _engine_parts(seconds: float) -> dict[str, float]:
    "The same in the engine, in a batch of 64 where that is how it works."
    with contextlib.closing(make_vec("crafter", num_envs=1, obs="symbols", noise=False)) as venv:
        found = {"new world": _microseconds(lambda: venv._engine._begin([0]), seconds)}
    with contextlib.closing(make_vec("crafter", num_envs=64, copy=False)) as venv:
        found["reset"] = _microseconds(venv.reset, seconds, things=64)
        engine = venv._engine
        for name, light in (("picture by day", 1.0), ("picture at night", 0.05)):
            engine.games["daylight"] = light
            found[name] = _microseconds(lambda: engine.play(LOOK), seconds, things=64)
    return found


def crafter_parts(seconds: float) -> list[dict]:
    "Rows of what the parts of the game take."
    with pinned(1):
        stock, ours = _stock_parts(seconds), _engine_parts(seconds)
    return [{"simulator": "crafter", "part": part, "microseconds": round(took, 2),
             "stock_microseconds": round(stock[part], 1), "ratio": round(stock[part] / took, 1)}
            for part, took in ours.items()]


# Starts: how long a process waits for the engine: with nothing compiled, and with the compiled code in its folder.
# Measured in a process of its own, from before the import until a game could be played.

_START = ("import time; begun = time.perf_counter(); from envgen_nb.simulators.crafter.fast.engine import prepare; "
          "prepare(); print(time.perf_counter() - begun)")


def start_seconds(folder: str | None = None) -> float:
    "Seconds until the engine is ready in a new process, with a folder for compiled code (None: the usual one)."
    environment = os.environ | ({"NUMBA_CACHE_DIR": folder} if folder else {})
    done = subprocess.run([sys.executable, "-P", "-c", _START], env=environment, capture_output=True, text=True,
                          check=True)
    return float(done.stdout)


def crafter_starts(quick: bool) -> dict[str, float]:
    "Seconds of a start by kind; if it is to be quick, only of the kind that is."
    if quick:
        start_seconds()                         # so that there is something in the folder
        return {"cached": round(start_seconds(), 2)}
    with tempfile.TemporaryDirectory() as folder:
        return {kind: round(start_seconds(folder), 2) for kind in ("cold", "cached")}


HEADING = (f"{'game':8} {'observations':20} {'envs':>6} {'threads':>8} {'steps/s':>12} {'stock':>11} "
           f"{'step':>11} {'slowest of 1000':>17}")


def row_text(row: dict) -> str:
    "A row of the table for people."
    digits = 1 if row["ratio"] >= 10 else 2
    return (f"{row['simulator']:8} {row['obs']:20} {row['num_envs']:6} {row['num_threads']:8} "
            f"{row['steps_per_s']:12,} {row['ratio']:9.{digits}f} × {row['step_us']:8,.0f} µs "
            f"{row['slow_step_us']:14,.0f} µs")


def part_text(part: dict) -> str:
    "What a part takes, for people."
    return (f"{part['simulator']:8} {part['part']:20} {part['microseconds']:10,.1f} µs   (stock "
            f"{part['stock_microseconds']:10,.0f} µs, {part['ratio']:,.0f} ×)")


def bench_sim(
    quick: bool = False,                           # only batches of 64, in short windows
    tell: Callable[[str], None] = lambda line: None,   # is given each line of the table when it is there
) -> dict:                                         # {"machine": …, "rows": […], "parts": […], "starts": {…}}
    "Time the simulators."
    seconds, sizes = (0.4, (64,)) if quick else (1.5, (1, 16, 64, 256, 1024))
    starts, rows = crafter_starts(quick), []       # first, while this process has no threads that wait
    tell(HEADING)
    with pinned(1):
        stock = stock_crafter(2 * seconds)
    for num_envs in sizes:
        for num_threads in (1, 2) if usable_cores() > 1 and num_envs > 1 else (1,):
            for obs, options in (("pixels", {}), ("symbols", {}), ("symbols", {"noise": False})):
                rows.append(crafter_row(obs, num_envs, num_threads, stock, seconds, **options))
                tell(row_text(rows[-1]))
    for measure in heist_rows(quick):
        rows.append(measure())
        tell(row_text(rows[-1]))
    parts = crafter_parts(seconds / 4)
    for part in parts:
        tell(part_text(part))
    for kind, took in starts.items():
        tell(f"{'crafter':8} {kind + ' start':20} {took:10.1f} s")
    return {"machine": machine(), "rows": rows, "parts": parts, "starts": starts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less than a minute, and less exact")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    if args.json:
        print(json.dumps(bench_sim(args.quick)))
    else:
        bench_sim(args.quick, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
