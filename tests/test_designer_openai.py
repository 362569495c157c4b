"""The `openai` designer against a real server on loopback that misbehaves in every way that we know of."""

import html
import io
import json
import logging
import socket
import threading
import time
from dataclasses import asdict, replace
from email.utils import formatdate

import pytest
from chat_server import ChatServer, answer, drop, drop_midway, raw, refuses, slow, status

from envgen_nb.cli import main
from envgen_nb.cycle.folder import create_run, write_worlds
from envgen_nb.cycle.run import Accepted, run_cycles
from envgen_nb.cycle.runs import open_run
from envgen_nb.cycle.settings import SettingsError, load_settings, make_settings
from envgen_nb.designer.base import DesignerError, Request, make_designer
from envgen_nb.designer.design import Budget, BudgetError, DesignError, conversation, design
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.reply import Design, format_reply, response_schema
from envgen_nb.files import append_jsonl, write_text
from envgen_nb.results import kept_summary
from envgen_nb.studio.compare import run_table
from envgen_nb.studio.progress import watch
from envgen_nb.studio.reply import cost_html
from envgen_nb.studio.report import write_report
from envgen_nb.studio.run import Session
from envgen_nb.world import get_simulator

CRAFTER = get_simulator("crafter")
PROMPT = first_prompt(load_templates(), CRAFTER, num_worlds=2)
REQUEST = Request(CRAFTER, num_worlds=2, messages=conversation([], PROMPT))
GOOD = json.dumps({"environments": [{"purpose": "a", "settings": {"inventory_settings": {"wood": 3}}},
                                    {"purpose": "b", "settings": {}}]})
BAD = '```json\n{"inventory_settings": {"wood": 30}}\n```\n```json\n{}\n```'
KEY = "sk-3cret-Key-0123456789"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    "The pauses between two tries, shortened; and no keys or proxies from outside."
    monkeypatch.setattr("envgen_nb.designer.openai._PAUSE", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def ask(server, on_text=None, request=REQUEST, **options):
    options = {"model": "test-model", "max_retries": 2, "timeout": 5, **options}
    return make_designer("openai", base_url=server.url, **options).reply(request, on_text)


def fails(server, **options) -> str:
    with pytest.raises(DesignerError) as caught:
        ask(server, **options)
    return str(caught.value)


# --- what is sent, and what comes back


@pytest.mark.parametrize("stream", [True, False])
def test_question_and_answer(stream):
    with ChatServer(answer(GOOD)) as server:
        seen = []
        reply = ask(server, seen.append, stream=stream, seed=7, max_tokens=900, price_in=2.0, price_out=10.0)
    sent, = server.requests
    assert sent["model"] == "test-model" and sent["temperature"] == 0 and sent["seed"] == 7
    assert sent["max_tokens"] == 900 and sent.get("stream", False) is stream
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert sent["messages"][0]["content"].startswith(PROMPT) and "JSON" in sent["messages"][0]["content"]
    form = sent["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["strict"] is True
    assert form["json_schema"]["schema"] == response_schema(CRAFTER.world_class(), 2)
    assert server.paths == ["/v1/chat/completions"]
    assert reply.text == GOOD == "".join(seen) and (len(seen) > 3) is stream
    assert reply.usage.calls == 1 and reply.usage.seconds > 0
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (len(sent["messages"][0]["content"]) // 4, len(GOOD) // 4)
    assert reply.usage.price == pytest.approx((2 * reply.usage.tokens_in + 10 * reply.usage.tokens_out) / 1e6)
    assert "structured output (json_schema)" in reply.notes[0]


def test_a_price_has_a_currency_wherever_it_is_shown(tmp_path):
    ini = "[designer]\nprovider = openai\nmodel = m\nbase_url = {}\nprice_in = 2\nprice_out = 10\n{}"
    shown = {}
    with ChatServer(answer(GOOD)) as server:
        for name, line in [("usual", ""), ("euro", "currency = EUR\n")]:
            write_text(tmp_path / f"{name}.ini", ini.format(server.url, line))
            run = create_run(load_settings(tmp_path / f"{name}.ini", **SMALL), tmp_path / name)
            reply = make_designer("openai", **run.settings.designer_options).reply(REQUEST)
            append_jsonl(run.path / "usage.jsonl", {"cycle": "cycle-1", "usage": asdict(reply.usage)})
            text = html.unescape(write_report(run).read_text())
            shown[name] = run.usage().cost
            for place in (cost_html(run), str(run_table({run.path: kept_summary(run.path)})), text):
                assert shown[name] in place
    assert shown["usual"].endswith(" USD") and shown["euro"].endswith(" EUR")
    append_jsonl(run.path / "usage.jsonl", {"cycle": "cycle-1", "usage": {"calls": 1, "price": 1.0}})   # of before
    assert run.usage().cost == "not known"


def test_plain_text_is_asked_for_in_the_prompts_own_words():
    with ChatServer(answer(BAD)) as server:
        reply = ask(server, response_format="text", temperature=None, stream=False)
    assert server.requests == [{"model": "test-model", "messages": [{"role": "user", "content": PROMPT}]}]
    assert reply.text == BAD and reply.notes == () and reply.usage.price is None


def test_no_key_is_sent_to_a_server_that_was_not_meant(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MY_KEY", KEY + "-mine")
    with ChatServer(answer(GOOD)) as server:
        ask(server)
        ask(server, api_key_env="MY_KEY")
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == ["Bearer none", f"Bearer {KEY}-mine"]


@pytest.mark.parametrize("base_url, variable", [
    ("", "OPENAI_API_KEY"), ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    ("https://mine.openai.azure.com/openai/v1/", "OPENAI_API_KEY"), ("http://api.openai.com/v1", None),
    ("https://api.openai.com.evil.example/v1", None), ("https://openai.azure.com.evil.example/v1", None),
    ("https://evil.example/api.openai.com/v1", None), ("http://localhost:8000/v1", None),
])
def test_whom_the_key_is_for(base_url, variable):
    assert make_designer("openai", model="m", base_url=base_url).key_variable == variable


def test_missing_key_is_said_before_any_call():
    for ask_it in (lambda designer: designer.reply(REQUEST), lambda designer: designer.check()):
        with pytest.raises(DesignerError, match="OPENAI_API_KEY is not set"):
            ask_it(make_designer("openai", model="m"))
    with pytest.raises(DesignerError, match="OPENAI_API_KEY is not set"):
        make_designer("fixed", base="openai", options={"model": "m"}).check()
    with ChatServer(answer(GOOD)) as server:
        assert "MY_KEY is not set" in fails(server, api_key_env="MY_KEY")
    assert server.requests == []


def test_own_machine_is_reached_without_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ChatServer(answer(GOOD)) as server:
        assert ask(server, max_retries=0).text == GOOD


NO_KEY = {"designer": "openai", "designer_options": {"model": "m", "api_key_env": "MY_KEY"}}
SMALL = {"num_cycles": 1, "num_worlds": 2, "cycle_steps": 8192, "final_steps": 0, "evaluation_runs": 1,
         "evaluation_episodes": 1, "threads": 1}


def test_a_missing_key_is_noticed_before_anything_is_made(tmp_path, capsys):
    folder = tmp_path / "run"
    for make in (lambda: open_run(folder, **NO_KEY), lambda: create_run(make_settings(**NO_KEY), folder)):
        with pytest.raises(SettingsError, match="MY_KEY is not set"):
            make()
    command = ["run", "crafter", "-p", "folder", str(folder), "-p", "designer", "openai", "-p", "designer_options",
               json.dumps(NO_KEY["designer_options"])]
    assert main(command) == 2
    assert "MY_KEY is not set" in capsys.readouterr().err
    session = Session()
    session.new(make_settings(**NO_KEY), folder)
    assert "MY_KEY is not set" in session.error and session.run is None
    assert list(tmp_path.iterdir()) == []


def test_going_on_without_the_key_says_so_at_once_and_reading_needs_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MY_KEY", KEY)
    run = create_run(make_settings(**SMALL | NO_KEY), tmp_path / "run")
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(DesignerError, match="MY_KEY is not set"):
        next(run_cycles(run.path))
    assert main(["resume", str(run.path)]) == 2
    assert "MY_KEY is not set" in capsys.readouterr().err and not (run.path / "events.jsonl").exists()
    session = Session(open_run(run.path))                              # to look at it, no key is needed
    assert session.error == "" and write_report(session.run).exists()
    session.generate()
    assert session.wait(60) and "MY_KEY is not set" in session.error
    write_worlds(run, "cycle-1", [Design(CRAFTER.world_class()(), "")] * 2)
    check = run_cycles(run.path)                                       # nor to go on when all worlds are there
    assert type(next(check)).__name__ == "Started"
    check.close()


# --- options that a server does not take


def test_ladder_down_to_text():
    with ChatServer(refuses("json_schema", "json_object", then=answer(BAD))) as server:
        designer = make_designer("openai", model="m", base_url=server.url)
        first, second = designer.reply(REQUEST), designer.reply(REQUEST)
    kinds = [(sent.get("response_format") or {}).get("type") for sent in server.requests]
    assert kinds == ["json_schema", "json_object", None, None]                      # the second call remembers
    assert server.requests[-1]["messages"][0]["content"] == PROMPT
    assert len(first.notes) == 2 and "without json_schema, with json_object" in first.notes[0]
    assert "without json_object, with text" in first.notes[1] and second.notes == ()
    assert first.usage.calls == 1                                                   # refusals are not answers


@pytest.mark.parametrize("words, code, param", [
    ("Unsupported parameter: '{}' is not supported with this model.", 400, True),
    ("Unsupported value: '{}' does not support 0 with this model. Only the default (1) is supported.", 400, False),
    ("body -> {}: extra fields not permitted", 422, False),
])
def test_refused_options(words, code, param):
    options = ("temperature", "max_tokens", "seed", "stream_options")
    with ChatServer(refuses(*options, then=answer(GOOD), words=words, code=code, param=param)) as server:
        reply = ask(server, seed=1, max_tokens=50)
    last = server.requests[-1]
    assert not set(options) & set(last) and last["max_completion_tokens"] == 50 and last["stream"] is True
    assert last["response_format"]["type"] == "json_schema" and reply.text == GOOD
    for said in ("without temperature", "with max_completion_tokens instead", "without seed", "without stream_options"):
        assert any(said in note for note in reply.notes), said
    assert "estimated" in reply.notes[-1] and reply.usage.tokens_out == len(GOOD) // 4 + 1


def test_no_streaming_and_no_limit_at_all():
    with ChatServer(refuses("stream", "max_tokens", "max_completion_tokens", then=answer(GOOD))) as server:
        seen = []
        reply = ask(server, seen.append, max_tokens=50)
    assert reply.text == GOOD == "".join(seen)
    assert not {"stream", "stream_options", "max_tokens", "max_completion_tokens"} & set(server.requests[-1])


def test_a_server_that_only_says_bad_request():
    with ChatServer(refuses("json_schema", then=answer(GOOD), words="Bad Request")) as server:
        assert ask(server).text == GOOD
    with ChatServer(raw(400, "{'response_format.type' must be 'json_schema' or 'text'}", "text/plain")) as server:
        assert "refused the question (HTTP 400)" in fails(server)
    assert len(server.requests) == 3                                                # down the ladder, and no further


@pytest.mark.parametrize("words, last", [
    ("extra fields not permitted by the schema: temperature", {"temperature"}),
    ("Streaming is not available", {"stream", "stream_options"}),
])
def test_the_option_that_is_meant_is_dropped(words, last):
    everything = {"model", "messages", "temperature", "stream", "stream_options", "response_format"}
    option = next(iter(sorted(last)))
    with ChatServer(refuses(option, then=answer(GOOD), words=words)) as server:
        assert ask(server).text == GOOD
    assert [set(sent) for sent in server.requests] == [everything, everything - last]


def test_trouble_upstream_is_not_a_refusal_of_stream():
    with ChatServer(status(502, "upstream connect error: stream reset")) as server:
        assert "failed" in fails(server, max_retries=0)
    assert len(server.requests) == 1


def test_a_server_that_fails_over_its_grammar():
    words = "Failed to initialize samplers: failed to parse grammar"
    with ChatServer(refuses("json_schema", then=answer(GOOD), words=words, code=500)) as server:
        assert ask(server, max_retries=0).text == GOOD


def test_a_server_that_ignores_stream():
    whole = json.dumps({"choices": [{"message": {"content": [{"type": "text", "text": GOOD}]}}]})
    with ChatServer(raw(200, whole)) as server:
        reply = ask(server)
    assert reply.text == GOOD and "estimated" in reply.notes[-1]


# --- failures that pass


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("trouble", [slow(1.5, answer(GOOD)), drop, status(500), status(503), status(429),
                                     status(429, headers={"retry-after-ms": "20"}), status(408)],
                         ids=["slow", "drop", "500", "503", "429", "429 Retry-After", "408"])
def test_trouble_that_passes(trouble, stream):
    with ChatServer(trouble, answer(GOOD)) as server:
        assert ask(server, stream=stream, timeout=0.5).text == GOOD
    assert len(server.requests) == 2 and server.requests[0] == server.requests[1]


def test_retry_after_is_honoured(monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with ChatServer(status(429, headers={"Retry-After": "17"}), answer(GOOD)) as server:
        assert ask(server).text == GOOD
    assert 17.0 in waits
    when = formatdate(time.time() + 60, usegmt=True)
    for headers, tries in [({"Retry-After": "600"}, 1), ({"x-should-retry": "false"}, 1), ({"Retry-After": "nan"}, 2),
                           ({"retry-after-ms": "nan"}, 2), ({"Retry-After": when}, 2), ({"Retry-After": "-1"}, 2)]:
        waits.clear()
        with ChatServer(status(503, headers=headers), answer(GOOD)) as server:
            try:
                assert ask(server).text == GOOD
            except DesignerError:
                pass
        assert len(server.requests) == tries, headers
        asked = [wait for wait in waits if wait > 1]
        assert len(asked) == (headers.get("Retry-After") == when) and all(55 < wait < 61 for wait in asked)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("listening", [True, False])
def test_every_try_is_told(stream, listening):
    told = []
    troubles = (slow(1.5, answer(GOOD)), drop, status(503), status(429, headers={"retry-after-ms": "20"}))
    with ChatServer(*troubles, answer(GOOD)) as server:
        reply = ask(server, (lambda text: None) if listening else None, replace(REQUEST, tell=told.append),
                    max_retries=4, timeout=0.3, stream=stream)
    assert reply.text == GOOD and len(server.requests) == 5
    assert told == [f"{server.url}, try {n} of 5{before}" for n, before in enumerate(
        ["", " (before: no answer within 0.3 s)", " (before: the connection was lost)", " (before: HTTP 503)",
         " (before: HTTP 429)"], start=1)]
    assert [note.partition(";")[0] for note in reply.notes if "asked again" in note] == [
        "no answer within 0.3 s", "the connection was lost", "HTTP 503", "HTTP 429"]


def test_two_silences_are_enough():
    with ChatServer(slow(2, answer(GOOD))) as server:
        assert "did not answer within 0.2 s (2 tries)" in fails(server, timeout=0.2, max_retries=4)
    assert len(server.requests) == 2

    def stall(handler, body):
        handler.start_stream()
        handler.event({"choices": [{"index": 0, "delta": {"content": "Envi"}, "finish_reason": None}]})
        time.sleep(2)
    with ChatServer(stall) as server:
        assert "broke off its answer (2 tries" in fails(server, timeout=0.2, max_retries=4)
    assert len(server.requests) == 2


def test_nothing_is_told_after_the_listener_has_gone():
    "The thread of a call that was given up goes on for a while; it must not write into a run that others go on with."
    told = []

    class Stop(Exception):
        pass

    def stop(text):
        raise Stop
    with ChatServer(slow(0.8, drop)) as server:
        with pytest.raises(Stop):
            ask(server, stop, replace(REQUEST, tell=told.append), timeout=5)
        before = list(told)
        time.sleep(1.5)
    assert told == before and len(told) <= 1


@pytest.mark.parametrize("midway", [drop_midway(GOOD[:60]), drop_midway(GOOD[:60], politely=True),
                                    raw(200, "data: {torn\n\n", "text/event-stream"),
                                    raw(200, 'data: {"error": {"message": "overloaded"}}\n\n', "text/event-stream")],
                         ids=["cut", "no end", "torn event", "error event"])
def test_broken_off_in_the_middle(midway):
    with ChatServer(midway, answer(GOOD)) as server:
        seen = []
        reply = ask(server, seen.append)
    assert reply.text == GOOD and "broke off" in reply.notes[0] and reply.usage.calls == 2
    assert any("asking again" in piece for piece in seen)
    with ChatServer(midway) as server:
        with pytest.raises(DesignerError, match=r"broke off its answer \(2 tries: .*check whether the serv") as caught:
            ask(server, max_retries=1)
    assert len(server.requests) == 2 == caught.value.usage.calls


def test_silence_in_the_middle():
    def stall(handler, body):
        handler.start_stream()
        handler.event({"choices": [{"index": 0, "delta": {"content": "Envi"}, "finish_reason": None}]})
        time.sleep(1.5)
    with ChatServer(stall, answer(GOOD)) as server:
        assert ask(server, timeout=0.3).text == GOOD


# --- failures that stay


def test_a_torn_stream_says_what_to_check():
    torn = raw(200, "data: {torn\n\n", "text/event-stream")
    page = raw(200, "<html>Sign in</html>", "text/event-stream")
    for trouble, words in [(torn, "it sent an event that is not JSON"), (page, "the stream ended before the answer")]:
        with ChatServer(trouble) as server:
            found = fails(server, max_retries=0)
        assert words in found and "a proxy before it" in found and "chat completions at this base_url" in found


def test_server_is_not_running():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DesignerError, match="cannot be reached .*is it running, and is base_url right"):
        make_designer("openai", model="m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=1).reply(REQUEST)


@pytest.mark.parametrize("trouble, words", [
    (slow(3, answer(GOOD)), "did not answer within 0.3 s (2 tries)"),
    (drop, "cannot be reached (2 tries"),
    (status(500, "out of memory"), "failed, after 2 tries; try later (HTTP 500). It said: out of memory"),
    (status(429, "quota exceeded"), "refuses more calls, after 2 tries"),
    (status(404, "model 'm' not found"), "knows no model 'test-model'"),
    (status(401, "bad key"), "wants a key; put it into an environment variable, and name the variable in api_key_env"),
    (status(400, "maximum context length is 100 tokens"), "It said: maximum context length is 100 tokens"),
    (raw(200, "<html>Welcome</html>", "text/html"), "answered with text/html that is not JSON, beginning '<html>Wel"),
    (raw(200, "<html>Log in</html>", "text/html"), "check base_url (it usually ends in /v1), the model's name, and "
     "whether a proxy answers instead of the server"),
    (raw(502, "<html>Bad gateway</html>", "text/html"), "or whether a proxy answers instead of the server"),
    (raw(404, "<html>Nothing here</html>", "text/html"), "or whether a proxy answers instead of the server"),
    (raw(200, "not json"), "answered with application/json that is not JSON"),
    (raw(200, "{}"), "its answer holds no message (choices[0].message); check base_url"),
    (raw(200, '{"choices": "none"}'), "its answer holds no message"),
    (raw(200, '[1, 2]'), "its answer holds no message"),
    (raw(200, '{"error": {"message": "no credit"}}'), "answered with an error: no credit"),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("stream", [True, False])
def test_trouble_that_stays(trouble, words, stream):
    with ChatServer(trouble) as server:
        found = fails(server, max_retries=1, timeout=0.3, stream=stream, response_format="text")
    assert words in found and found.startswith(server.url) and len(found) < 600


def test_the_key_appears_nowhere(monkeypatch, caplog, capsys):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    echo = f"Incorrect API key provided: {KEY}."
    said = []
    cut = "x" * 283 + " " + KEY                                               # a long message is cut within the key
    for behaviour in (status(401, echo), status(400, echo), status(403, cut), raw(200, echo, "text/html"), drop,
                      raw(200, json.dumps({"error": {"message": echo}})),
                      raw(200, f'data: {{"error": {{"message": "{echo}"}}}}\n\n', "text/event-stream")):
        with ChatServer(behaviour) as server:
            designer = make_designer("openai", model="m", base_url=server.url, api_key_env="MY_KEY", max_retries=0)
            with pytest.raises(DesignerError) as caught:
                designer.reply(REQUEST)
            error = caught.value
            assert error.__cause__ is None and error.__context__ is None      # the client's errors hold the request
            said += [str(error), repr(error), repr(designer), repr(vars(designer))]
    with ChatServer(refuses("temperature", then=answer(GOOD + KEY, refusal=echo), words="{} " + echo)) as server:
        reply = ask(server, api_key_env="MY_KEY")
        said += [repr(reply)]
    assert all(KEY[:8] not in text for text in [*said, caplog.text, *capsys.readouterr()])
    assert "[key]" in said[0] and "[key]" in reply.text and any("[key]" in note for note in reply.notes)


def test_keys_that_are_none(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-ключ with spaces")
    with ChatServer(answer(GOOD)) as server:
        found = fails(server, api_key_env="MY_KEY")
    assert "something that is not a key" in found and "ключ" not in found


def test_a_run_tells_which_try_it_is_waiting_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer(status(503, f"busy with {KEY}"), answer(BAD), slow(2.5, answer(GOOD))) as server:
        run = create_run(make_settings(**SMALL, designer="openai", designer_options={
            "model": "m", "base_url": server.url, "api_key_env": "MY_KEY"}), tmp_path / "run")
        out, stop = io.StringIO(), threading.Event()
        watcher = threading.Thread(target=watch, args=(run.path, stop, out, 0.2))
        watcher.start()
        for event in run_cycles(run.path):
            if isinstance(event, Accepted):
                break
        stop.set()
        watcher.join()
    lines, told = out.getvalue().splitlines(), capsys.readouterr().err
    again = f"cycle 1: waiting for the designer (attempt 2 of 3): {server.url}, try 1 of 5"
    assert f"cycle 1: waiting for the designer (attempt 1 of 3): {server.url}, try 2 of 5 (before: HTTP 503)" in lines
    assert again in lines and any(line.startswith(f"{again} · for ") for line in lines)
    assert f"cycle-1: {server.url}, try 2 of 5 (before: HTTP 503)\n" in told
    written = [path.read_bytes() for path in run.path.rglob("*") if path.is_file()]
    assert all(KEY[:8] not in text for text in (*lines, told)) and all(KEY[:8].encode() not in data for data in written)


# --- answers that are none, and asking again


@pytest.mark.parametrize("nothing, note", [
    (answer(""), None), (answer(None), None), (answer(None, refusal="I must not."), "the model refused: I must not."),
    (answer('{"environments": [', finish="length"), "raise max_tokens"),
    (answer("", finish="content_filter"), "content filter"),
])
@pytest.mark.parametrize("stream", [True, False])
def test_no_answer_is_asked_again(nothing, note, stream):
    with ChatServer(nothing, answer(GOOD)) as server:
        designer = make_designer("openai", model="m", base_url=server.url, stream=stream)
        first, second = design(designer, REQUEST)
    assert first.complaints and second.complaints == () and len(second.designs) == 2
    assert note is None or any(note in said for said in first.reply.notes)
    again = server.requests[1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert all(message["content"] for message in again)
    assert str(first.complaints[0]) in again[-1]["content"]


def test_invalid_then_valid():
    with ChatServer(answer(BAD), answer("nothing"), answer(GOOD)) as server:
        attempts = list(design(make_designer("openai", model="m", base_url=server.url), REQUEST))
    assert [len(attempt.complaints) for attempt in attempts] == [1, 1, 0]
    last = server.requests[2]["messages"]
    assert last[1]["content"] == BAD and "30 is not allowed; allowed: 0-9" in last[2]["content"]
    assert last[3]["content"] == "nothing" and "there is no JSON" in last[4]["content"] and len(last) == 5


def test_never_valid():
    with ChatServer(answer(BAD, finish="length")) as server:
        with pytest.raises(DesignError) as caught:
            list(design(make_designer("openai", model="m", base_url=server.url), REQUEST, max_reasks=1))
    assert len(caught.value.attempts) == len(server.requests) == 2
    assert "30 is not allowed" in str(caught.value) and "raise max_tokens" in str(caught.value)


def test_budget_of_the_run():
    with ChatServer(answer(BAD)) as server:
        designer = make_designer("openai", model="m", base_url=server.url)
        with pytest.raises(BudgetError, match="2 of 2 .max_calls.*resume"):
            list(design(designer, REQUEST, max_reasks=5, budget=Budget(max_calls=2)))
        assert len(server.requests) == 2
        with pytest.raises(BudgetError, match="max_tokens"):
            list(design(designer, REQUEST, max_reasks=5, budget=Budget(max_tokens=500)))
        assert len(server.requests) == 3


# --- stopping, and too much


def test_stopping_hangs_up():
    class Stop(Exception):
        pass

    def stop(text):
        raise Stop
    with ChatServer(answer("x" * 100_000, pause=0.01)) as server:
        with pytest.raises(Stop):
            ask(server, stop)
        assert server.hung_up.wait(10)
    assert len(server.requests) == 1


def test_endless_answers_are_cut():
    def endless(handler, body):
        handler.start_stream()
        while True:
            handler.event({"choices": [{"index": 0, "delta": {"content": "word " * 2_000}, "finish_reason": None}]})
    with ChatServer(endless) as server:
        designer = make_designer("openai", model="m", base_url=server.url)
        attempt = next(design(designer, REQUEST))
        assert server.hung_up.wait(10)
    assert "at most 200000 are read" in str(attempt.complaints[0])


def test_a_proper_reply_in_the_prompts_form():
    worlds = CRAFTER.practice("place_table")[:1] * 2
    with ChatServer(answer(format_reply([Design(world, "p") for world in worlds]))) as server:
        attempt, = design(make_designer("openai", model="m", base_url=server.url, response_format="text"), REQUEST)
    assert [d.world for d in attempt.designs] == worlds
