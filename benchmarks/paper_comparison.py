"""The paper's comparison: does it help to train in designed worlds? Whole runs at equal steps, over several seeds.

    python benchmarks/paper_comparison.py --seeds 0 1 2 --jobs 2                              # symbols, on the CPU
    python benchmarks/paper_comparison.py --seeds 0 1 2 --agent paper --device cuda           # on a GPU
    python benchmarks/paper_comparison.py --table                                             # what there is so far

Every run has the paper's budget, 1.96M steps: four cycles of 240,000 and a million in the original game.

    plain     PPO in the original game, from the beginning to the end
    fixed     four worlds that a language model designed once, before any training (a recorded reply), in every cycle:
              no feedback, so this is not EnvGen, but the paper's baseline of fixed environments
    offline   worlds by the kit's rules from the measured success rates, anew in each cycle; no language model

Every run is one line of benchmarks/paper_comparison.jsonl; what is there already is not run again, unless with --again.
Scores are of the policy, over 300 episodes of the original game that no training used, at the start, after each cycle
and at the end, the last of them on maps of its own; the one over training counts all training episodes in the original
game, as Crafter's protocol does.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from envgen_nb.agent.threads import keep_memory
from envgen_nb.cycle.folder import RunFolder, create_run
from envgen_nb.cycle.run import Evaluated, run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.files import append_jsonl, read_jsonl
from envgen_nb.results import Estimate, mean, paired, scores, training_episodes, training_score

RESULTS = Path(__file__).with_suffix(".jsonl")
REPLY = Path(__file__).parent.parent / "tests" / "recordings" / "crafter-first.md"
PROTOCOL = 2    # how a run is counted; runs of different protocols are never compared, and stand apart in the table
DESIGNERS = {"plain": {"designer": "none"}, "offline": {"designer": "offline"},
             "fixed": {"designer": "replay", "designer_options": {"files": str(REPLY), "repeat_last": True}}}


def run(who: str, seed: int, scale: float, given: dict) -> dict:
    "One run from its beginning to its end."
    keep_memory()
    settings = make_settings(seed=seed, cycle_steps=round(240_000 * scale), final_steps=round(1_000_000 * scale),
                             evaluation_episodes=100, **DESIGNERS[who], **given)
    with tempfile.TemporaryDirectory() as folder:
        begun, measuring = time.monotonic(), 0.0
        path = create_run(settings, Path(folder) / "run").path
        for event in run_cycles(path):
            if isinstance(event, Evaluated):
                measuring += event.seconds
        took, done = time.monotonic() - begun, RunFolder(path)
        episodes = training_episodes(done)
        return {"protocol": PROTOCOL, "who": who, "agent": settings.agent, "device": settings.device, "seed": seed,
                "scale": scale, "steps": done.metrics("final")[-1]["step"],
                "scores": [round(s, 2) for s in scores(done).values()],
                "score_training": round(training_score(done), 2),
                "episodes_training": len(episodes), "of_them_cut": int(episodes.cut.sum()),
                "return": round(done.evaluation("final").episode_return()[0], 2),
                "seconds_training": round(took - measuring, 1), "seconds_measuring": round(measuring, 1)}


def run_one(arguments: tuple) -> dict:
    "`run`, for a pool that hands over one argument."
    return run(*arguments)


def recorded() -> list[dict]:
    "The runs that there are. The first protocol left episodes out that the end of a stage broke off."
    return [{"protocol": 1, "scale": 1.0} | record for record in read_jsonl(RESULTS)]


def table() -> str:
    "Every kind of run: mean and 95% interval over its seeds; how much more than the plain run of the same seed."
    records = recorded()
    lines = [f"{'protocol':8} {'agent':8} {'device':6} {'steps':>9} {'seeds':>5} {'':8} {'reward':>18} "
             f"{'over training':>18} {'seconds':>7}  score at the start, after each cycle, at the end"]
    facts = ("protocol", "agent", "device", "steps")
    for kind in sorted({tuple(r[fact] for fact in facts) for r in records}):
        of = {who: {r["seed"]: r for r in records if (*(r[fact] for fact in facts), r["who"]) == (*kind, who)}
              for who in DESIGNERS}
        for who, runs in of.items():
            if runs:
                reward, training = (f"{mean(r[key] for r in runs.values()):.1f}"
                                    for key in ("return", "score_training"))
                seconds = np.mean([r["seconds_training"] for r in runs.values()])
                lines.append(f"{kind[0]:8} {kind[1]:8} {kind[2]:6} {kind[3]:9,} {len(runs):5} {who:8} {reward:>18} "
                             f"{training:>18} {seconds:7.0f}  " + curve(
                                 [mean(found) for found in zip(*(r["scores"] for r in runs.values()), strict=True)]))
            if who != "plain" and runs.keys() & of["plain"].keys():
                more = [paired(*({seed: r["scores"][k] for seed, r in some.items()} for some in (runs, of["plain"])))
                        for k in range(len(next(iter(runs.values()))["scores"]))]
                lines.append(f"{f'more than plain, {more[0].count} seeds':>96}  " + curve(more))
    return "\n".join(lines)


def curve(estimates: list[Estimate]) -> str:
    "What there is at each measurement."
    return "  ".join(f"{f'{estimate:.1f}':>18}" for estimate in estimates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="symbols")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--who", nargs="+", default=list(DESIGNERS), choices=DESIGNERS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes; each with one thread if there are several")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps; 1 is the paper's budget")
    parser.add_argument("--again", action="store_true", help="run also what is recorded already; the later one counts")
    parser.add_argument("--table", action="store_true", help="only print what there is so far")
    args = parser.parse_args()
    given = {"agent": args.agent, "device": args.device} | ({"threads": 1} if args.jobs > 1 else {})
    if not args.table:
        there = {(r["who"], r["seed"]) for r in recorded()
                 if (r["protocol"], r["agent"], r["device"], r["scale"])
                 == (PROTOCOL, args.agent, args.device, args.scale)}
        due = [(who, seed) for seed in args.seeds for who in args.who if args.again or (who, seed) not in there]
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            for done in pool.imap_unordered(run_one, [(who, seed, args.scale, given) for who, seed in due]):
                append_jsonl(RESULTS, done)
    print(table())


if __name__ == "__main__":
    main()
