"""Where the chain to an iron tool breaks in the original game: how far each arm of an experiment gets, link by link.

    python benchmarks/chain.py FOLDER benchmarks/chain.json        # FOLDER: an experiment's, with its run folders

For each arm and seed, of the episodes of the last measurement: in how many % each thing that an iron tool needs was
there before the pickaxe was made for the first time, the two crafting places together, all together, and how many made
each tool. `docs/tables.py` makes the table of docs/guides/results_worlds.md from it. Runs that the file has already
are kept when their folders are gone, so that an experiment can be done in several sittings.
"""
import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envgen_nb.cycle.folder import RunFolder
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.game.files import write_text

PICKAXE, SWORD = "make_iron_pickaxe", "make_iron_sword"
LINKS = [("wood in the bag",), ("coal in the bag",), ("iron in the bag",), ("table in reach",), ("furnace in reach",),
         ("table in reach", "furnace in reach")]


def links(run: RunFolder) -> dict[str, float]:
    "Each link, in % of the episodes."
    measured = run.evaluation(run.cycles[-1])
    rates = {name: rate for name, (rate, _) in measured.feedback(run.simulator.objectives).items()}
    held = {frozenset(one.conditions): one.episodes for one in measured.held[PICKAXE]}
    found = {" and ".join(names): held[frozenset(names)] for names in LINKS}
    return found | {"all together": held[max(held, key=len)], PICKAXE: rates[PICKAXE], SWORD: rates[SWORD]}


def each_run(
    folder: ExperimentFolder,
    known: dict[str, dict[str, Any]],                       # arm → seed → what was found of runs before
    find: Callable[[RunFolder, dict[str, Any]], Any],       # of a run and its summary
) -> dict[str, dict[str, Any]]:                             # arm → seed → what was found
    "What there is to find in each finished run; what is known of a run whose folder is gone is kept."
    arms: dict[str, dict[str, Any]] = {}
    for arm, finished in folder.summaries().items():
        arms[arm] = {}
        for seed, summary in sorted(finished.items()):
            place, had = folder.run(arm, seed), known.get(arm, {}).get(str(seed))
            if not place.is_dir() and had is None:
                print(f"{arm}, seed {seed}: its run folder is gone, so it is left out", file=sys.stderr)
                continue
            arms[arm][str(seed)] = find(RunFolder(place), summary) if place.is_dir() else had
    return arms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    folder, known = ExperimentFolder(args.folder), {}
    if args.file.exists():
        known = json.loads(args.file.read_text())
        if known["experiment"] != folder.experiment.name:
            sys.exit(f"{args.file} is of the experiment {known['experiment']}, not of {folder.experiment.name}")
    arms = each_run(folder, known.get("arms", {}), lambda run, summary: links(run))
    write_text(args.file, json.dumps({"experiment": folder.experiment.name, "arms": arms}, indent=1) + "\n")


if __name__ == "__main__":
    main()
