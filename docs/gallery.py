"""The reports and clips of docs/guides/gallery.md: single runs of recorded experiments, run again.

    python docs/gallery.py FOLDER           # half an hour on two idle cores; FOLDER keeps the runs
    python docs/gallery.py FOLDER shuffled  # some of them
"""
import argparse
import subprocess
import sys
from pathlib import Path

from envgen_nb import trust
from envgen_nb.agent.clips import record
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import load_agent
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.game.files import write_bytes, write_text
from envgen_nb.results.report import small_clip, write_report

GALLERY = Path(__file__).parent / "gallery"
RUNS = {     # file → experiment, arm and seed
    "ppo": ("learners", "ppo", 592), "teacher": ("roles_door_key", "teacher", 711),
    "shuffled": ("roles_door_key", "shuffled", 711), "human": ("human", "rare_hand", 970)}
SHOWN = {"human": {"rules": True, "episodes": 5}}      # more than a report shows by itself


def make(folder: Path, name: str) -> None:
    "Run one, write its report, and a clip of its agent."
    experiment, arm, seed = RUNS[name]
    place = folder / f"{experiment}-{arm}"
    subprocess.run([sys.executable, "-m", "envgen_nb", "experiment", experiment, "--arms", arm, "--seeds", str(seed),
                    "--folder", str(place), "--jobs", "2", "--yes"], check=True)
    trust(path := ExperimentFolder(place).run(arm, seed))
    run = RunFolder(path)
    report = write_report(run, GALLERY / f"{name}.html", **SHOWN.get(name, {}))
    write_text(report, report.read_text().replace(str(place.absolute() / ExperimentFolder.FILES), "."))
    clip = record(run.simulator, run.original, load_agent(run), 0, 200)
    write_bytes(GALLERY / f"{name}.webp", small_clip(clip)[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(RUNS))
    given = parser.parse_args()
    for one in given.names:
        make(given.folder, one)
