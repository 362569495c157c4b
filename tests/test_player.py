"""A language model plays: its answers are checked and kept, a run goes on from them, and another one replays them."""

import json
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from chat_server import ChatServer, answer

from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.cycle.create import create_run, trust
from envgen_nb.cycle.edit import change_settings
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import load_agent
from envgen_nb.cycle.settings import SettingsError, asked_servers, changed_settings, make_settings, usable_settings
from envgen_nb.designer.design import BudgetError
from envgen_nb.designer.trust import Destination, is_allowed
from envgen_nb.experiment.file import parse_experiment
from envgen_nb.experiment.folder import open_experiment
from envgen_nb.experiment.run import run_one, spent, take
from envgen_nb.extras.cli import main
from envgen_nb.extras.player import Moment, PlayerError, player_table, read_calls, read_choice
from envgen_nb.game.files import read_jsonl
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results import measure_all, on_one_grid, summary

NAMES = ("noop", "move_left", "do", "sleep", "place_table")
SMALL = dict(simulator="minigrid", learner="model", evaluation_runs=1, evaluation_episodes=2, threads=1)
KEY = "sk-3cret-Key-0123456789"


def asked(text: str) -> list[str]:
    """The names that a prompt offers."""
    return re.search(r"Answer with one of these names and nothing else: (.*)\.$", text.strip()).group(1).split(", ")


def plays(handler, body):
    """A model that reaches what it can, opens what it can, and explores otherwise."""
    names = asked(body["messages"][0]["content"])
    liked = [name for like in ("reach", "pick up a key", "open", "explore", "forward") for name in names
             if name.startswith(like)]
    answer(f"I see.\n\nAction: **{(liked or names)[0]}**")(handler, body)


def options_of(server, **given):
    return {"form": "options", "player": "openai", "player_options": {
        "base_url": server.url, "model": "test", "price_in": 1, "price_out": 2}} | given


def played(folder, **given) -> RunFolder:
    run = create_run(make_settings(**SMALL | given), folder)
    list(run_cycles(run.path))
    return run


def same(one: RunFolder, other: RunFolder) -> None:
    """Both have played the same episodes, and say the same of them, but for seconds."""
    assert one.evaluation("cycle-0").to_dict() == other.evaluation("cycle-0").to_dict()
    episodes = [[record | {"seconds": 0} for record in read_jsonl(run.path / "player" / "episodes.jsonl")]
                for run in (one, other)]
    assert episodes[0] == episodes[1]


@pytest.mark.parametrize("reply", [
    "move_left", "Move left.", "<think>sleep?</think>\nmove_left", "I am near.\n\nAction: move left", "`move_left`",
    '```json\n{"action": "move_left"}\n```', "**MOVE-LEFT**\n", "'move left'"])
def test_right_answers_are_read(reply):
    assert read_choice(reply.rpartition("</think>")[2], NAMES) == ("move_left", [])


@pytest.mark.parametrize(("reply", "said"), [
    ("", "none of the names"), ("jump", "'jump' is none of the names"), ("I would do what is best.", "none of the"),
    ("`sleep`, then `do`", "several: do, sleep"), ("move_left move_left", "none of"), ("__import__('os')", "none of"),
    ("do\nor sleep", "none of"), ("Action: `do`\nAction: sleep", "several: do, sleep")])
def test_wrong_answers_are_named(reply, said):
    found, (wrong,) = read_choice(reply, NAMES)
    assert said in wrong and not found


def test_mutated_answers_never_slip():
    """3,000 of them: an answer is a name that can be chosen, or there is a complaint."""
    draw = random.Random(0)
    pieces = [*"`*\"'{}[]:.\n -_\\é\0“", "do", "sleep", "noop", "Action:", "```", "x" * 80, "not "]
    accepted = 0
    for _ in range(3_000):
        text = draw.choice(("move_left", "Action: `move_left`", '{"action": "move_left"}', "I am near.\n\n**sleep**"))
        for _ in range(draw.randint(1, 4)):
            at, length = draw.randrange(len(text) + 1), draw.choice((0, 1, 1, 3, 9))
            text = text[:at] + draw.choice((*pieces, text[at:at + length] * 2, "")) + text[at + length:]
        found, wrong = read_choice(text, NAMES)
        assert (found in NAMES) != bool(wrong) and (not found or not wrong)
        accepted += bool(found)
    assert 300 < accepted < 2_700


def test_a_run_with_a_server_and_its_replay(tmp_path, monkeypatch):
    """Each moment is asked once; no key is on the disk; another run plays the same episodes from the calls alone."""
    pytest.importorskip("minigrid")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer(plays) as server:
        options = options_of(server)
        options["player_options"]["api_key_env"] = "OPENAI_API_KEY"
        run = played(tmp_path / "asked", learner_options=options)
        assert all(headers["authorization"] == f"Bearer {KEY}" for headers in server.headers)
    prompts = [request["messages"][0]["content"] for request in server.requests]
    calls = read_calls(run.path / "player" / "calls.jsonl")
    assert 4 < len(calls) == len(prompts) == len(set(prompts)) and "response_format" not in server.requests[0]
    assert max(prompt.count(" → ") for prompt in prompts) <= 16
    assert not any(KEY.encode() in path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    assert run.cycles == ["cycle-0"] and run.finished() and not run.checkpoints()
    with pytest.raises(RunFolderError, match="has no agent"):
        load_agent(run)
    episodes = read_jsonl(run.path / "player" / "episodes.jsonl")
    found = run.evaluation("cycle-0")
    assert [one["steps"] for one in episodes] == found.lengths.tolist()
    assert sum(one["calls"] for one in episodes) == len(calls)
    assert [one["progress"] for one in episodes] == (100 * found.unlocked.mean(1)).tolist()
    assert f"{len(calls)} calls" in player_table(run.path) and "USD" in player_table(run.path)
    monkeypatch.delenv("OPENAI_API_KEY")
    kept = tmp_path / "calls.jsonl"
    kept.write_bytes((run.path / "player" / "calls.jsonl").read_bytes())
    replay = {"form": "options", "player": "replay", "player_options": {"file": str(kept)}}
    again = create_run(make_settings(**SMALL, learner_options=replay), tmp_path / "replayed")
    events = run_cycles(again.path)
    next(events)
    events.close()
    kept.unlink()
    list(run_cycles(again.path))                         # it goes on without the file that it was given
    same(run, again)
    kept.write_bytes((run.path / "player" / "calls.jsonl").read_bytes())
    with pytest.raises(PlayerError, match="no answer to this moment"):
        played(tmp_path / "another", learner_options=replay, seed=1)


class Stop(Exception):
    pass


PROGRAM = "import sys; from envgen_nb.cycle.run import run_cycles; list(run_cycles(sys.argv[1]))"


def test_a_run_that_is_stopped_goes_on_with_the_same_episodes(tmp_path):
    """Killed, or stopped: what was answered is not asked again, and the line that a kill has cut short is."""
    pytest.importorskip("minigrid")
    process: list[subprocess.Popen] = []

    def kills(handler, body):
        process[0].kill()
        plays(handler, body)

    with ChatServer(plays) as server:
        whole = played(tmp_path / "whole", learner_options=options_of(server))
        count = len(server.requests)
        run, file = create_run(whole.settings, tmp_path / "stopped"), tmp_path / "stopped" / "player" / "calls.jsonl"
        server.behaviours = (*[plays] * (count + 4), kills, plays)
        process.append(subprocess.Popen([sys.executable, "-c", PROGRAM, str(run.path)]))
        assert process[0].wait(60) == -signal.SIGKILL and len(read_calls(file)) == 4
        for steps in (3, 40, 41):
            left = [steps]

            def check(left=left):
                left[0] -= 1
                if not left[0]:
                    raise Stop

            with pytest.raises(Stop):
                list(run_cycles(run.path, check=check))
            assert not run.finished()
        file.write_bytes(file.read_bytes()[:-20])
        list(run_cycles(run.path))
        assert 2 * count + 2 <= len(server.requests) <= 2 * count + 5      # stopped in an answer: asked again
    same(whole, run)
    cost = summary(run)["cost"]
    usage = [json.loads((one.path / "player" / "summary.json").read_text()) for one in (whole, run)]
    assert cost["calls"] == count + 1 == usage[1]["calls"] == usage[0]["calls"] + 1 and cost["price"] > 0


def test_a_run_that_waits_for_a_person_can_be_stopped(tmp_path):
    pytest.importorskip("minigrid")
    run, left = create_run(make_settings(**SMALL, learner_options={
        "player": "manual", "player_options": {"poll": 0.01, "timeout": 30}}), tmp_path / "run"), [5]

    def check():
        left[0] -= 1
        if not left[0]:
            raise Stop

    with pytest.raises(Stop):
        list(run_cycles(run.path, check=check))
    assert (run.path / "player" / "manual" / "prompt-turn-1.md").exists()


def test_beside_agents_that_learn():
    """On one grid with them a player is the same all along: it takes no steps of training."""
    one = {"steps": [0], "tried": 0, "scores": [5.0], "returns": [1.0], "finished": True}
    other = one | {"steps": [0, 50, 100], "scores": [1.0, 2.0, 9.0], "returns": [0.0, 0.0, 1.0]}
    arms = {"player": {0: one}, "ppo": {0: other}}
    found = on_one_grid(arms)
    assert found["player"][0]["scores"] == [5.0] * 3 and found["ppo"][0]["steps"] == [0, 50, 100]
    assert measure_all("area under the curve", arms) == {"player": {0: 5.0}, "ppo": {0: 3.5}}
    assert on_one_grid({"player": {0: one}})["player"][0]["steps"] == [0]


def test_the_cap(tmp_path, capfd):
    pytest.importorskip("minigrid")
    with ChatServer(plays) as server:
        run = create_run(make_settings(**SMALL, learner_options=options_of(server, max_calls=3)), tmp_path / "run")
        for _ in range(2):                                   # going on does not begin to count anew
            with pytest.raises(BudgetError, match="budget is spent"):
                list(run_cycles(run.path))
        assert len(server.requests) == 3
        assert main(["resume", str(run.path), "--max-calls", "4"]) == 1 and len(server.requests) == 4
        assert "4 of 4 (max_calls)" in capfd.readouterr().err
        options = json.dumps(run.settings.learner_options | {"max_calls": 5})
        assert main(["resume", str(run.path), "-p", "learner_options", options]) == 1 and len(server.requests) == 5
        with pytest.raises(SettingsError, match="only max_calls and max_tokens can change"):
            change_settings(run, learner_options=run.settings.learner_options | {"turns": 3})


def test_the_cap_of_an_experiment(tmp_path):
    """It holds for what players ask, in all runs together."""
    pytest.importorskip("minigrid")
    with ChatServer(plays) as server:
        text = f"""name = "capped"
            question = "Does it end?"
            baseline = "asked"
            seeds = [0, 1]
            max_calls = 3
            [settings]
            simulator = "minigrid"
            learner = "model"
            evaluation_runs = 1
            evaluation_episodes = 2
            [arms.asked.learner_options]
            form = "options"
            player = "openai"
            player_options = {{ base_url = "{server.url}", model = "test" }}"""
        folder = open_experiment(parse_experiment(text, tmp_path), tmp_path / "out")
        for seed in (0, 1):
            with pytest.raises(BudgetError, match=r"the experiment's budget is spent: 3 of 3 \(max_calls\)"):
                run_one(folder, "asked", seed, take(folder, "asked", seed), 1)
        assert len(server.requests) == spent(folder).calls == 3


def test_answers_that_name_nothing(tmp_path):
    """Each goes back once; then the first name is taken, and counted."""
    pytest.importorskip("minigrid")
    with ChatServer(answer("I cannot decide.")) as server:
        run = played(tmp_path / "run", learner_options=options_of(server), evaluation_episodes=1)
        assert [len(request["messages"]) for request in server.requests[:4]] == [1, 3, 1, 3]
        assert "is none of the names" in server.requests[1]["messages"][2]["content"]
    first = played(tmp_path / "first", learner_options={"form": "options", "player": "first"}, evaluation_episodes=1)
    assert run.evaluation("cycle-0").to_dict() == first.evaluation("cycle-0").to_dict()
    (episode,) = read_jsonl(run.path / "player" / "episodes.jsonl")
    assert episode["calls"] == 2 * episode["fallbacks"] == 2 * episode["choices"] == len(server.requests)


def test_a_person_plays(tmp_path):
    """The prompt is a file, the reply another one; a wrong reply goes back once."""
    pytest.importorskip("minigrid")
    run = create_run(make_settings(**SMALL | {"evaluation_episodes": 1}, learner_options={
        "form": "options", "player": "manual", "player_options": {"poll": 0.01}}), tmp_path / "run")
    folder, over = run.path / "player" / "manual", threading.Event()

    def person():
        while not over.is_set():
            for prompt in folder.glob("prompt-*.md") if folder.exists() else ():
                reply = prompt.with_name(prompt.name.replace("prompt", "reply"))
                if not reply.exists():
                    first = prompt.with_name(prompt.name.replace("-again-1", ""))
                    reply.write_text("Hm." if prompt.name == "prompt-turn-1.md" else asked(first.read_text())[-1])
            time.sleep(0.01)

    thread = threading.Thread(target=person)
    thread.start()
    try:
        list(run_cycles(run.path))
    finally:
        over.set()
        thread.join()
    assert (folder / "prompt-turn-1-again-1.md").exists() and not (folder / "prompt-turn-2-again-1.md").exists()
    (episode,) = read_jsonl(run.path / "player" / "episodes.jsonl")
    assert episode["fallbacks"] == 0 and episode["calls"] == 0 and episode["choices"] > 1


@pytest.mark.parametrize("form", ["actions", "options"])
def test_the_controls_play_crafter(form):
    """They ask nothing; the same seed plays the same, and an option is chosen less often than an action."""
    game, preset = get_simulator("crafter"), get_preset("symbols")
    found = {}
    for player in ("uniform", "uniform again", "first"):
        venv = game.make_vec(num_envs=2, seed=3, obs="symbols", episodes=1, length=120)
        learner = learners.find("model").for_game(game, preset, form=form, player=player.split()[0])(
            preset, venv.single_observation_space, venv.single_action_space, 0)
        found[player] = evaluate(learner, venv, 1, 0)
        steps, choices = found[player].lengths, [learner.choices[k] for k in range(2)]
        fewer = [3 < k < n for k, n in zip(choices, steps, strict=True)]
        assert choices == steps.tolist() if form == "actions" else all(fewer)
        assert int(np.sum(steps)) > 100
    assert found["uniform"].to_dict() == found["uniform again"].to_dict()
    assert form == "options" or found["first"].unlocked.sum() == 0              # noop


def test_crafter_by_actions(tmp_path):
    """The plain form: what is seen, the turns before it, all actions by their names."""
    with ChatServer(answer("move_right")) as server:
        options = options_of(server, form="actions", turns=2, max_calls=12)
        run = create_run(make_settings(**SMALL | {"simulator": "crafter"}, learner_options=options), tmp_path / "run")
        with pytest.raises(BudgetError):
            list(run_cycles(run.path))
    prompts = [request["messages"][0]["content"] for request in server.requests]
    assert all(asked(prompt) == list(get_simulator("crafter").actions) for prompt in prompts)
    assert sorted({prompt.count(" → move_right") for prompt in prompts}) == [0, 1, 2]
    assert "Nearest:" in prompts[0] and "collect_diamond" in prompts[0]


@pytest.mark.parametrize(("options", "said"), [
    ({"player": "random"}, "does not read what it is asked"), ({"player": "rules"}, "does not read"),
    ({"coach": 1}, "has no setting 'coach'; it takes: form"), ({"player": "replay"}, "takes one setting"),
    ({"player": "first", "player_options": {"file": "x"}}, "takes no player_options"), ({"turns": -1}, "turns"),
    ({"form": "moves"}, "form"), ({"player": "openai"}, "needs the setting model"),
    ({"player": "replay", "player_options": {"file": "none.jsonl"}}, "no call in it")])
def test_settings_that_cannot_be(options, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        make_settings(**SMALL, learner_options=options)
    with pytest.raises(SettingsError, match="cannot be said in words"):
        make_settings(**SMALL | {"simulator": "heist", "preset": "laptop", "learner_options": {}})


def test_it_is_not_trained():
    """A run of it has one measurement, whatever an experiment sets for all arms; the settings say so."""
    settings = make_settings(**SMALL, num_cycles=4, final_steps=1_000_000, designer="rules")
    assert (settings.num_cycles, settings.final_steps, settings.designer) == (0, 0, "none")
    with pytest.raises(SettingsError, match="cannot be trained"):
        usable_settings(settings.model_dump() | {"num_cycles": 1}, before=settings)
    assert usable_settings({"learner": "random", "num_cycles": 0, "final_steps": 0}).total_steps == 0


def test_damaged_calls_are_named(tmp_path):
    file = tmp_path / "calls.jsonl"
    right = {"moment": "1", "episode": 0, "seen": "", "replies": ["do"], "choice": "do", "usage": {"calls": 1}}
    file.write_text(json.dumps(right) + "\n")
    assert read_calls(file)["1"]["choice"] == "do"
    for wrong in ({"choice": 3}, {"usage": {"calls": "many"}}, {"usage": {"key": 1}}, {"episode": "0"},
                  {"replies": ""}):
        file.write_text(json.dumps(right) + "\n" + json.dumps(right | wrong) + "\n")
        with pytest.raises(PlayerError, match="call 2: it is no call"):
            read_calls(file)
    one = Moment("You see.", (("Before.", "do"),), NAMES)
    assert one.key != one._replace(names=NAMES[1:]).key != one._replace(turns=()).key


def test_a_server_that_only_a_file_names_is_not_asked(tmp_path):
    """The file of an experiment, and the folder of a run, cannot send a key anywhere."""
    url = "https://player.example.org/v1"
    destination = Destination(url, "OPENAI_API_KEY")
    experiment = parse_experiment(f"""
name = "roles"
baseline = "none"
seeds = [0]
[settings]
simulator = "minigrid"
designer = "none"
[arms.none]
[arms.player]
learner = "model"
learner_options.player = "openai"
learner_options.player_options = {{model = "m", base_url = "{url}", api_key_env = "OPENAI_API_KEY"}}
""", tmp_path, "roles.toml")
    settings = experiment.settings_of("player", 0)
    assert experiment.given("player")["num_cycles"] == settings.num_cycles == 0
    assert asked_servers(settings) == [destination] and not is_allowed(destination)
    with pytest.raises(SettingsError, match="learner: the questions would go to"):
        create_run(settings, tmp_path / "run")
    options = settings.learner_options | {"max_calls": 5}                       # nor by another cap
    changed_settings(settings, learner_options=options)
    assert not is_allowed(destination)
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "run.json").write_text(json.dumps({"settings": settings.model_dump()}))
    trust(tmp_path / "run")
    assert is_allowed(destination)
