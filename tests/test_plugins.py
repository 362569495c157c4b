"""What other packages add is found by its name, and what only a run folder names is not imported."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forms import own_names

from envgen_nb.cycle.create import create_run, trust
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.settings import NAMING, SettingsError, changed_settings, make_settings
from envgen_nb.designer.base import designers
from envgen_nb.extras.cli import main
from envgen_nb.game.simulator import games
from envgen_nb.results.figures import success_figure
from envgen_nb.studio.studio import Studio

TESTS = Path(__file__).parent
ENVGEN = Path(sys.executable).with_name("envgen")
PROJECT = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "orchard-kit"
version = "1.0"
[project.entry-points."envgen_nb.games"]
apples = "orchard_kit.game:Orchard"
[project.entry-points."envgen_nb.vocabularies"]
"orchard.near" = "orchard_kit.words:NearWorld"
[project.entry-points."envgen_nb.designers"]
gardener = "orchard_kit:Gardener"
[project.entry-points."envgen_nb.learners"]
pupil = "orchard_kit.pupil:Pupil"
[project.entry-points."envgen_nb.curricula"]
turns = "orchard_kit:Turns"
[tool.setuptools]
packages = ["orchard_kit"]
"""
GARDENER = '''"""A designer and a curriculum."""
import os
from pathlib import Path

from envgen_nb.game.episodes import Changes, Curriculum
from envgen_nb.designer.base import Designer
from envgen_nb.designer.reply import Design

if "IMPORTED" in os.environ:
    Path(os.environ["IMPORTED"]).touch()


class Gardener(Designer):
    name = "gardener"

    def __init__(self, *, purpose: str = "an apple to find"):
        self.purpose = purpose

    def reply(self, request, on_text=None):
        world = request.simulator.practice(request.simulator.objectives[0], request.vocabulary)[0]
        return [Design(world, self.purpose)] * request.num_worlds


class Turns(Curriculum):
    """Every second sub-environment plays a designed world; after each rollout all change over."""

    def begin(self, worlds, steps):
        self.worlds, self.rounds = list(worlds), 0
        return self.update(0, None)

    def update(self, steps, episodes):
        self.rounds += 1
        return Changes({i: self.worlds[i // 2 % len(self.worlds)] if (i + self.rounds) % 2 else 0
                        for i in range(self.num_envs)})
'''
WORDS = '''"""A vocabulary of the orchard: a designer may bring the apple near, not far away."""
from typing import Literal

from pydantic import Field

from orchard_kit.game import OrchardWorld


class NearWorld(OrchardWorld):
    apple: Literal["near"] | None = Field(None, description="whether the apple is brought near")
'''
PUPIL = '''"""A learner: each action is one more than the one before, of each sub-environment."""
import torch

from envgen_nb.agent.learner import Learner


class Pupil(Learner):
    def start(self, num_envs):
        return {"last": torch.zeros(num_envs, dtype=torch.int64)}

    def act(self, obs, carry=None, generator=None):
        actions = (carry["last"] + 1) % int(self.action_space.n)
        return actions, {"last": actions}, {}

    def learn(self, rollout, check=lambda: None):
        return {"reward": float(rollout.rewards.mean())}
'''
SMALL = dict(num_cycles=1, num_worlds=2, cycle_steps=512, final_steps=0, evaluation_runs=1, evaluation_episodes=4,
             threads=1, preset_options={"num_envs": 8, "rollout_steps": 16, "minibatches": 2})
OPTIONS = [text for name, value in SMALL.items() for text in ("-p", name, json.dumps(value))]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which pip has installed a package with a game, a designer, a learner and a curriculum."""
    source, site = tmp_path_factory.mktemp("orchard-kit"), tmp_path_factory.mktemp("site")
    (source / "orchard_kit").mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "orchard_kit" / "__init__.py").write_text(GARDENER)
    (source / "orchard_kit" / "pupil.py").write_text(PUPIL)
    (source / "orchard_kit" / "words.py").write_text(WORDS)
    (source / "orchard_kit" / "game.py").write_text((TESTS / "game_by_docs.py").read_text())
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                           "--no-build-isolation", "--target", site, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


def envgen(site: Path, *arguments, **environment) -> subprocess.CompletedProcess:
    return subprocess.run([ENVGEN, *map(str, arguments)], capture_output=True, text=True, timeout=600,
                          cwd=site, env=os.environ | {"PYTHONPATH": "."} | environment)      # as the guides say


def unfinished(site: Path, folder: Path, **names) -> Path:
    """A run that somebody else has begun."""
    code = ("import json, sys; from envgen_nb.cycle.runs import open_run\n"
            "open_run(sys.argv[1], **json.loads(sys.argv[2]))")
    done = subprocess.run([sys.executable, "-c", code, folder, json.dumps(SMALL | names)], capture_output=True,
                          text=True, cwd=site.parent, env=os.environ | {"PYTHONPATH": str(site)})
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def command(capsys, monkeypatch):
    """`envgen` in this process, for commands that start nothing, with a folder to import from: exit status, texts."""
    def run(site: Path, *arguments) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(site))
            status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()
    yield run
    for name in [name for name in sys.modules if name.startswith("orchard_kit")]:
        del sys.modules[name]


def test_an_installed_package_adds_what_can_be_added(site, tmp_path, command, long):
    run = tmp_path / "run"
    names = {"vocabulary": "near", "designer": "gardener", "learner": "pupil", "curriculum": "turns"}
    given = [text for name, value in names.items() for text in ("-p", name, value)]
    done = envgen(site, "run", "apples", *given, "-p", "folder", run, *OPTIONS)
    assert done.returncode == 0 and "find_apple_soon" in done.stdout, done.stderr
    assert "an apple to find" in (run / "cycle-1" / "reply.md").read_text()
    records = [json.loads(line) for line in (run / "cycle-1" / "metrics.jsonl").read_text().splitlines()]
    assert {record["phase"] for record in records} == {"both"} and all("reward" in r["metrics"] for r in records)
    assert {0} < {world for record in records for world in record["episodes"]["world"]} <= {0, 1, 2}
    with pytest.raises(RunFolderError, match="no game is called .apples."):
        RunFolder(run)                                               # here it is not installed
    assert command(site, "report", run)[0] == 0
    assert "reached" in command(site, "play", run, "--out", tmp_path / "clip.gif", "--world", "cycle-1:1")[1]
    assert "whether the apple is brought near" in (run / "cycle-1" / "prompt.md").read_text()
    told = command(site, "prompt", "apples", "--vocabulary", "near")[1]
    assert "An apple is near within 2 steps." in told and "whether the apple is brought near" in told
    assert "orchard has no vocabulary 'nearer'; it has: default, near" in command(
        site, "prompt", "apples", "--vocabulary", "nearer")[2]
    if long:
        begun = unfinished(site, tmp_path / "begun", simulator="apples", **names)
        assert envgen(site, "resume", begun).returncode == 0


def test_a_class_is_named_by_where_it_is(site, tmp_path, command, monkeypatch, long):
    for registry in NAMING.values():
        monkeypatch.setattr(registry, "written", set())
    mark = tmp_path / "imported"
    monkeypatch.setenv("IMPORTED", str(mark))
    names = {"simulator": "orchard_kit.game:Orchard", "vocabulary": "orchard_kit.words:NearWorld",
             "designer": "orchard_kit:Gardener", "learner": "orchard_kit.pupil:Pupil",
             "curriculum": "orchard_kit:Turns"}
    run = unfinished(site, tmp_path / "begun", **names)
    mark.unlink()
    for words in (("report", run), ("play", run, "--out", tmp_path / "clip.gif"), ("resume", run)):
        status, _, said = command(site, *words)
        assert status == 2 and "--trust" in said and not mark.exists() and "orchard_kit" not in sys.modules
    assert command(site, "report", run, "--trust")[0] == 0 and mark.exists()
    if long:
        assert envgen(site, "resume", run, "--trust").returncode == 0
        given = [text for name, value in names.items() for text in ("-p", name, value)]
        done = envgen(site, "run", names["simulator"], *given[3:], "-p", "folder", tmp_path / "run", *OPTIONS)
        assert done.returncode == 0 and "find_apple_soon" in done.stdout, done.stderr


def test_a_run_of_an_unknown_designer_is_read_and_not_imported(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(designers, "written", set())
    run = create_run(make_settings(**SMALL | {"preset_options": {}}), tmp_path / "run")
    info = json.loads((run.path / "run.json").read_text())
    info["settings"] |= {"designer": "orchard_kit:Gardener", "designer_options": {"purpose": "to be seen"}}
    (run.path / "run.json").write_text(json.dumps(info))
    run = RunFolder(run.path)
    assert success_figure(run).layout.title.text and run.check() and not run.finished()
    studio = Studio(run)
    assert studio.editor.designer == "orchard_kit:Gardener" and studio.session.error == ""
    studio.editor.first += "\nBe brief."
    press = {button.description: button for button in studio.buttons.children}
    press["Generate"].click()                                        # which writes down what was edited
    assert studio.session.wait(60) and "only the run's folder names" in studio.session.error
    assert json.loads((run.path / "run.json").read_text()) == info and "orchard_kit" not in sys.modules
    assert changed_settings(run.settings, designer="orchard_kit:Gardener", max_calls=3).max_calls == 3
    assert "orchard_kit" not in sys.modules
    trust(run.path)                                                  # now a person says so
    studio.session.refresh()
    press["Generate"].click()
    assert studio.session.wait(120) and studio.session.error == ""
    assert studio.run.purposes("cycle-1") == ["to be seen"] * 2
    sys.modules.pop("orchard_kit")


def test_what_cannot_be_is_refused_with_what_to_do(tmp_path):
    for given, said in [({"simulator": "nowhere.at:All"}, "^the game nowhere.at:All cannot be imported"),
                        ({"designer": "json:dumps"}, "no class that inherits from envgen_nb.designer.base.Designer"),
                        ({"designer": "json:Dumps"}, "cannot be imported: module 'json' has no attribute 'Dumps'"),
                        ({"simulator": "json: os"}, "no game is called 'json: os'"),
                        ({"learner": "genius"}, "no learner is called 'genius'; known: ppo, ppo-memory, ppo-rare, "),
                        ({"curriculum": "json:dumps"}, "inherits from envgen_nb.game.episodes.Curriculum"),
                        ({"simulator": 3}, "valid string")]:
        with pytest.raises(SettingsError, match=said):
            make_settings(**given)


def test_two_packages_with_one_name(tmp_path, monkeypatch):
    for k in range(2):
        (tmp_path / f"kit{k}-1.dist-info").mkdir()
        (tmp_path / f"kit{k}-1.dist-info" / "METADATA").write_text(f"Name: kit{k}\nVersion: 1\n")
        (tmp_path / f"kit{k}-1.dist-info" / "entry_points.txt").write_text(
            f"[envgen_nb.games]\nchess = kit{k}:Chess\ncrafter = kit{k}:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert games.names()[:3] == ("crafter", "heist", "minigrid") and games.find("crafter").__name__ == "Crafter"
    with pytest.raises(ValueError, match="several installed packages offer a game 'chess': kit0:Chess, kit1:Chess"):
        games.find("chess")


def test_the_games_that_pages_list_are_those_of_the_registry():
    root = Path(__file__).parent.parent
    own = own_names(games)
    lab = (root / "nbs" / "lab" / "envgen.ipynb").read_text()
    assert f"# the game: {', '.join(own)}, a package's" in lab
    guide = (root / "docs" / "guides" / "games.md").read_text()
    for name in own:
        game = games.find(name)
        assert f"## {game.__name__}\n" in guide and all(word in lab for word in list(game.vocabularies)[1:])
