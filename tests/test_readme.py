"""Every command of README and guides does what it says, at a reduced size where it is long; their numbers are the
records', their names the registries', and their links lead somewhere."""
import contextlib
import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import records
from forms import own_names

import envgen_nb
from envgen_nb.agent.learner import learners
from envgen_nb.curriculum import curricula
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.designer.base import designers
from envgen_nb.experiment.places import places
from envgen_nb.extras.cli import build_parser
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import games, get_simulator
from envgen_nb.studio.experiment_view import results_text

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GUIDES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "guides").glob("*.md"))}
PAGES = {"README": README} | GUIDES
TEXT = "\n".join(PAGES.values())
COMMANDS = list(dict.fromkeys(
    line.partition("#")[0].strip() for block in re.findall(r"```bash\n(.*?)```", TEXT, re.S)
    for line in block.splitlines() if line.partition("#")[0].strip()))
TINY = ("-p num_cycles 1 -p num_worlds 2 -p cycle_steps 2048 -p final_steps 0 -p evaluation_runs 1 "
        "-p evaluation_episodes 2")
# make wants this interpreter's environment, which is the one that is being tested.
MAKE = ["make", f"VENV={Path(sys.executable).parent.parent}"]


def sh(command: list, cwd: Path = ROOT, timeout: int = 600, **environment: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          env=os.environ | {"PATH": path} | environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """`make run` at a reduced size."""
    (Path(sys.executable).parent.parent / ".ready").touch()
    folder = tmp_path_factory.mktemp("readme") / "run"
    done = sh([*MAKE, "run", f"ARGS={TINY} -p folder {folder}"])
    assert "score of the policy" in done.stdout and str(folder / "report.html") in done.stdout
    return folder


def test_make_run(run):
    assert RunFolder(run).finished() and (run / "envgen.ipynb").exists() and (run / "report.html").exists()


@pytest.mark.long
def test_make_human(tmp_path):
    """A run with ladders, and its report with the player by rules."""
    (Path(sys.executable).parent.parent / ".ready").touch()
    sh([*MAKE, "human", f"RUN={tmp_path / 'run'}", f"ARGS={TINY} -p cycle_steps 8192"])
    run = RunFolder(tmp_path / "run")
    assert run.finished() and run.settings.learner == "ppo-rare" and run.settings.design == "ladders"
    assert run.settings.preset_options == {"rarity_coef": 1}
    page = (run.path / "report.html").read_text()
    assert [page.count(f"<b>{title}</b>") for title in ("The player by rules", "Seed 1", "Seed 5")] == [1, 1, 1]


def test_the_guide_says_what_make_human_runs():
    guide = (ROOT / "docs" / "guides" / "human.md").read_text()
    run, report = [line.strip() for line in guide.splitlines() if line.startswith("    envgen ")][:2]
    said = " ".join(sh([*MAKE, "-n", "human"]).stdout.replace("\\\n", " ").split())
    assert f"/{run} " in said and f"/{report}" in said, said


def test_make_test_runs_everything():
    short, long = (sh([*MAKE, "-n", target]).stdout for target in ("test", "test-all"))
    assert "pytest -n auto" in short and "--long" not in short and "pytest -n auto" in long and "--long" in long
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-2:] == ["make test", "make test-all"]


def test_make_alone_says_what_there_is():
    said = sh(["make"]).stdout
    targets = re.search(r"^\.PHONY: help (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert all(re.search(rf"^make {target} +\w", said, re.MULTILINE) for target in targets), said


def test_the_version_stands_in_the_changelog():
    """And in the citation; the newest one first."""
    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == envgen_nb.__version__ and versions == sorted(versions, reverse=True)
    assert f"version: {envgen_nb.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_make_lab(tmp_path):
    """JupyterLab opens a copy of the notebook, and says where; the notebooks of the clone are there to be read."""
    (tmp_path / "settings.ini").write_text("[designer]\nname = none\n")
    (tmp_path / "nbs").symlink_to(ROOT / "nbs")
    stored = {path: path.read_bytes() for path in (ROOT / "nbs" / "lab").glob("*.ipynb")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = f"--no-browser --allow-root --port={port} --port-retries=0"
    told, url = tmp_path / "log", f"http://127.0.0.1:{port}"
    with open(told, "w") as log:
        there = ["-f", ROOT / "Makefile", "-C", tmp_path, "-o", f"{MAKE[1][5:]}/.ready"]
        process = subprocess.Popen([*MAKE, *there, "lab", f"ARGS={options}"], stdout=log, stderr=log,
                                   start_new_session=True)

    def ask(path: str, method: str = "GET", body: bytes | None = None) -> dict:
        token = re.search(rf"{url}/lab/tree/lab/envgen.ipynb\?token=(\w+)", told.read_text())[1]
        query = urllib.request.Request(f"{url}/api/contents/{path}", body, {"Authorization": f"token {token}"},
                                       method=method)
        with urllib.request.urlopen(query, timeout=30) as response:
            return json.load(response)

    try:
        for _ in range(240):
            with contextlib.suppress(OSError, TypeError):
                opened = ask("lab/envgen.ipynb")
                break
            time.sleep(0.25)
        assert opened["type"] == "notebook" and opened["writable"], told.read_text()
        workshops = {entry["name"] for entry in ask("lab/workshop")["content"]}
        assert {"1_a_world_from_words.ipynb", "teacher.md"} <= workshops
        changed = json.dumps({"type": "notebook", "format": "json", "content": opened["content"]}).encode()
        assert ask("lab/envgen.ipynb", "PUT", changed)["name"] == "envgen.ipynb"
        assert not ask("nbs/3_agent/04_ppo.ipynb?content=0")["writable"]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask("nbs/lab/envgen.ipynb", "PUT", changed)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
    assert f"Your notebooks are in {tmp_path / 'lab'}" in told.read_text()
    assert f"Runs are kept in {tmp_path / 'runs'}; settings: {tmp_path / 'settings.ini'}" in told.read_text()
    assert stored == {path: path.read_bytes() for path in (ROOT / "nbs" / "lab").glob("*.ipynb")}


def test_root_is_told_why_the_lab_does_not_start(tmp_path):
    if os.geteuid():
        pytest.skip("only root is refused")
    done = subprocess.run([sys.executable, "-m", "envgen_nb", "lab", "--no-browser"], cwd=tmp_path, capture_output=True,
                          text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("make lab ARGS=--allow-root, or envgen lab --allow-root")


SEEN = {"make run": test_make_run, "make test": test_make_test_runs_everything,
        "make test-all": test_make_test_runs_everything, "make lab": test_make_lab, "envgen check": "test_check.py"}


LONG = "envgen run crafter -p designer none -p seed 3"      # a run of its own; others of that kind are short ones


@pytest.mark.parametrize("command", [pytest.param(command, marks=[pytest.mark.long] * (command == LONG))
                                     for command in COMMANDS if command not in SEEN])
def test_command(command, run, tmp_path):
    words = shlex.split(command)
    assert words[0] == "envgen", f"no test runs {command!r}"
    words = [str(run) if word.startswith("runs/") else word for word in words]
    if words[1] == "run":
        words += [*shlex.split(TINY), "-p", "folder", str(tmp_path / "run")]
    if words[1] == "worlds":
        (tmp_path / "worlds.json").write_text((run / "cycle-1" / "worlds.json").read_text())
        words = [str(tmp_path / word) if word.startswith("worlds.") else word for word in words]
    if words[1] == "experiment":                          # the file that the guide shows, with less to do
        text = next(block for block in re.findall(r"```toml\n(.*?)```", TEXT, re.S) if "[arms." in block)
        tiny = "\n".join(f"{name} = {value}" for name, value in re.findall(r"-p (\w+) (\S+)", TINY))
        text = text.replace("[settings]", f"[settings]\n{tiny}\n").replace("[0, 1, 2, 3, 4]", "[0]")
        (tmp_path / words[2]).write_text(text)
        words = [*words[:2], str(tmp_path / words[2]), "--folder", str(tmp_path / "out")]
    words = [str(tmp_path / word) if word.endswith((".gif", "my-prompts", "my-frames")) else word for word in words]
    sh(words)
    for word in words[2:]:
        if word.endswith((".gif", ".png")):
            assert Path(word).stat().st_size > 1000


SMALLER = {"num_envs=64": "num_envs=8", "10_000": "300", "100_000": "2048", "24_576": "4096", "1_000": "50",
           "final_steps=0": "final_steps=0, evaluation_runs=1, evaluation_episodes=2"}
PROGRAMS = {name: blocks for name, text in PAGES.items() if (blocks := re.findall(r"```python\n(.*?)```", text, re.S))}
SAID = {"python": ("(1, 64, 64, 3)", "ep_rew_mean", "episodes=16", "reward in 16 games", "worlds of the",
                   "'noop': ")}


@pytest.mark.parametrize("block", PROGRAMS["python"], ids=["a run", "an agent", "a loop", "a search", "sb3", "worlds"])
def test_the_programs_run(block, tmp_path):
    for long, short in SMALLER.items():
        block = re.sub(rf"\b{long}\b", short, block)
    said = sh([sys.executable, "-c", block], cwd=tmp_path).stdout
    assert any(text in said for text in SAID["python"]), said


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("python", "run_folder", "curves")])
def test_small_programs_run(name, monkeypatch, tmp_path):
    """In this process, each page's after one another."""
    if name in ("walker", "envpool"):
        pytest.importorskip({"walker": "Box2D"}.get(name, name))
    monkeypatch.chdir(tmp_path)
    shared = {"__name__": "__main__"}
    for block in PROGRAMS[name]:
        for long, short in SMALLER.items():
            block = re.sub(rf"\b{long}\b", short, block)
        exec(compile(block, f"{name}.md", "exec"), shared)
    if "Weakest" in shared:
        from envgen_nb.designer.base import Request
        designed = shared["Weakest"]().reply(Request(get_simulator("crafter"), num_worlds=3))
        assert len(designed) == 3
    for game in {"Coins", "Pendulums"} & set(shared):
        check_simulator(shared[game](), length=8)


def test_a_run_folder_is_read_with_plain_tools(run):
    said = sh([sys.executable, "-c", PROGRAMS["run_folder"][0], run]).stdout
    assert "cycle-1" in said and "rollouts; each has" in said


def test_every_command_is_documented():
    """Each command of `envgen --help` says what it and its options are for, and the README shows it, and no other."""
    commands = next(action for action in build_parser()._actions if hasattr(action, "_choices_actions"))
    said = {choice.dest: choice.help for choice in commands._choices_actions}
    assert set(said) == set(commands.choices) and all(said.values())
    for parser in commands.choices.values():
        assert all(action.help for action in parser._actions), parser.prog
    assert set(re.findall(r"(?m)(?:`|^|bin/)envgen ([a-z]+)", TEXT)) == set(said)
    assert "make lab" in README and "pip install -e ." in TEXT


def test_every_name_is_documented():
    """What is registered stands in the guides: a designer that nobody can find might as well not be there."""
    for registry, page in ((designers, "models"), (curricula, "add_curriculum"), (learners, "add_learner"),
                           (places, "experiments")):
        for name in own_names(registry):
            assert re.search(rf"\b{name}\b", GUIDES[page]), f"{page}.md says nothing of {name}"
    assert all(name in GUIDES["games"].lower() for name in own_names(games))
    assert all(f"`{name}`" in GUIDES["experiments"] for name in
               (path.stem for path in (ROOT / "nbs" / "lab" / "experiments").glob("*.toml")))


def test_the_page_comes_first():
    """The method on one page: short, nothing of it hidden, and the first that a reader is led to."""
    cells = json.loads((ROOT / "nbs" / "00_envgen.ipynb").read_text())["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in "".join(cell["source"]).splitlines()]
    hidden = ("envgen_nb.cycle", "envgen_nb.experiment.batch")
    assert len(lines) <= 80 and not any(name in line for line in lines for name in hidden)
    assert "## Each line is a chapter" in "".join(cells[-1]["source"])
    for name in ("README.md", "docs/index.md", "docs/guides/teach.md", "nbs/workshop/teacher.md"):
        assert links((ROOT / name).read_text())[0].endswith("00_envgen.ipynb"), name


def test_every_name_stands_where_it_is_set():
    """In the comments of settings.ini and of the lab notebook's parameters, and in `envgen experiment --help`."""
    ini = (ROOT / "settings.ini").read_text()
    cells = json.loads((ROOT / "nbs" / "lab" / "envgen.ipynb").read_text())["cells"]
    lab = next("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", []))
    for registry, texts in ((designers, (ini, lab)), (learners, (ini, lab)), (curricula, (lab,)), (games, (lab,))):
        for name in own_names(registry):
            assert all(re.search(rf"[ ,(]{name}[ ,(\n]", text) for text in texts), name
    commands = next(action for action in build_parser()._actions if hasattr(action, "_choices_actions"))
    said = commands.choices["experiment"].format_help().replace("\n", " ")
    experiments = [path.stem for path in (ROOT / "nbs" / "lab" / "experiments").glob("*.toml")]
    assert len(experiments) >= 10 and all(re.search(rf"[ ,]{name}\b", said) for name in experiments)


def test_what_is_recorded_is_not_said_to_be_missing():
    """Each recorded experiment is in the list of records; "not measured" names nothing of which there are records."""
    listed = (ROOT / "benchmarks" / "experiments" / "README.md").read_text()
    assert records.names() and all(f"[`{name}`]" in listed for name in records.names())
    assert "not run" not in GUIDES["experiments"]
    for text, words in ((README, "Not measured:"), (GUIDES["results_worlds"], "What was not measured")):
        assert "GPU" not in text.partition(words)[2][:300], words          # benchmarks/gpu.jsonl has what was measured


def test_the_readme_is_short():
    assert len(README.encode()) <= 7 * 1024


def test_tables_say_what_the_records_say():
    """To make them anew: python docs/tables.py"""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    spec.loader.exec_module(tables := importlib.util.module_from_spec(spec))
    text = "".join(page.read_text() for page in tables.PAGES)
    used = re.findall(r"<!-- table: (.*?) -->", text)
    assert set(used) == set(tables.TABLES) and text.count("<!-- end of table -->") == len(used)
    assert "agent_designs:" not in text                    # a program's name for what a reader knows as ppo-rare
    for path, text in tables.wanted().items():
        assert path.read_text() == text, path.name


def test_the_experiment_s_notebook_shows_the_record():
    """To have its outputs made anew: python docs/lab.py experiment"""
    cells = json.loads((ROOT / "nbs" / "lab" / "experiment.ipynb").read_text())["cells"]
    said = "".join("".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", []))
    assert results_text(records.opened("feedback")) in said


def test_the_notebook_of_a_run_shows_the_recorded_run():
    """To have its outputs made anew: python docs/lab.py envgen"""
    cells = json.loads((ROOT / "nbs" / "lab" / "envgen.ipynb").read_text())["cells"]
    said = "".join("".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", []))
    record = json.loads((ROOT / "benchmarks" / "make_run.json").read_text())
    for name, rates in record["success"].items():
        assert re.search(rf"^{name} +{rates[0]:.0f} % +{rates[-1]:.0f} %", said, re.M), name


@pytest.mark.parametrize("name", ["envgen", "experiment"])
def test_lab_notebooks_can_be_read_where_nothing_is_installed(name):
    """Small, with pictures where the notebook draws, and nothing that only a running JupyterLab shows."""
    path = ROOT / "nbs" / "lab" / f"{name}.ipynb"
    book = json.loads(path.read_text())
    kinds = [kind for cell in book["cells"] for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert path.stat().st_size < 300_000 and "widgets" not in book["metadata"]
    assert set(kinds) <= {"text/plain", "text/html", "image/png", "image/svg+xml"}
    assert sum(kind.startswith("image/") for kind in kinds) >= 3


def anchors(text: str) -> set[str]:
    """What the headings of a page can be called in a link."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def links(text: str) -> list[str]:
    """Where a page's links and pictures lead, without those to other sites."""
    found = re.findall(r"\]\(([^()\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def test_links_and_pictures_exist():
    """In README, guides, and what else a person reads; in the notebooks' text, too."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("guides/*.md")]
    texts = {path: path.read_text() for path in pages}
    for path in (ROOT / "nbs").rglob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"]
        texts[path] = "\n\n".join("".join(cell["source"]) for cell in cells)
    for path, text in texts.items():
        for target in links(text):
            file, _, anchor = target.partition("#")
            found = (path.parent / file).resolve() if file else path
            assert found.exists(), f"{path.name}: {target}"
            if anchor and found.suffix == ".md":
                assert anchor in anchors(found.read_text()), f"{path.name}: {target}"
    for name in ("LICENSE", "CITATION.cff", "settings.ini", "pyproject.toml", "requirements.lock"):
        assert (ROOT / name).exists()


def test_every_guide_is_in_the_contents():
    """Each once, and in the site's index for those who look for something."""
    index = (ROOT / "docs" / "index.md").read_text()
    listed = re.findall(r"^guides/(\w+)$", index, re.MULTILINE)
    assert sorted(listed) == sorted(GUIDES) and set(re.findall(r"\(guides/(\w+)\.md\)", index)) >= set(GUIDES) - {
        "platforms"}


def test_the_run_folder_is_as_its_guide_says(run):
    listed = re.search(r"```\n(runs/.*?)```", GUIDES["run_folder"], re.S).group(1)
    # Not in every run: rejected replies, calls that cost something, training after the last cycle, another run's rates,
    # what was played to choose worlds, and the second question then, a model's thoughts and what it believes the
    # bottleneck is, weights of worlds, random ones; files that a designer reads, replies by hand,
    # lessons, edits; and what the studio adds when it lists
    # runs, a person names one, or has worlds designed again; the last measurement before a run went on.
    names = set(re.findall(r"[├└]── ([\w.-]+)", listed)) - {
        "rejected-1.md", "complaints-1.md", "usage.jsonl", "final", "feedback.json", "selection.json",
        "roles.json", "thoughts-1.md", "trial", "bottleneck.md", "drawn.json", "labels.json", "drafts", "designer",
        "teacher", "ends", "edited.md", "lessons-given.md", "manual"}
    there = {p.name for p in run.rglob("*")}
    assert names <= there, names - there


def test_the_package_is_whole(tmp_path, long):
    """A wheel has every module, the prompt templates and the lab notebooks, and finds them where no clone is."""
    source, site, empty = tmp_path / "source", tmp_path / "site", tmp_path / "empty"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "envgen_nb", "nbs", "docs"):   # building leaves files there
        sh(["cp", "-r", ROOT / name, source / name])
    pip = [sys.executable, "-m", "pip"]
    sh([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, source])
    sh([*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", site, next(tmp_path.glob("*.whl"))])

    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "envgen_nb").rglob("*")
               if p.suffix in (".py", ".md", ".css", ".js") and p.is_file()}
    modules |= {f"envgen_nb/lab/{p.relative_to(ROOT / 'nbs' / 'lab')}" for p in (ROOT / "nbs" / "lab").rglob("*")
                if p.suffix in (".ipynb", ".toml", ".json", ".jsonl") or p.name.endswith("reply.md")}
    there = {str(p.relative_to(site)) for p in (site / "envgen_nb").rglob("*")}
    assert modules <= there, modules - there

    empty.mkdir()
    code = "from envgen_nb.experiment.batch import find_notebook; print(find_notebook())"
    found = sh([sys.executable, "-c", code], cwd=empty, PYTHONPATH=str(site))
    assert found.stdout.strip() == str(site / "envgen_nb" / "lab" / "envgen.ipynb")
    if not long:                          # to run it takes a minute: its engine is compiled anew
        return
    sh([site / "bin" / "envgen", "run", "crafter", *shlex.split(TINY)], cwd=empty, PYTHONPATH=str(site))
    (folder,) = (empty / "runs").iterdir()
    ran = json.loads((folder / "envgen.ipynb").read_text())["metadata"]["papermill"]["input_path"]
    assert ran == str(site / "envgen_nb" / "lab" / "envgen.ipynb") and RunFolder(folder).finished()
