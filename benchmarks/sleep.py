"""Why is wake_up unlearned? What an agent's critic expects when sleep becomes possible, and what sleeping is worth.

    python benchmarks/sleep.py RUN --cycle cycle-3 --episodes 300         # one agent, printed
    python benchmarks/sleep.py RUN RUN … --out benchmarks/sleep.json      # the agents after each cycle of runs

In Crafter a player can fall asleep as soon as its energy is below 9, 31 steps into an episode. A point of energy comes
back in 11 steps of sleep; at 9 it wakes up, which is the achievement, at once. From energy e this takes k = 11 (9 − e)
+ 1 steps in which nothing else can be achieved. With a discount of γ sleeping is then worth γᵏ (1 + V), not sleeping
V, the value of going on: an agent that maximises its discounted return sleeps only where V < γᵏ / (1 − γᵏ).

The agent plays the same episodes twice: as it is, and with sleep put in its place, from the first step with energy 8
until it wakes up with the achievement (it tries again when it was hurt). Return, discounted return from that step on,
and the rate of wake_up are compared, paired by episode. The first three episodes of the last agent are kept, by steps.

Of plants and diamonds it counts in how many episodes what they need was there, how long these last, and the deaths; of
plants also whether they are still there at the end, and how far they grew, which they do while the player is near.
"""
import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envgen_nb.agent.evaluate import Watch
from envgen_nb.agent.learner import Learner
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import load_agent
from envgen_nb.game.files import write_json
from envgen_nb.game.simulator import get_simulator, make_vec
from envgen_nb.game.world import World
from envgen_nb.simulators.crafter.fast.state import PLANT
from envgen_nb.simulators.crafter.reference import ACTIONS, ITEMS, OBJECTIVES
from envgen_nb.simulators.crafter.symbols import OBJECTS

SEED = 4_000_000      # of the episodes; no training uses it
ENERGY, WAKE_UP, SLEEP = ITEMS.index("energy"), OBJECTIVES.index("wake_up"), ACTIONS.index("sleep")
ASLEEP = OBJECTS.index("player-sleep")
RIPE = 300            # steps until a plant is ripe


def bound(energy: int, gamma: float) -> float:
    "Return γᵏ / (1 − γᵏ), k = 11 (9 − energy) + 1: below that value sleeping pays."
    worth = gamma ** (11 * (9 - energy) + 1)
    return worth / (1 - worth)


def play(agent: Learner, episodes: int, forced: bool, watch: Watch | None = None,
         world: World | None = None) -> dict[str, np.ndarray]:
    """Play one episode in each of so many games, in a world or the original game. Return (T, N) arrays, which say
    nothing of the time after an episode's end, and what was unlocked, when, and the deaths.

    With `forced`, sleep replaces the action from the first step with energy 8 until wake_up is achieved."""
    venv = make_vec("crafter", (world,), episodes, SEED, agent.preset.obs, episodes=1)
    generator = torch.Generator().manual_seed(SEED)
    (obs, _), carry, playing, rows = venv.reset(), agent.start(episodes), np.ones(episodes, bool), []
    begun, unlocked = np.zeros(episodes, bool), np.zeros((episodes, len(OBJECTIVES)), bool)
    reached = np.zeros(unlocked.shape, int)                      # in which step, from 1; 0: not
    deaths = np.zeros(episodes, int)
    while playing.any():
        if watch:
            watch.look(venv, playing)
        plants, grown = plants_of(venv)
        energy, daylight = obs["inventory"][:, ENERGY].copy(), obs["daylight"][:, 0].copy()
        asleep = obs["object"][:, 4, 3] == ASLEEP
        begun |= playing & (energy == 8)
        drawn, carry, extras = agent.act(obs, carry, generator)
        actions = agent.env_actions(drawn)
        if forced:
            actions = np.where(begun & ~unlocked[:, WAKE_UP] & (energy < 9), SLEEP, actions)
        obs, rewards, _, _, infos = venv.step(actions)
        rows.append({"playing": playing.copy(), "energy": energy, "daylight": daylight, "asleep": asleep,
                     "values": extras["values"].cpu().numpy(), "rewards": rewards * playing,
                     "begun": begun.copy(), "plants": plants, "grown": grown})
        unlocked[playing] = venv.unlocked[playing]
        if "results" in infos:
            ended = infos["_results"] & playing
            unlocked[ended] = infos["results"]["unlocked"][ended]
            deaths[ended] = infos["results"]["death"][ended]
            playing = playing & ~ended
        reached[unlocked & (reached == 0)] = len(rows)
        carry = agent.observe_achievements(carry, venv.unlocked)
    venv.close()
    steps = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return steps | {"unlocked": unlocked, "reached": reached, "deaths": deaths}


def plants_of(venv: Any) -> tuple[np.ndarray, np.ndarray]:
    "Return in which games there is a plant, and for how many steps the oldest one has grown, two (N,) arrays."
    games = venv._engine.games                               # the engine's own records: no observation says it
    used = int(games["slots"].max()) + 1
    plants = games["kind"][:, :used] == PLANT
    return plants.any(1), np.where(plants, games["count"][:, :used], 0).max(1)


def discounted(rewards: np.ndarray, begun: np.ndarray, gamma: float) -> np.ndarray:
    "Return Σ γᵏ r from the first step with energy 8, (N,); 0 for episodes that end before."
    since = np.cumsum(begun, 0) - 1
    return np.where(begun, rewards * gamma ** np.maximum(since, 0), 0).sum(0)


def naps(played: dict[str, np.ndarray]) -> dict[str, float]:
    "How sleeps began and ended: their number for 100 episodes, energy at the beginning, and how many ended rested."
    asleep, playing = played["asleep"] & played["playing"], played["playing"]
    starts = asleep[1:] & ~asleep[:-1]
    stops = asleep[:-1] & ~asleep[1:] & playing[1:]
    rested = stops & (played["energy"][1:] >= 9)
    return {"per_100_episodes": 100 * float(starts.sum()) / playing.shape[1],
            "energy": float(played["energy"][1:][starts].mean()) if starts.any() else float("nan"),
            "dark": float((played["daylight"][1:][starts] < 0.5).mean()) if starts.any() else float("nan"),
            "rested": float(rested.sum() / max(starts.sum(), 1))}


def single(played: dict[str, np.ndarray], n: int) -> dict[str, Any]:
    "Return one episode, step by step."
    steps = int(played["playing"][:, n].sum())
    return {"values": played["values"][:steps, n].astype(float).round(2).tolist(),
            "energy": played["energy"][:steps, n].tolist(),
            "asleep": np.flatnonzero(played["asleep"][:steps, n]).tolist(),
            "reached": {name: int(step) for name, step in zip(OBJECTIVES, played["reached"][n], strict=True) if step}}


def gardens(played: dict[str, np.ndarray]) -> dict[str, float]:
    """Return what became of plants, in percent of the episodes with one.

    `late`: 300 steps and more followed after the first was planted; `grown`: of those, the median of the steps for
    which the oldest plant had grown."""
    there = played["plants"] & played["playing"]
    planted, lengths = there.any(0), played["playing"].sum(0)
    last = there[lengths - 1, np.arange(len(lengths))]
    grown = np.where(there, played["grown"], 0).max(0)
    late = planted & (lengths - there.argmax(0) > RIPE)
    return {"planted": 100 * float(planted.mean()), "gone": 100 * float((~last)[planted].mean()),
            "late": 100 * float(late[planted].mean()), "grown": float(np.median(grown[late])) if late.any() else 0.0,
            "ripe": 100 * float((grown > RIPE)[planted].mean())}


def lacking(played: dict[str, np.ndarray], watch: Watch) -> dict[str, Any]:
    "Return how often what a plant and a diamond need is there, how long episodes last, and of what the player dies."
    lengths, names = played["playing"].sum(0), ("none", *get_simulator("crafter").deaths)
    return {"length": float(lengths.mean()), "long": 100 * float((lengths > RIPE).mean()),
            "deaths": {name: int((played["deaths"] == k).sum()) for k, name in enumerate(names)},
            "held": {" and ".join(one.conditions): one.episodes for name in ("eat_plant", "collect_diamond")
                     for one in watch.held()[name]},
            "gardens": gardens(played),
            "reached": {name: 100 * float(played["unlocked"][:, OBJECTIVES.index(name)].mean())
                        for name in ("place_plant", "eat_plant", "make_iron_pickaxe", "collect_diamond")}}


def measure(agent: Learner, episodes: int, singles: int = 0) -> dict[str, Any]:
    "Return what the module's text says, of one agent."
    gamma, crafter = agent.preset.algorithm.gamma, get_simulator("crafter")
    watch = Watch(crafter.objectives, crafter.conditions, crafter.needs)
    free, forced = play(agent, episodes, False, watch), play(agent, episodes, True)
    both = free["begun"].any(0)                                  # the first step with energy 8 is the same one
    first = free["begun"].argmax(0)[both]
    values = free["values"][first, np.flatnonzero(both)]
    below = bound(8, gamma)
    more = {name: forced_ - free_ for name, free_, forced_ in (
        ("return", free["rewards"].sum(0), forced["rewards"].sum(0)),
        ("discounted", *(discounted(one["rewards"], one["begun"], gamma)[both] for one in (free, forced))),
        ("discounted_0.99", *(discounted(one["rewards"], one["begun"], 0.99)[both] for one in (free, forced))),
        ("length", free["playing"].sum(0), forced["playing"].sum(0)))}
    return {"steps": agent.steps, "gamma": gamma, "episodes": episodes, "bound": below,
            "value": float(values.mean()), "value_below_bound": float((values < below).mean()),
            "wake_up": [100 * float(one["unlocked"][:, WAKE_UP].mean()) for one in (free, forced)],
            "return": [float(one["rewards"].sum(0).mean()) for one in (free, forced)],
            "length": [float(one["playing"].sum(0).mean()) for one in (free, forced)], "naps": naps(free),
            "lacking": lacking(free, watch),
            "singles": [[single(one, n) for one in (free, forced)] for n in range(singles)],
            "more": {name: [float(found.mean()), 1.96 * float(found.std(ddof=1)) / len(found) ** 0.5]
                     for name, found in more.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--cycle", nargs="*", help="cycle-2, say; else all that were measured")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for path in args.runs:
        run = RunFolder(path)
        cycles = args.cycle or run.checkpoints()
        for cycle in cycles:
            singles = 3 if (path, cycle) == (args.runs[-1], cycles[-1]) else 0
            one = found[f"{path.parent.name}/{path.name}/{cycle}"] = measure(
                load_agent(run, cycle), args.episodes, singles)
            print(f"{path.name} {cycle}: V {one['value']:.2f}, sleep pays below {one['bound']:.2f}; wake_up "
                  f"{one['wake_up'][0]:.0f}% → {one['wake_up'][1]:.0f}%; with sleep put in, return "
                  + ", ".join(f"{name} {value:+.2f} ± {half:.2f}" for name, (value, half) in one["more"].items())
                  + f"; naps {one['naps']}", flush=True)
            if args.out:
                write_json(args.out, {"seed": SEED, "agents": found})


if __name__ == "__main__":
    main()
