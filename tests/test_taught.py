"""A teacher is asked once for each situation; its answers are checked; a learner imitates them, and goes on alone."""

import json
import math
import random
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import roles
import torch
from chat_server import ChatServer, answer

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import load_agent
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.design import BudgetError
from envgen_nb.designer.teacher import FromTable, Question, Shuffled, Table, TeacherError, read_answers, teachers
from envgen_nb.extras.taught import Opinions, TaughtOptions, imitation_loss, make_teacher, teaching
from envgen_nb.game.files import read_jsonl
from envgen_nb.game.simulator import get_simulator

ASKED = [Question("You hold nothing.", ("explore", "open a box", "pick up a key")),
         Question("You can sleep.", ("a", "b"))]
RIGHT = json.dumps({"answers": [
    {"situation": 1, "probabilities": [{"option": "explore", "probability": 0.25},
                                       {"option": "pick up a key", "probability": 0.75}]},
    {"situation": 2, "probabilities": {"a": 1}}]})
SMALL = dict(simulator="minigrid", learner="taught", designer="none", num_cycles=1, cycle_steps=8_192, final_steps=0,
             evaluation_runs=1, evaluation_episodes=2, threads=1, preset_options={"gamma": 0.99})


def test_right_answers_are_read():
    for text in (RIGHT, f"Here they are:\n```json\n{RIGHT}\n```\nGood luck!", RIGHT.replace("0.75", "0.751")):
        found, complaints = read_answers(text, ASKED)
        assert not complaints and found[ASKED[1]] == {"a": 1.0}
        assert found[ASKED[0]] == pytest.approx({"explore": 0.25, "pick up a key": 0.75}, abs=0.01)


@pytest.mark.parametrize(("old", "new", "said"), [
    ('"explore"', '"fly"', "'fly' is none of its options"), ("0.75", "7.5", "a number from 0 to 1"),
    ("0.75", "0.25", "add up to 0.5, not to 1"), ('"situation": 2', '"situation": 9', "a number from 1 to 2"),
    ('"situation": 2', '"situation": 1', "answered twice"), ("0.75", "true", "a number from 0 to 1"),
    ('"pick up a key"', '"explore"', "no probabilities"), ("[{", "{{", "cannot be read")])
def test_wrong_answers_are_named(old, new, said):
    assert said in "; ".join(read_answers(RIGHT.replace(old, new, 1), ASKED)[1])


def test_mutated_answers_never_slip():
    """3,000 of them: an answer is a distribution over the options of its question, or there is none."""
    draw, pieces = random.Random(0), [*'{}[],:"0 \\é\n', "-1", "1e999", "NaN", "null", "true", "explore", "situation",
                                      "```", "9" * 40]
    accepted = 0
    for _ in range(3_000):
        text = RIGHT
        for _ in range(draw.randint(1, 3)):
            at, length = draw.randrange(len(text)), draw.choice((0, 1, 1, 3, 20))
            text = text[:at] + draw.choice((*pieces, text[at:at + length] * 2, "")) + text[at + length:]
        found, complaints = read_answers(text, ASKED)
        for question, distribution in found.items():
            assert question in ASKED and set(distribution) <= set(question.options)
            assert math.isclose(math.fsum(distribution.values()), 1) and all(0 < p <= 1 for p in distribution.values())
        assert complaints or len(found) == 2
        accepted += len(found) == 2
    assert 30 < accepted < 2_500


def test_tables_are_checked(tmp_path):
    path = tmp_path / "table.json"
    Table({ASKED[0]: {"explore": 1.0}, ASKED[1]: None}).save(path)
    assert FromTable(path).answer(ASKED, None) == {ASKED[0]: {"explore": 1.0}, ASKED[1]: None}
    dealt = [Shuffled(path).answer([one], None)[one] for one in ASKED]
    assert dealt[1] is None and list(dealt[0].values()) == [1.0]
    assert dealt[0] == Shuffled(path).answer(ASKED, None)[ASKED[0]]
    for old, new, said in (('"explore": 1.0', '"explore": 0.2', "answer 1: its probabilities add up to 0.2"),
                           ('"answers"', '"replies"', 'has no list "answers"'),
                           ('"situation"', '"x"', "needs a situation"),
                           ("{", "", "cannot be read")):
        (tmp_path / "wrong.json").write_text(path.read_text().replace(old, new, 1))
        with pytest.raises(TeacherError, match=re.escape(said)):
            Table.load(tmp_path / "wrong.json")


class Stops(teachers.find("uniform")):
    "Answers two questions at a time, and fails at the third batch."
    BATCH, batches = 2, 0

    def answer(self, asked, check):
        self.batches += 1
        if self.batches == 3:
            raise TeacherError("no connection")
        return {one: {"a": 1 / 3, "b": 2 / 3} for one in asked}


def test_answers_are_kept_batch_by_batch_and_digit_by_digit(tmp_path):
    pytest.importorskip("minigrid")
    opinions, asked = Opinions(get_simulator("minigrid").text("symbols")), [
        Question(f"You see {k} doors.", ("a", "b")) for k in range(7)]
    opinions.open(Stops(), tmp_path)
    opinions.new = dict.fromkeys(asked)
    with pytest.raises(TeacherError, match="no connection"):
        opinions.ask(None)
    table = Table.load(tmp_path / "table.json")
    assert list(table.answers) == asked[:4] and table.answers[asked[0]] == {"a": 1 / 3, "b": 2 / 3}


@pytest.mark.parametrize(("options", "said"), [
    ({"teacher": "random"}, "does not read what it is asked"),
    ({"coach": 1}, "has no setting 'coach'; it takes: teacher"),
    ({"teacher": "table"}, "needs the setting file"),
    ({"teacher": "scripted", "teacher_options": {"a": 1}}, "takes none"),
    ({"teacher": "scripted"}, "minigrid has no player by rules"),
    ({"learner": "scripted"}, "no policy network"),
    ({"coef": -1}, "greater than or equal to 0"),
    ({"teacher": "table", "teacher_options": {"file": "none.json"}}, "read")])
def test_settings_that_cannot_be(options, said):
    with pytest.raises(SettingsError, match=re.escape(said)):
        make_settings(**SMALL, learner_options=options)
    with pytest.raises(SettingsError, match="it takes none"):
        make_settings(**SMALL | {"learner": "ppo", "learner_options": {"teacher": "uniform"}})
    with pytest.raises(SettingsError, match="cannot be said in words"):
        make_settings(**SMALL | {"simulator": "heist", "preset": "laptop", "learner_options": {}})


def likes_keys(handler, body):
    """A model that picks up keys and opens what it can, and explores otherwise."""
    entries = []
    for number, options in re.findall(r"^(\d+)\. .* Options: (.*)\.$", body["messages"][0]["content"], re.MULTILINE):
        liked = [name for name in options.split(", ") if name.startswith(("reach", "open", "pick up a key"))]
        liked = liked or ["explore"]
        entries.append({"situation": int(number), "probabilities": [
            {"option": name, "probability": 1 / len(liked)} for name in liked]})
    answer(json.dumps({"answers": entries}))(handler, body)


def test_a_run_with_a_server(tmp_path, monkeypatch):
    """The model is asked for each situation once, its table is another run's teacher, and no key is on the disk."""
    pytest.importorskip("minigrid")
    key = "sk-3cret-Key-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with ChatServer(likes_keys) as server:
        options = {"teacher": "openai", "teacher_options": {
            "base_url": server.url, "model": "test", "api_key_env": "OPENAI_API_KEY"}}
        run = create_run(make_settings(**SMALL, learner_options=options), tmp_path / "asked")
        list(run_cycles(run.path))
        calls = len(server.requests)
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "answers"
    table = Table.load(run.path / "teacher" / "table.json")
    asked = [text for request in server.requests for text in re.findall(
        r"^\d+\. (.*)\.$", request["messages"][0]["content"], re.MULTILINE)]
    assert 4 < len(table.answers) == len(asked) == len(set(asked)) and all(table.answers.values())
    metrics = [record["metrics"] for record in read_jsonl(run.path / "cycle-1" / "metrics.jsonl")]
    assert metrics[-1]["teacher_calls"] == calls and metrics[-1]["teacher_share"] > 0.5
    assert not any(key.encode() in path.read_bytes() for path in run.path.rglob("*") if path.is_file())
    agent = load_agent(run)                                                  # plays without a teacher
    assert agent.opinions.teacher is None
    replayed = create_run(make_settings(**SMALL, learner_options={"teacher": "table", "teacher_options": {
        "file": str(run.path / "teacher" / "table.json")}}), tmp_path / "replayed")
    list(run_cycles(replayed.path))
    both = [load_checkpoint(folder.path / "checkpoint.pt")["learner"]["policy"] for folder in (run, replayed)]
    assert all(torch.equal(both[0][name], both[1][name]) for name in both[0])


def test_the_budget_of_the_teacher(tmp_path):
    pytest.importorskip("minigrid")
    with ChatServer(likes_keys) as server:
        options = {"teacher": "openai", "max_calls": 1, "teacher_options": {
            "base_url": server.url, "model": "test"}}
        run = create_run(make_settings(**SMALL, learner_options=options), tmp_path / "run")
        for _ in range(2):                                   # going on does not begin to count anew
            with pytest.raises(BudgetError, match="budget is spent"):
                list(run_cycles(run.path))
        assert len(server.requests) == 1


def test_a_teacher_without_a_folder():
    """In Python: the message says what to call."""
    pytest.importorskip("minigrid")
    game, preset = get_simulator("minigrid"), get_preset("symbols", num_envs=2, rollout_steps=4, minibatches=1)
    venv = game.make_vec(num_envs=2, obs="symbols")
    learner = learners.find("taught").for_game(game, preset)(
        preset, venv.single_observation_space, venv.single_action_space, 0)
    with pytest.raises(RuntimeError, match="open_folder"):
        train(learner, venv, 8)


class Brief(teachers.find("uniform")):
    def __init__(self, file: str):
        self.words = Path(file).read_text(encoding="utf-8")


def test_a_teacher_of_a_package_reads_its_own_file(tmp_path, monkeypatch):
    """Only the kit's tables are copied into the run's folder."""
    pytest.importorskip("minigrid")
    monkeypatch.setitem(teachers.targets, "brief", f"{__name__}:Brief")
    (tmp_path / "brief.txt").write_text("Be brief.")
    options = TaughtOptions(teacher="brief", teacher_options={"file": str(tmp_path / "brief.txt")})
    assert make_teacher(options, get_simulator("minigrid"), tmp_path).words == "Be brief."


def test_a_person_teaches(tmp_path):
    """The prompt is a file, the reply another one; a wrong reply goes back once."""
    pytest.importorskip("minigrid")
    run = create_run(make_settings(**SMALL, learner_options={"teacher": "manual"}), tmp_path / "run")
    folder, over = run.path / "teacher" / "manual", threading.Event()

    def person():
        while not over.is_set():
            for prompt in folder.glob("prompt-*.md") if folder.exists() else ():
                reply = prompt.with_name(prompt.name.replace("prompt", "reply"))
                first = folder / "prompt-teacher-1.md"
                if not reply.exists() and prompt == first:
                    reply.write_text("I would explore.")
                elif not reply.exists():
                    question = first if "-1-" in prompt.name else prompt
                    asked = re.findall(r"^(\d+)\. ", question.read_text(), re.MULTILINE)
                    reply.write_text(json.dumps({"answers": [{"situation": int(n), "probabilities": {"explore": 1}}
                                                             for n in asked]}))
            time.sleep(0.05)

    thread = threading.Thread(target=person)
    thread.start()
    try:
        list(run_cycles(run.path))
    finally:
        over.set()
        thread.join()
    assert (folder / "prompt-teacher-1-again-1.md").exists()
    answers = Table.load(run.path / "teacher" / "table.json").answers
    assert answers and all(found == {"explore": 1.0} for found in answers.values())


def test_the_teacher_is_followed_and_leaves():
    """With a large c the policy becomes the teacher's; without opinions the loss is PPO's own."""
    random_ = np.random.default_rng(0)
    weights, actions = random_.dirichlet(np.ones(5), 40), random_.integers(-1, 4, (40, 5))
    found = teaching(weights, actions, 4)
    for row, w, a in zip(found, weights, actions, strict=True):
        wanted = np.array([w[a == k].sum() for k in range(4)])
        assert np.allclose(row, wanted / wanted.sum() if wanted.sum() else 0, atol=1e-6)
    logits = torch.zeros(40, 4, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    for _ in range(300):
        optimizer.zero_grad()
        imitation_loss(logits, torch.from_numpy(found), "cross_entropy").backward()
        optimizer.step()
    known = found.sum(1) > 0
    assert np.allclose(logits.softmax(1).detach().numpy()[known], found[known], atol=0.02)
    assert (logits.detach().numpy()[~known] == 0).all()
    options = TaughtOptions(coef=4, coef_last=1, anneal_steps=100, until_steps=150)
    assert [options.coefficient(steps) for steps in (0, 50, 100, 149, 150)] == [4, 2.5, 1, 1, 0]


def test_a_table_of_replies(tmp_path):
    """The prompts of the experiments on roles: replies become a table, and one with a complaint makes none."""
    asked = [Question(f"You are in room {k}.", ("explore", "drop it")) for k in range(roles.AT_ONCE + 1)]
    Table(dict.fromkeys(asked)).save(tmp_path / "questions.json")
    for number, count in enumerate((roles.AT_ONCE, 1), 1):
        (tmp_path / f"teacher-{number}-reply.md").write_text(json.dumps({"answers": [
            {"situation": k + 1, "probabilities": {"explore": 1}} for k in range(count)]}))
    assert roles.write_table(tmp_path) == []
    assert Table.load(tmp_path / "table.json").answers == {one: {"explore": 1.0} for one in asked}
    (tmp_path / "table.json").unlink()
    (tmp_path / "teacher-2-reply.md").write_text("I would explore.")
    assert roles.write_table(tmp_path) and not (tmp_path / "table.json").exists()
