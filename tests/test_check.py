"""`envgen check`: what it finds where something is not right, and that it never tells a key."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import ChatServer, answer, status

import envgen_nb.extras.check
from envgen_nb.cycle.settings import read_ini
from envgen_nb.extras.check import check, check_packages, check_runs, check_settings, play_game, report
from envgen_nb.extras.cli import main
from envgen_nb.game.files import hold_folder
from envgen_nb.game.simulator import get_simulator

ENVGEN = Path(sys.executable).parent / "envgen"
KEY = "sk-thekeythatmustnotbetold"


def states(findings) -> dict[str, str]:
    return {finding.name: finding.state for finding in findings}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own, without the repository's settings.ini, and no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def openai(server: ChatServer | str, **options) -> dict:
    url = server if isinstance(server, str) else server.url
    return {"designer": "openai", "designer_options": {"model": "small", "base_url": url} | options}


@pytest.mark.long
def test_all_of_it_with_a_model(tmp_path):
    """The whole command, as a program reads it: a run will work here, with this server and this key."""
    with ChatServer(answer('{"environments": [{"purpose": "none", "settings": {}}]}')) as server:
        words = ["check", "--json", "--call", "--designer", "openai", "--model", "small", "--base-url", server.url,
                 "--api-key-env", "SMALL_KEY"]
        done = subprocess.run([ENVGEN, *words], cwd=tmp_path, capture_output=True, text=True,
                              env=os.environ | {"SMALL_KEY": KEY})
        chats = [path for path in server.paths if path.endswith("/chat/completions")]
        keys = {header.get("authorization") for header in server.headers}
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["machine"]["cores"] >= 1
    by_name = {finding["name"]: finding for finding in found["findings"]}
    assert {"Python", "needed", "settings", "key", "server", "call", "engine", "crafter", "heist", "JupyterLab",
            "kernel python3", "notebook", "CPU", "folder", "space", "simulator", "symbols"} <= set(by_name)
    assert all(finding["state"] in ("ok", "optional") for finding in found["findings"])
    assert all(finding["advice"] for finding in found["findings"] if finding["state"] != "ok")
    assert "SMALL_KEY" in by_name["key"]["text"] and "small answered in" in by_name["call"]["text"]
    assert "tokens in" in by_name["call"]["text"] and "steps/s" in by_name["symbols"]["text"]
    assert len(chats) == 1 and keys == {f"Bearer {KEY}"}                      # the key went to the call
    assert KEY not in done.stdout + done.stderr and not list(tmp_path.iterdir())


def test_without_call_no_model_is_asked_and_no_key_is_sent(monkeypatch):
    monkeypatch.setenv("SMALL_KEY", KEY)
    with ChatServer(answer("hello")) as server:
        found = list(check_settings(openai(server, api_key_env="SMALL_KEY")))
        assert states(found) == {"settings": "ok", "key": "ok", "server": "ok"} and server.requests == []
    assert KEY not in str(found)


@pytest.mark.parametrize("key", [None, "", "not a key"])
def test_a_missing_key_is_told_by_the_name_of_its_variable(key, monkeypatch):
    if key is not None:
        monkeypatch.setenv("SMALL_KEY", key)
    with ChatServer(answer("hello")) as server:
        found = list(check_settings(openai(server, api_key_env="SMALL_KEY"), call=True))
        assert server.requests == []                                          # no call without a key
    assert states(found) == {"settings": "ok", "key": "wrong", "server": "ok"}
    assert "SMALL_KEY" in found[1].advice and "not a key" not in str(found[1].text)


def test_a_server_that_does_not_answer():
    with ChatServer(answer("hello")) as server:
        gone = server.url
    found = list(check_settings(openai(gone)))
    assert states(found)["server"] == "wrong" and gone in found[-1].text and found[-1].advice


def test_a_call_that_fails_says_why_and_not_the_key(monkeypatch):
    monkeypatch.setenv("SMALL_KEY", KEY)
    with ChatServer(status(401, f"no such key: {KEY}")) as server:
        found = list(check_settings(openai(server, api_key_env="SMALL_KEY"), call=True))
    assert states(found)["call"] == "wrong" and "SMALL_KEY" in found[-1].advice and KEY not in str(found)


@pytest.mark.parametrize("text, told", [
    ("[designer]\nname = nobody\n", "nobody"), ("[agent]\nthreads = many\n", "threads"),
    ("[designer]\nkey = secret\n", "there is no [designer] key"), ("no section\n", "settings.ini: "),
    ("[designer]\nname = openai\n", "model"), ("[designer]\nmodel = caf\xe9\n", "settings.ini: ")])
def test_wrong_settings_are_told_and_the_rest_is_looked_at(text, told, tmp_path, monkeypatch, capsys):
    (tmp_path / "settings.ini").write_text(text, encoding="latin-1")
    for slow in ("check_games", "check_jupyter", "check_speed"):
        monkeypatch.setattr(envgen_nb.extras.check, slow, lambda: iter(()))
    assert main(["check"]) == 1
    shown = capsys.readouterr().out
    assert told in shown and "WRONG     settings" in shown and "→" in shown and "CPU" in shown and "secret" not in shown
    assert shown.splitlines()[-1].startswith("A run will not work here yet: Settings, settings")


def test_what_is_given_goes_before_the_settings_file(tmp_path, monkeypatch):
    (tmp_path / "settings.ini").write_text("[designer]\nname = nobody\n")
    assert states(check_settings({"designer": "rules"})) == {"settings": "ok", "key": "ok"}


def test_a_package_out_of_range_and_one_that_is_not_there(tmp_path, monkeypatch):
    for name, version in (("numba", "0.1"), ("envgen_nb", "0.1.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.11\n"
            "Requires-Dist: numba>=0.61\nRequires-Dist: nowhere-to-be-had>=2\nRequires-Dist: numpy\n"
            "Requires-Dist: never; python_version < '3'\nProvides-Extra: more\n"
            "Requires-Dist: also-nowhere; extra == 'more'\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {finding.name: finding for finding in check_packages()}
    assert {name: finding.state for name, finding in found.items()} == {
        "Python": "ok", "numba": "wrong", "nowhere-to-be-had": "wrong", "extra more": "optional"}
    assert found["numba"].text == "0.1 is installed, >=0.61 is needed" and "numba>=0.61" in found["numba"].advice
    assert found["nowhere-to-be-had"].text == "not installed" and "also-nowhere" in found["extra more"].text
    assert not report(list(found.values()))["ok"]


def test_a_folder_that_cannot_be_written_and_a_run_that_goes_on(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert states(check_runs(tmp_path / "file" / "runs")) == {"folder": "wrong"}
    (tmp_path / "settings.ini").write_text("[runs]\nfolder = file/runs\n")
    assert states(check_runs()) == {"folder": "wrong"}
    for name in ("one", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    with hold_folder(tmp_path / "runs" / "one"):
        found = list(check_runs(tmp_path / "runs"))
    assert states(found) == {"folder": "ok", "space": "ok", "going on": "ok"} and found[-1].text.startswith("one;")
    assert sorted(path.name for path in (tmp_path / "runs" / "other").iterdir()) == ["run.json"]    # as it was


def test_an_error_that_nobody_expected_is_a_finding(monkeypatch):
    def fails():
        raise RuntimeError("the sky fell")
    for name in ("check_games", "check_jupyter", "check_speed"):
        monkeypatch.setattr(envgen_nb.extras.check, name, fails)
    found = list(check())
    assert [finding.group for finding in found if finding.state == "wrong"] == ["Games", "Jupyter", "Speed"]
    assert "the sky fell" in str(found) and "CPU" in states(found)


def test_a_terminal_is_shown_what_is_looked_at_and_ctrl_c_stops(tmp_path):
    """On a real terminal: the line of progress, and an end within the work."""
    leader, follower = os.openpty()
    process = subprocess.Popen([ENVGEN, "check"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=follower, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    os.close(follower)
    assert process.stdout.readline() == "Packages\n"
    process.send_signal(signal.SIGINT)
    rest, shown = process.communicate()[0], b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:                                     # nobody writes there any more
        pass
    os.close(leader)
    assert process.returncode == 130 and b"Packages \xe2\x80\xa6" in shown and b"stopped" in shown, (rest, shown)


def test_the_old_name_of_a_key_is_read_and_said(tmp_path, capsys):
    (tmp_path / "settings.ini").write_text("[designer]\nprovider = random\n")
    assert read_ini(tmp_path / "settings.ini")["designer"] == {"name": "random"}
    assert "[designer] provider is now called name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["minigrid", "road", "walker"])
def test_a_step_is_made_in_games_without_pixels_or_with_continuous_actions(name):
    try:
        get_simulator(name).check_installed()
    except ImportError as error:
        pytest.skip(str(error))
    assert play_game(name) == "plays"
