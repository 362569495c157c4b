"""`envgen runs` lists what there is, and a tab completes it."""
import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import label_run
from envgen_nb.cycle.settings import make_settings
from envgen_nb.experiment.run_list import find_runs
from envgen_nb.extras.cli import main

TINY = dict(num_cycles=1, num_worlds=2, cycle_steps=1024, final_steps=0, evaluation_runs=1, evaluation_episodes=2,
            threads=1, world_length=200, preset_options={"num_envs": 8, "rollout_steps": 128})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A runs folder: two finished runs and a copy, one that has only begun, another game, an experiment's run."""
    folder = tmp_path_factory.mktemp("list") / "runs"
    for name, settings in (("first", {}), ("second", {"seed": 1, "designer": "random"}),
                           ("grid", {"simulator": "minigrid"})):
        list(run_cycles(create_run(make_settings(**TINY | settings), folder / name).path))
    create_run(make_settings(**TINY), folder / "begun")
    shutil.copytree(folder / "first", folder / "copy")
    shutil.copytree(folder / "second", folder / "compare" / "random" / "seed-1")
    (folder / "compare" / "experiment.toml").touch()
    return folder


@pytest.fixture
def listed(made, tmp_path, monkeypatch, capsys):
    """Prints the list as rows; the cache is a fresh one."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*words, status=0):
        assert main(["runs", *words]) == status
        return capsys.readouterr()
    return call


def test_all_runs_games_apart_and_the_same_once(listed):
    text = listed().out
    first, second = text.split("\n\n")
    heads = {first.splitlines()[0]: first, second.splitlines()[0]: second}
    assert set(heads) == {"crafter, 5 runs", "minigrid, 1 run"} and "grid " in heads["minigrid, 1 run"]
    rows = heads["crafter, 5 runs"].splitlines()[2:]
    assert len(rows) == 3 and sum("(+1 the same)" in row for row in rows) == 2
    begun, = [row.split() for row in rows if row.startswith("begun")]
    assert begun[:8] == ["begun", "ppo", "rules", "0/1", "–", "–", "–", "game"] and begun[8] == "begun"
    assert sum("finished" in row and "1/1" in row and "2,048" in row for row in rows) == 2


def test_filter_sort_columns_and_groups(listed):
    assert listed("-p", "game", "minigrid", "--columns", "run", "seed").out == (
        "minigrid, 1 run\nrun   seed\ngrid  0\n")
    assert "compare, random, seed-1" in listed("compare*").out and "second" not in listed("compare*").out
    rows = listed("-p", "simulator", "crafter", "-p", "state", "fin*", "--sort", "seed", "--columns", "seed").out
    assert rows.split() == ["crafter,", "4", "runs", "seed", "1", "(+1", "the", "same)", "0", "(+1", "the", "same)"]
    groups = listed("--by", "designer", "--csv").out
    found = {tuple(row[:4]) for row in csv.reader(io.StringIO(groups))}
    assert found >= {("game", "designer", "runs", "seeds"), ("crafter", "random", "1", "1"),
                     ("crafter", "rules", "2", "1")}
    table = list(csv.DictReader(io.StringIO(listed("--csv").out)))
    assert len(table) == 4 and {row["state"] for row in table} == {"finished", "begun"}
    assert all(Path(row["path"]).is_dir() for row in table) and {row["seed"] for row in table} == {"0", "1"}
    assert "did you mean 'score'" in listed("--columns", "scor", status=2).err
    assert listed("nowhere").out == "There are no such runs.\n"


def test_archived_and_damaged_runs_and_other_folders(listed, tmp_path):
    label_run("runs/grid", archived=True)
    (tmp_path / "runs" / "begun" / "run.json").write_text("{")
    told = listed()
    assert "minigrid" not in told.out and "begun is left out" in told.err and "run.json is damaged" in told.err
    assert "minigrid" in listed("--archived").out
    (tmp_path / "class" / "ada").mkdir(parents=True)
    shutil.move("runs", tmp_path / "class" / "ada" / "runs")
    assert "crafter, 4 runs" in listed("class").out and listed().out == "There are no such runs.\n"
    assert listed("class/ada/runs/first", "--columns", "run").out == "crafter, 1 run\nrun\nfirst\n"


def test_a_run_that_is_deleted_while_the_list_is_made(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    glob = Path.glob

    def deletes(self, pattern):
        found = [*glob(self, pattern)]
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        return found

    monkeypatch.setattr(Path, "glob", deletes)
    assert find_runs(tmp_path) == [tmp_path.resolve() / "two"]


def test_a_tab_completes(made, tmp_path):
    """In a real bash; the scripts of the other shells are argcomplete's own."""
    program = '''eval "$(envgen completion bash)"
complete_it() { COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDS=($1) COMPREPLY=()
[ "${1: -1}" = " " ] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _python_argcomplete envgen; echo "${COMPREPLY[@]}"; }
for line in "$@"; do complete_it "$line"; done'''
    asked = {"envgen re": "resume report", "envgen resume runs/f": "runs/first", "envgen run mini": "minigrid",
             "envgen run crafter -p num_c": "num_cycles num_candidates", "envgen run crafter -p num_cycles ": "",
             "envgen experiment mixt": "mixture", "envgen init cu": "curriculum", "envgen prompt runs/gr": "runs/grid"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", program, "bash", *asked], cwd=made.parent, capture_output=True, text=True,
                          env=os.environ | {"PATH": path})
    assert [line.strip() for line in done.stdout.splitlines()] == list(asked.values()), done.stderr
    for shell, word in (("zsh", "compdef"), ("fish", "complete --command envgen")):
        said = subprocess.run([sys.executable, "-m", "envgen_nb", "completion", shell], capture_output=True, text=True)
        assert said.returncode == 0 and word in said.stdout
