"""The repository itself: the export is clean, the code is tidy, and modules keep to the road."""
import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "nbs").rglob("*.ipynb"))
NOTEBOOKS = [path for path in NOTEBOOKS if ".ipynb_checkpoints" not in path.parts]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and "__pycache__" not in p.parts and p.suffix not in {".nbi", ".nbc"}}


def test_export_changes_nothing(tmp_path):
    """envgen_nb/ is what nbdev-export makes of nbs/, and nothing else."""
    for name in ("nbs", "envgen_nb", "pyproject.toml", "README.md"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path / name], check=True)
    for path in (tmp_path / "envgen_nb").rglob("*.py"):
        path.unlink()
    subprocess.run([Path(sys.executable).with_name("nbdev-export")], cwd=tmp_path, check=True)
    assert contents(tmp_path / "envgen_nb") == contents(ROOT / "envgen_nb")


def test_notebooks_are_clean(tmp_path):
    """nbdev-clean has nothing to take away: no execution counts, no stray metadata."""
    for name in ("nbs", "envgen_nb", "pyproject.toml"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path / name], check=True)
    subprocess.run([Path(sys.executable).with_name("nbdev-clean")], cwd=tmp_path, check=True)
    for path in NOTEBOOKS:
        before, after = nbformat.read(path, 4), nbformat.read(tmp_path / path.relative_to(ROOT), 4)
        assert before == after, path.name


def test_stored_outputs_name_no_machine():
    for path in NOTEBOOKS:
        assert "site-packages" not in path.read_text(), f"{path.name}: a warning with the path of a package is stored"


def test_no_merge_is_half_done():
    found = subprocess.run(["git", "grep", "-l", "-E", "^(<{7}|>{7}) "], cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == ""


def test_lint():
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], cwd=ROOT, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout


def test_locked_packages_have_hashes():
    """Every package but torch, whose build is the machine's; and no file names a host, an index or a path."""
    for path in ROOT.glob("requirements*.lock"):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert not any("://" in line or "file:" in line or line.startswith("-") for line in lines), path.name
        if path.name == "requirements-torch.lock":
            assert len(lines) == 1 and lines[0].startswith("torch==")
            continue
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            assert line.startswith("    --hash=sha256:") or following.startswith("    --hash=sha256:"), line
    recipe = (ROOT / "Makefile").read_text()
    installed = [line for line in recipe.splitlines() if "pip install" in line and "--require-hashes" not in line]
    assert [line for line in installed if ".lock" in line] == [
        "\t$(BIN)/python -m pip install --quiet -r requirements-torch.lock"]


def test_lock_files_have_what_is_asked_for():
    """`make run` installs what a run needs, `make test` what tests need besides."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = asked["optional-dependencies"]

    def locked(name: str) -> set[str]:
        lines = (ROOT / name).read_text().splitlines()
        return {Requirement(line.rstrip("\\ ")).name for line in lines if line[:1].isalpha()}

    run = locked("requirements.lock") | locked("requirements-torch.lock")
    for lines, there in ((asked["dependencies"] + extras["bench"] + extras["minigrid"] + extras["walker"]
                          + extras["frames"], run),
                         (extras["test"], run | locked("requirements-test.lock")),
                         (extras["docs"], run | locked("requirements-test.lock") | locked("requirements-docs.lock"))):
        assert {Requirement(line).name for line in lines} <= there
    assert "gym" not in run and "pip" in run


# The stations of the road, in order: a module imports only from its own station and from those before it.
STATIONS = ("game", "designer", "agent", "curriculum", "cycle", "results", "experiment", "frames", "studio", "extras")
FORBIDDEN = {"game": {"torch"}, "designer": {"torch"}, "curriculum": {"torch"},
             "results": {"torch", "ipywidgets", "anywidget"}, "experiment": {"plotly", "ipywidgets"},
             "frames": {"plotly", "ipywidgets"}}


def test_a_notebook_comes_after_what_it_imports():
    """Folders and numbers of the notebooks are the order in which they can be read."""
    exported = set()
    modules = [path for path in NOTEBOOKS if path.parent.name not in ("nbs", "lab", "workshop")]
    for path in modules:
        cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
        body = ast.parse("\n".join(source for source in cells if source.startswith("#| export"))).body
        imported = {node.module.removeprefix("envgen_nb.") for node in body
                    if isinstance(node, ast.ImportFrom) and node.module.startswith("envgen_nb.")}
        packages = {name.rpartition(".")[0] for name in exported} - {""}
        for node in body:                                                       # `from envgen_nb.agent import ppo`
            if isinstance(node, ast.ImportFrom) and node.module.removeprefix("envgen_nb.") in packages - exported:
                package = node.module.removeprefix("envgen_nb.")
                imported = imported - {package} | {f"{package}.{alias.name}" for alias in node.names}
        assert imported <= exported, f"{path.name} imports {imported - exported}"
        exported.add(next(source for source in cells if source.startswith("#| default_exp")).split()[-1]
                     .removesuffix(".__init__"))


def imported_by(path: Path) -> set[str]:
    """Top-level names of what a module imports, those of this package without its own name."""
    package = path.relative_to(ROOT / "envgen_nb").parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = list(package[:len(package) - node.level + 1]) + (node.module or "").split(".")
            found |= {next((part for part in base if part), alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".")
            found.add(parts[1] if parts[0] == "envgen_nb" and len(parts) > 1 else parts[0])
    return found


MODULES = [p for p in sorted((ROOT / "envgen_nb").rglob("*.py")) if not p.name.startswith("_")]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_keep_to_the_road(path):
    parts = path.relative_to(ROOT / "envgen_nb").with_suffix("").parts
    station, names = parts[0], imported_by(path)
    if station == "simulators":                                 # a game knows the contract of games, and itself
        assert not names & {"torch", *STATIONS[1:]}, f"{'.'.join(parts)} imports more than a game may"
        assert "heist" not in parts or "crafter" not in path.read_text(), "games do not know each other"
        return
    later = {"simulators", *STATIONS[STATIONS.index(station) + 1:]} - ({"simulators"} if station == "extras" else set())
    assert not names & later, f"{'.'.join(parts)} imports from a station after it"
    assert not names & FORBIDDEN.get(station, set())


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name in ("lab", "workshop")], ids=lambda p: p.name)
def test_lab_notebooks_define_nothing(path):
    cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    for node in ast.walk(ast.parse("\n".join(cells))):
        assert not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda), "lab notebooks only use the package"


def test_lab_notebook_has_parameters():
    for path in NOTEBOOKS:
        if path.parent.name == "lab":
            tagged = [c for c in nbformat.read(path, 4).cells if "parameters" in c.metadata.get("tags", [])]
            assert len(tagged) == 1, path.name


def test_import_is_light():
    """Importing the package loads no game, no network library, no model client."""
    heavy = ("torch", "crafter", "numba", "openai", "plotly", "minigrid", "pygame", "Box2D")
    code = f"import sys, envgen_nb; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]" and done.stderr == ""


@pytest.mark.parametrize("module", ["results.report", "experiment.batch"])
def test_reports_and_batch_need_no_widgets(module):
    """A run without a person and its report are made where no widget can be shown."""
    code = f"import sys, envgen_nb.{module}; print([m for m in ('ipywidgets', 'anywidget') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_plain_words():
    """Docstrings, comments, messages and names speak of functions and values, not of people who hear and are told.

    Texts that go into prompts are the exception: they are as they were when replies were recorded."""
    private = re.compile(r"\b(told|nobody|whoever|somebody|hears)\b", re.IGNORECASE)
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path in sorted((ROOT / "envgen_nb").rglob("*.py"))
             for number, line in enumerate(path.read_text().splitlines(), 1) if private.search(line)]
    assert not found, "\n".join(found)
