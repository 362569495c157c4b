"""What somebody sent sends nothing of this environment anywhere: no key, and nothing to a server that nobody named."""
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer, answer

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, changed_settings, load_settings, make_settings
from envgen_nb.designer import trust
from envgen_nb.designer.base import DesignerError
from envgen_nb.experiment.file import parse_experiment
from envgen_nb.experiment.folder import open_experiment
from envgen_nb.experiment.places import make_place
from envgen_nb.experiment.schedule import forecast, run_experiment
from envgen_nb.extras.check import check_settings
from envgen_nb.extras.cli import main

SECRET = "AWS_SECRET_ACCESS_KEY"
TINY = {"num_cycles": 1, "num_worlds": 1, "cycle_steps": 2048, "final_steps": 0, "evaluation_runs": 1,
        "evaluation_episodes": 1, "threads": 1, "learner": "random"}
ENVGEN = Path(sys.executable).with_name("envgen")
REPLY = '{"environments": [{"purpose": "none", "settings": {}}]}'


@pytest.fixture(autouse=True)
def somebody(tmp_path, monkeypatch):
    """A user who has named no server yet, with a secret in the environment, in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_named", set())
    monkeypatch.setenv(SECRET, "the-secret-of-this-machine")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def server():
    with ChatServer(*[answer(REPLY)] * 9) as one:
        yield one


def sent(server: ChatServer, path: Path, **options: object) -> RunFolder:
    """A run that somebody has sent: its settings name a server and a secret of this machine."""
    run = create_run(make_settings(**TINY, designer="random"), path)
    info = json.loads((path / "run.json").read_text())
    info["settings"] |= {"designer": "openai", "designer_options": {
        "model": "m", "base_url": server.url, "api_key_env": SECRET, "max_retries": 0} | options}
    (path / "run.json").write_text(json.dumps(info))
    return RunFolder(run.path)


def test_resuming_a_sent_run_sends_nothing(server, tmp_path, capsys):
    run = sent(server, tmp_path / "sent")
    assert main(["resume", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert f"{server.url}, with the key in {SECRET}" in said and "nothing was sent" in said and "--trust" in said
    with pytest.raises(DesignerError, match="nothing was sent"):                # from a script, too
        list(run_cycles(run.path))
    assert server.headers == []


def test_with_trust_it_is_asked_and_named_before(server, tmp_path):
    run = sent(server, tmp_path / "sent")
    done = subprocess.run([ENVGEN, "resume", str(run.path), "--trust"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"model     {server.url}, with the key in {SECRET}\n")
    assert {header["authorization"] for header in server.headers} == {"Bearer the-secret-of-this-machine"}


@pytest.mark.parametrize("options", [{"api_key_env": SECRET, "base_url": "https://api.openai.com/v1"},
                                     {"api_key_env": None, "base_url": "http://10.1.2.3/v1"},
                                     {"api_key_env": None, "base_url": "http://localhost.example.com/v1"}])
def test_foreign_servers_and_foreign_keys(options, server, tmp_path, capsys):
    assert main(["resume", str(sent(server, tmp_path / "sent", **options).path)]) == 2
    assert "nothing was sent" in capsys.readouterr().err


def test_a_server_of_this_machine_without_a_key_needs_no_consent(server, tmp_path):
    run = sent(server, tmp_path / "sent", api_key_env=None)
    for _ in run_cycles(run.path):
        pass
    assert server.requests and {header.get("authorization") for header in server.headers} == {"Bearer none"}


def test_settings_of_the_working_directory_send_nothing(server, capsys):
    """Neither a run, nor `check` without `--call`."""
    Path("settings.ini").write_text(f"[designer]\nname = openai\nmodel = m\nbase_url = {server.url}\n"
                                    f"api_key_env = {SECRET}\n")
    assert main(["run", "crafter"]) == 2 and "nothing was sent" in capsys.readouterr().err
    found = {finding.name: finding for finding in check_settings({})}
    assert found["server"].state == "wrong" and "name it once" in found["server"].advice and "key" not in found
    with pytest.raises(SettingsError, match="nothing was sent"):                # a key of the file to a server of mine
        create_run(load_settings(designer_options={"base_url": server.url + "/mine"}), "run")
    assert server.headers == server.looked == []


def test_what_a_person_has_named_is_remembered(server, tmp_path, monkeypatch):
    """A run of one's own is resumed without a question, in another process; another key of the same server is not."""
    options = {"model": "m", "base_url": server.url, "api_key_env": SECRET, "max_retries": 0}
    run = create_run(load_settings(**TINY, designer="openai", designer_options=options), tmp_path / "mine")
    monkeypatch.setattr(trust, "_named", set())
    for _ in run_cycles(run.path):
        pass
    assert len(server.requests) == 1
    monkeypatch.setenv("OTHER_KEY", "another-secret")
    with pytest.raises(DesignerError, match="with the key in OTHER_KEY"):
        list(run_cycles(sent(server, tmp_path / "sent", api_key_env="OTHER_KEY").path))
    changed = changed_settings(RunFolder(tmp_path / "sent").settings, designer_options=options | {
        "api_key_env": "OTHER_KEY", "model": "larger"})                          # only the model is the person's
    with pytest.raises(SettingsError, match="with the key in OTHER_KEY"):
        create_run(changed, tmp_path / "changed")


def test_check_sends_no_header(server):
    words = {"designer": "openai", "designer_options": {"model": "m", "base_url": server.url, "api_key_env": SECRET}}
    trust.name_destinations(words["designer_options"])
    assert {finding.name: finding.state for finding in check_settings(words)} == {
        "settings": "ok", "key": "ok", "server": "ok"}
    assert len(server.looked) == 1 and "authorization" not in server.looked[0] and server.headers == []


def test_an_experiment_that_names_a_server(server, tmp_path):
    text = f"""name = "sent"
baseline = "one"
seeds = [0]
[arms.one]
designer = "openai"
designer_options = {{model = "m", base_url = "{server.url}", api_key_env = "{SECRET}"}}
[arms.two]
designer = "fixed"
designer_options = {{base = "openai", options = {{model = "m", base_url = "http://10.1.2.3/v1"}}}}
"""
    folder = open_experiment(parse_experiment(text, tmp_path), tmp_path / "folder")
    with pytest.raises(ValueError, match=f"(?s)arm one: .*{SECRET}.*arm two: .*10.1.2.3"):
        forecast(folder)
    with pytest.raises(ValueError, match=f"arm one: .*{SECRET}"):
        next(run_experiment(folder, make_place("local", 1)))
    assert server.headers == []


def test_on_a_terminal_a_person_is_asked(server, tmp_path):
    run = sent(server, tmp_path / "sent")
    for word, status in (("n", 2), ("y", 0)):
        leader, follower = pty.openpty()
        os.write(leader, f"{word}\n".encode())
        done = subprocess.run([ENVGEN, "resume", str(run.path)], stdin=follower, capture_output=True, text=True)
        os.close(leader)
        os.close(follower)
        assert done.returncode == status, done.stderr
        assert "Is that right? [y/N]" in done.stdout and len(server.requests) == (status == 0)
