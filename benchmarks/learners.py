"""The experiment `learners` after a million steps and at its end: scores in both readings, iron tools.

    python benchmarks/learners.py FOLDER benchmarks/learners.json        # FOLDER: the experiment's, with run folders

For each arm and seed, at about a million steps (the end of cycle 8) and at the end: the Crafter score over all training
episodes in the original game so far, and of the policy as it was then; and how many episodes of the last measurement
made each iron tool. `docs/tables.py` makes the tables of docs/guides/results_learners.md from it. Runs that the file
has already are kept when their folders are gone, so that an experiment can be done in several sittings.
"""
import argparse
import json
from pathlib import Path
from typing import Any

from chain import each_run

from envgen_nb.cycle.folder import RunFolder
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.game.files import write_text
from envgen_nb.results import training_score

MILLION = 8        # the cycle after which a million steps are nearest: 983,040 of them


def readings(run: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
    "Of one run."
    steps = [summary["steps"][MILLION], summary["steps"][-1]]
    return {"steps": steps, "score_training": [round(training_score(run, until), 3) for until in steps],
            "score_policy": [summary["scores"][MILLION], summary["scores"][-1]],
            **{tool: summary["success"][tool][-1] for tool in ("make_iron_pickaxe", "make_iron_sword")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    known = json.loads(args.file.read_text()) if args.file.exists() else {}
    arms = each_run(ExperimentFolder(args.folder), known, readings)
    write_text(args.file, json.dumps(arms, indent=1) + "\n")


if __name__ == "__main__":
    main()
