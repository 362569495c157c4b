"""The engine's code on disk: it is kept, it is never out of date, and nothing is written where it is installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import envgen_nb

# Plays 30 steps in which nobody does anything, and says how hungry the player is then.
HUNGER = """
import sys
sys.path.insert(0, sys.argv[1])
from envgen_nb.simulators.crafter.fast import compile
from envgen_nb.simulators.crafter.vector import CrafterVectorEnv
assert compile.__file__.startswith(sys.argv[1])
venv = CrafterVectorEnv(num_envs=1, seed=[3], obs="symbols")
venv.reset()
for _ in range(30):
    infos = venv.step([0])[-1]
print(int(infos["inventory"][0, 1]), compile.FOLDER)
"""


def play(installation, cache):
    "The player's food after 30 steps, where the code is kept, and what was said about compiling."
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", HUNGER, str(installation)], env=environment, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    food, folder = done.stdout.split(maxsplit=1)
    return int(food), folder.strip(), done.stderr


def files(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    "An installation that nobody may write to, its cache, and what its first process said."
    base = tmp_path_factory.mktemp("cache")
    shutil.copytree(Path(envgen_nb.__file__).parent, base / "site" / "envgen_nb",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for path in [base / "site", *(base / "site").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = files(base / "site")
    yield base / "site", base / "cache", play(base / "site", base / "cache"), before
    for path in (base / "site").rglob("*"):
        path.chmod(0o755)
    (base / "site").chmod(0o755)


@pytest.mark.long
def test_a_read_only_installation_keeps_its_code_elsewhere_and_says_what_it_does(played):
    site, cache, (food, folder, said), before = played
    assert food == 8                                            # 9, and one less after 26 steps
    assert files(site) == before
    assert Path(folder).parent == cache and any(Path(folder).rglob("*.nbi"))
    assert "Compiling the Crafter engine, once for this machine" in said and "Compiled in" in said


@pytest.mark.long
def test_the_next_process_finds_the_code(played):
    site, cache, first, _ = played
    kept = files(cache)
    assert play(site, cache) == (first[0], first[1], "")        # and says nothing
    assert {path: when for path, when in files(cache).items() if path.name != "ready"} \
        == {path: when for path, when in kept.items() if path.name != "ready"}


@pytest.mark.long
def test_changed_rules_are_played_even_where_only_a_callee_has_changed(played, tmp_path):
    site, cache, first, _ = played
    changed = tmp_path / "site"
    shutil.copytree(site, changed)                              # with its times, by which numba goes
    path = changed / "envgen_nb" / "simulators" / "crafter" / "fast" / "dynamics.py"
    path.chmod(0o644)
    before, text = path.stat(), path.read_text()
    assert text.count("game.hunger > 25") == 1
    path.write_text(text.replace("game.hunger > 25", "game.hunger > 12"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    food, folder, said = play(changed, cache)
    assert food == 7 and folder != first[1] and "Compiling" in said


def test_where_the_chosen_folder_cannot_be_written_it_is_the_temporary_one(tmp_path):
    (tmp_path / "a file").touch()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "a file"), "TMPDIR": str(tmp_path)}
    code = "from envgen_nb.simulators.crafter.fast import compile; print(compile.FOLDER.parent)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True)
    assert done.stdout == f"{tmp_path / f'envgen_nb-{os.getuid()}'}\n"
    assert done.stderr == f"Compiled code is kept in {done.stdout.strip()}, because {tmp_path / 'a file'} cannot be " \
        "written.\n"


@pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="starts a process of another user")
@pytest.mark.parametrize("home", ["/", None, "read-only"])
def test_a_user_with_a_number_and_no_home(home, tmp_path):
    """`docker run --user 54321`: all that compiles is imported, with installed packages that cannot be written."""
    site = tmp_path / "site"
    packages = {name: Path(importlib.util.find_spec(name).origin).parent for name in ("envgen_nb", "opensimplex")}
    for name, folder in packages.items():
        shutil.copytree(folder, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    place = tmp_path / "work"
    for folder in (place, tmp_path / "temporary"):
        folder.mkdir()
        os.chown(folder, 54321, 54321)
    code = """if True:
        import ctypes, os
        libc = ctypes.CDLL(None)
        libc.prctl(8, 1, 0, 0, 0)                               # keep the capabilities, of which one is kept:
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)
        libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(4, 4, 0, 0, 0, 0))    # to read files
        import envgen_nb.extras.distillation, envgen_nb.simulators.crafter.reference
        from envgen_nb.simulators.crafter.fast import compile
        print(compile.FOLDER.parent)
        """
    tmp_path.parent.parent.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME",
                                                                                      "NUMBA_CACHE_DIR")}
    environment |= {"TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": str(site)} | ({"HOME": home} if home else {})
    if home == "read-only":
        environment["HOME"] = str(site)
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=place, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'temporary' / 'envgen_nb-54321'}\n"
    assert "Compiled code is kept in" in done.stderr
    assert list(place.iterdir()) == []                       # no folder `~`
