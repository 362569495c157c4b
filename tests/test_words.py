"""Words of one's own to the designer: functions that fill placeholders of a template."""
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_cycle_story import SMALL

from envgen_nb.cycle.create import create_run, trust
from envgen_nb.cycle.edit import change_settings
from envgen_nb.cycle.events import Evaluated, Prompted
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.base import Request
from envgen_nb.designer.prompt import (
    DesignContext,
    check_template,
    fill,
    load_templates,
    own_words,
    save_templates,
    words,
    words_in,
)
from envgen_nb.game.files import write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.studio.conversation import templates_of
from envgen_nb.studio.editor import Editor

GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "placeholders.md").read_text()
CRAFTER = get_simulator("crafter")


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """The guide's module, and templates that name its function beside one that counts its calls; none taken yet."""
    trend = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
    count = "calls = []\n\n\ndef count(request):\n    calls.append(request)\n"
    count += "    return '{{rules}} ' + str(len(calls))\n"
    (tmp_path / "my_kit.py").write_text(f"{trend}\n\n{count}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_kit", raising=False)
    monkeypatch.setattr(words, "written", set())
    kits = load_templates()
    save_templates(kits, tmp_path / "mine")
    for kind in ("first", "update"):
        text = f"{getattr(kits, kind)}\n\n{{{{my_kit:trend}}}}\n\nThis is {{{{ my_kit:count }}}}.\n"
        write_text(tmp_path / "mine" / f"{kind}.md", text)
    return tmp_path


def test_a_run_asks_with_them_and_a_resumed_one_as_it_was(kit):
    run = create_run(make_settings(**SMALL, templates=str(kit / "mine")), kit / "run")
    asked = next(event for event in run_cycles(run.path) if isinstance(event, Prompted))
    import my_kit
    assert asked.prompt.endswith("The agent has lost nothing that it could do.\n\nThis is {{rules}} 1.\n")
    assert run.text("cycle-1", "prompt.md") == asked.prompt and my_kit.calls[0].feedback is None

    words.written.clear()                                     # another process, in which no person has named it
    again = run_cycles(run.path)
    assert next(event for event in again if isinstance(event, Prompted)).prompt == asked.prompt
    next(event for event in again if isinstance(event, Evaluated) and event.cycle == "cycle-1")
    with pytest.raises(ValueError, match="my_kit:trend is a function that only the run's folder names.*--trust"):
        list(again)
    assert len(my_kit.calls) == 1
    trust(run.path)
    list(run_cycles(run.path))
    request = my_kit.calls[-1]
    assert request.cycle == 2 and set(request.feedback) == set(CRAFTER.objectives) and len(request.history[0]) == 2
    assert "This is {{rules}} 2." in run.text("cycle-2", "prompt.md")
    assert "{{rules}} 2" in templates_of(RunFolder(run.path), "cycle-2").update       # asked again word for word


def test_what_is_not_there_or_fails_is_named(kit):
    assert words_in("{{task}} {{!my_kit:trend}} {{ a.b:c }} {{a.b:c}}") == ["a.b:c"]
    wrong, = [line for line in check_template("{{trend}}", "choice") if "trend" in line]
    assert "not a placeholder of the choice template; it has: num_worlds, results, and functions" in wrong
    write_text(kit / "mine" / "first.md", load_templates().first + "{{my_kit:nothing}}")
    with pytest.raises(SettingsError, match="the placeholder my_kit:nothing cannot be imported"):
        make_settings(**SMALL, templates=str(kit / "mine"))
    for name in ("my_kit:calls", "my_kit:fails", "my_kit:number"):
        words.take(name)
    import my_kit
    my_kit.fails, my_kit.number = lambda request: request.nothing, lambda request: 3
    for name, why in [("calls", "is no function"), ("fails", "raised AttributeError"), ("number", "returned 3, not")]:
        with pytest.raises(ValueError, match=f"my_kit:{name}.*{why}"):
            own_words(f"{{{{my_kit:{name}}}}}", Request(CRAFTER))


def test_the_function_of_the_guide(kit):
    words.take("my_kit:trend")
    request = Request(CRAFTER, feedback={"eat_cow": (40.0, 1.0), "wake_up": (90.0, 1.0)},
                      context=DesignContext(before={"eat_cow": (60.0, 1.0), "wake_up": (91.0, 1.0)}))
    said = own_words("{{my_kit:trend}}", request)
    assert said["my_kit:trend"].startswith("The agent is losing what it could do: eat_cow. ")
    assert fill("a\n{{my_kit:trend}}\n", said).startswith("a\nThe agent is losing")


def test_the_preview_of_the_studio_calls_it_where_a_person_has_written_it(kit):
    editor = Editor(vocabulary="paper")
    editor.first += "\n\n{{my_kit:trend}}"
    assert "only the run's folder names" in editor.complaints[0] and editor.filled.endswith("{{my_kit:trend}}")
    words.take("my_kit:trend")
    editor.first += "."
    assert editor.complaints == () and editor.filled.endswith("The agent has lost nothing that it could do..")
    assert editor.values["my_kit:trend"].startswith("The agent has")


def test_a_package_offers_a_short_name(kit, monkeypatch):
    entry = SimpleNamespace(name="trend", value="my_kit:trend")
    monkeypatch.setattr(words, "_installed", lambda: {entry.name: [entry.value]})
    assert not [line for line in check_template("{{trend}}", "choice") if "trend" in line]
    assert own_words("{{trend}}", Request(CRAFTER)) == {"trend": "The agent has lost nothing that it could do."}


def test_the_command_prints_it(kit):
    command = [str(Path(sys.executable).parent / "envgen"), "prompt", "crafter", "--templates", str(kit / "mine")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=kit,
                          env={"PYTHONPATH": str(kit), "PATH": "", "HOME": str(kit)})
    assert done.returncode == 0 and "This is {{rules}} 1." in done.stdout, done.stderr


def test_a_run_without_them_may_change_its_settings(kit):
    run = create_run(make_settings(**SMALL, templates=str(kit / "mine")), kit / "run")
    words.written.clear()
    assert change_settings(run, num_worlds=3).settings.num_worlds == 3
