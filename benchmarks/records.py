"""Records of experiments: one file of JSON lines for each, from which tables, figures and reports are made.

    python benchmarks/records.py write FOLDER         # an experiment's folder becomes benchmarks/experiments/….jsonl
    python benchmarks/records.py unpack NAME FOLDER   # the other way; `envgen experiment NAME --folder FOLDER` goes on
    python benchmarks/records.py                      # NAME.html, the report, of every record anew

The first line of a record holds the experiment's file as it was run, and the hash of each file that its runs read:
these files are in nbs/lab/experiments/. Then follows a line for each finished run: its settings, the versions and the
machine, every measurement and what it cost, as `results.summary` gives them.
"""
import argparse
import atexit
import hashlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from envgen_nb.experiment.file import files_of
from envgen_nb.experiment.folder import ExperimentFolder, write_table
from envgen_nb.game.files import parse_json, read_jsonl, write_json, write_text
from envgen_nb.studio.experiment_view import write_experiment_report

RECORDS = Path(__file__).parent / "experiments"
KEPT = Path(__file__).parent.parent / "nbs" / "lab" / "experiments"       # the files that runs read, relative to here


def names() -> list[str]:
    "The experiments that are recorded."
    return sorted(path.stem for path in RECORDS.glob("*.jsonl"))


def file_hashes(folder: ExperimentFolder) -> dict[str, str]:
    "The files that the runs of an experiment read: path → SHA-256. `ValueError` if the kit has none that is the same."
    found = {}
    for place in files_of(folder.experiment):
        start = folder.path / folder.FILES / place
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.is_file():
                name = path.relative_to(folder.path / folder.FILES).as_posix()
                if path.read_bytes() != (KEPT / name).read_bytes():
                    raise ValueError(f"{path} is not the file {name} of {KEPT}: put it there, or run with that one")
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def write(path: str | Path) -> Path:
    "Write the record of an experiment's folder."
    folder = ExperimentFolder(path)
    lines = [{"experiment": folder.experiment.text, "files": file_hashes(folder)}]
    lines += [{"arm": arm, "seed": seed, "summary": parse_json(folder.beside(arm, seed, folder.SUMMARY).read_bytes())}
              for arm, found in folder.summaries().items() for seed in found]
    target = RECORDS / f"{folder.experiment.name}.jsonl"
    write_text(target, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return target


def unpack(name: str, path: str | Path) -> ExperimentFolder:
    "Make an experiment's folder of a record; its run folders are not recorded."
    path, (head, *runs) = Path(path), read_jsonl(RECORDS / f"{name}.jsonl")
    for file, known in head["files"].items():
        if hashlib.sha256((KEPT / file).read_bytes()).hexdigest() != known:
            raise ValueError(f"{KEPT / file} is not what the runs of {name} have read: its hash is not {known}")
        (path / ExperimentFolder.FILES / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(KEPT / file, path / ExperimentFolder.FILES / file)
    write_text(path / ExperimentFolder.FILE, head["experiment"])
    folder = ExperimentFolder(path)
    for run in runs:
        write_json(folder.beside(run["arm"], run["seed"], folder.SUMMARY), run["summary"])
    write_table(folder)
    return folder


@cache
def opened(name: str) -> ExperimentFolder:
    "A record as an experiment's folder, to be read; it is deleted when the process ends."
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place)
    return unpack(name, Path(place) / name)


def report(name: str) -> str:
    "The report of a record."
    folder = opened(name)
    return write_experiment_report(folder, folder.path / folder.REPORT).read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("write", help="an experiment's folder becomes a record").add_argument("folder", type=Path)
    other = commands.add_parser("unpack", help="a record becomes an experiment's folder")
    other.add_argument("name", choices=names())
    other.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.command == "unpack":
        print(unpack(args.name, args.folder).path)
        return
    for name in [write(args.folder).stem] if args.command else names():
        write_text(RECORDS / f"{name}.html", report(name))
        print(RECORDS / f"{name}.html")


if __name__ == "__main__":
    main()
