"""The settings are defined once, in `RunSettings`; other lists of them agree with it, and old names are still read."""
import json
import re
from pathlib import Path

import pytest
from forms import own_names

from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import PRESETS
from envgen_nb.curriculum import curricula
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.settings import RunSettings, SettingsError, load_settings, make_settings
from envgen_nb.designer.base import designers
from envgen_nb.experiment.batch import find_notebook, notebook_parameters, read_parameters
from envgen_nb.experiment.file import parse_experiment

ROOT = Path(__file__).parent.parent
EXPERIMENT = """
name = "x"
baseline = "a"
seeds = [1]
[settings]
agent = "symbols"
[arms.a]
[arms.b]
agent_options = {gamma = 0.9}
"""


def test_the_lab_notebook_has_every_setting():
    """A parameter of the notebook is a setting of the same default, or None: as settings.ini or the game has it."""
    parameters = notebook_parameters(find_notebook())
    assert set(parameters) == {"folder", *RunSettings.model_fields}
    for name, field in RunSettings.model_fields.items():
        assert parameters[name] in (None, field.get_default(call_default_factory=True)), name


def test_old_names_are_read(tmp_path, capsys):
    old = {"agent": "symbols-long", "agent_options": {"gamma": 0.9}}
    now = make_settings(preset="symbols-long", preset_options={"gamma": 0.9})
    assert make_settings(**old) == now == RunSettings(**now.model_dump(exclude={"preset", "preset_options"}) | old)
    assert load_settings(tmp_path / "none.ini", **old) == now
    run = create_run(now, tmp_path / "run")
    info = json.loads((run.path / "run.json").read_text())
    info["settings"] = {{"preset": "agent", "preset_options": "agent_options"}.get(name, name): value
                        for name, value in info["settings"].items()}
    (run.path / "run.json").write_text(json.dumps(info))
    assert RunFolder(run.path).settings == now and not capsys.readouterr().err
    found = parse_experiment(EXPERIMENT, Path(), "x.toml")
    assert found.settings_of("b", 1).agent_preset.algorithm.gamma == 0.9
    assert "x.toml: the setting agent_options is now called preset_options" in capsys.readouterr().err
    read = read_parameters(find_notebook(), [("agent", "symbols-long"), ("designer", "none")])
    assert read["preset"] == "symbols-long" and "-p agent is now called -p preset" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="given twice"):
        make_settings(agent="symbols", preset="symbols")


def words_after(text, beginning, end):
    """The words of a comment: from one text to another, without its marks."""
    start = text.index(beginning)
    return set(re.findall(r"[\w-]+", text[start:text.index(end, start)].replace("\n#", "\n")))


def test_lists_in_prose_have_every_name():
    """What the settings file and the lab notebook offer is what the registries know."""
    ini, lab = (ROOT / "settings.ini").read_text(), find_notebook().read_text()
    described = {name: field.description for name, field in RunSettings.model_fields.items()}
    assert set(own_names(designers)) <= words_after(ini, "[designer]", "\nname =")
    assert set(own_names(learners)) <= words_after(ini, "[agent]", "\nlearner =")
    assert set(own_names(learners)) <= words_after(lab, "learner = ", "preset = ")
    assert set(own_names(designers)) <= words_after(lab, "designer = ", "designer_options")
    assert set(own_names(curricula)) <= words_after(lab, "curriculum = ", "final_steps")
    assert set(own_names(designers)) <= set(re.findall(r"[\w-]+", described["designer"]))
    assert set(own_names(learners)) <= set(re.findall(r"[\w-]+", described["learner"]))
    assert set(own_names(curricula)) <= set(re.findall(r"[\w-]+", described["curriculum"]))
    assert set(PRESETS) <= set(re.findall(r"[\w-]+", described["preset"]))
