"""Where the chain to an iron tool breaks in the original game: how far each arm of an experiment gets, link by link.

    python benchmarks/chain.py FOLDER > benchmarks/chain.json      # FOLDER: an experiment's, with its run folders

For each arm and seed, of the episodes of the last measurement: in how many % each thing that an iron tool needs was
there before the pickaxe was made for the first time, the two crafting places together, all together, and how many made
each tool. `docs/tables.py` makes the table of docs/guides/results.md from it.
"""
import argparse
import json
from pathlib import Path

from envgen_nb.cycle.folder import RunFolder
from envgen_nb.experiment.folder import ExperimentFolder

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = ExperimentFolder(parser.parse_args().folder)
    arms = {arm: {seed: links(RunFolder(folder.path / arm / f"seed-{seed}")) for seed in sorted(finished)}
            for arm, finished in folder.summaries().items()}
    print(json.dumps({"experiment": folder.experiment.name, "arms": arms}, indent=1))


if __name__ == "__main__":
    main()
