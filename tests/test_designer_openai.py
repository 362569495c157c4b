"""The `openai` designer against a real server on loopback that misbehaves in every way that we know of."""

import html
import importlib.util
import io
import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import asdict, replace
from email.utils import formatdate
from urllib.parse import quote

import pytest
from chat_server import ChatServer, answer, drop, drop_midway, raw, refuses, slow, status

from envgen_nb.cycle.context import write_worlds
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Accepted
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import open_run
from envgen_nb.cycle.settings import SettingsError, load_settings, make_settings
from envgen_nb.designer.base import DesignerError, Request, make_designer
from envgen_nb.designer.design import Budget, BudgetError, DesignError, conversation, design
from envgen_nb.designer.openai import _Failure, _pause
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.reply import Design, format_reply
from envgen_nb.designer.schema import response_schema
from envgen_nb.extras.cli import main
from envgen_nb.game.files import append_jsonl, write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results import kept_summary
from envgen_nb.results.progress import watch
from envgen_nb.results.report import write_report
from envgen_nb.studio.compare import run_table
from envgen_nb.studio.conversation import conversation_html, cost_html
from envgen_nb.studio.session import Session

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


@pytest.mark.parametrize("key", ["ABSKQmVkcm9ja0FQSUtleS9/x+TAILTAILTAIL12345=", "12345678&<>'\"=tail-tail"])
def test_of_a_key_with_signs_that_are_escaped_nothing_is_shown(key, monkeypatch):
    """Plain, in a URL and in HTML it begins in the same way; of each the whole goes."""
    monkeypatch.setenv("MY_KEY", key)
    for spelling in (key, quote(key, safe=""), html.escape(key), key[:20]):
        with ChatServer(status(401, f"wrong key Bearer {spelling} given")) as server:
            said = fails(server, api_key_env="MY_KEY")
        assert "wrong key Bearer [key]" in said and "TAIL" not in said and "tail" not in said


def test_thoughts_without_an_end_are_stopped():
    def thinks(handler, body):
        handler.start_stream()
        while True:
            handler.event({"choices": [{"index": 0, "delta": {"reasoning_content": "hm " * 20_000}}]})

    with ChatServer(thinks) as server:
        ask(server)
        assert server.hung_up.wait(5)


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


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"])
def test_own_machine_in_all_spellings_is_reached_without_a_proxy(host, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    with ChatServer(answer(GOOD)) as server:
        designer = make_designer("openai", model="m", base_url=f"http://{host}:{server.server_port}/v1", max_retries=0)
        designer.check()
        assert designer.reply(REQUEST).text == GOOD


@pytest.mark.parametrize("variable, value, words", [
    ("ALL_PROXY", "socks5h://me:hunter2@127.0.0.1:9", "ALL_PROXY names a proxy (socks5h://), for which a package"),
    ("https_proxy", "gopher://me:hunter2@127.0.0.1:9", "https_proxy names a proxy of a kind that is not known (gopher://)"),
    ("SSL_CERT_FILE", "/nowhere/hunter2.pem", "SSL_CERT_FILE names no file of trusted certificates (No such file"),
])
def test_a_variable_that_cannot_be_used_is_named_before_anything_is_made(variable, value, words, tmp_path, monkeypatch,
                                                                           capsys):
    pytest.importorskip("httpx2")
    if importlib.util.find_spec("socksio") and "SOCKS" in words.upper():
        pytest.skip("there is the package that these proxies need")
    monkeypatch.setenv(variable, value)
    options = {"model": "m", "base_url": "https://example.com/v1"}
    with pytest.raises(DesignerError, match=re.escape(words)):
        make_designer("openai", **options).check()
    assert main(["run", "crafter", "-p", "folder", str(tmp_path / "run"), "-p", "designer", "openai", "-p",
                 "designer_options", json.dumps(options)]) == 2
    said = capsys.readouterr().err
    assert words in said and "hunter2" not in said and list(tmp_path.iterdir()) == []


def test_a_proxy_that_does_not_answer_is_named(monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@127.0.0.1:9")
    with pytest.raises(DesignerError, match="is the proxy in HTTPS_PROXY right") as caught:
        make_designer("openai", model="m", base_url="https://example.com/v1", max_retries=0).reply(REQUEST)
    assert "hunter2" not in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    "A certificate of this machine's own, and its key, in one file."
    if not shutil.which("openssl"):
        pytest.skip("the program openssl is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", folder / "key.pem",
                    "-out", folder / "certificate.pem"], check=True, capture_output=True)
    return folder


def test_certificates(certificate, monkeypatch):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with ChatServer(answer(GOOD), tls=tls) as server:
        found = fails(server, max_retries=4)                       # once: asking again would not help
        assert "shows a certificate that is not trusted here (self" in found and "SSL_CERT_FILE" in found
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
        assert ask(server, max_retries=0).text == GOOD
    assert len(server.requests) == 1
    with ChatServer(answer(GOOD)) as server:
        with pytest.raises(DesignerError, match="does not speak https; does base_url begin with http://"):
            make_designer("openai", model="m", base_url=server.url.replace("http:", "https:")).reply(REQUEST)


@pytest.mark.parametrize("path", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_whole_address_of_the_chat_completions_is_one_as_well(path):
    with ChatServer(answer(GOOD)) as server:
        assert make_designer("openai", model="m", base_url=server.url + path, max_retries=0).reply(REQUEST).text == GOOD
    assert server.paths == ["/v1/chat/completions"]


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


@pytest.mark.parametrize("words", [
    "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.",
    "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than the context",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 5096 tokens "
    "and your request has 1000 input tokens (8192 > 5096 - 1000).",
])
@pytest.mark.parametrize("param", [None, "max_tokens"])
def test_a_limit_that_is_too_large_becomes_the_largest_one(words, param):
    def limited(handler, body):
        more = body["max_tokens"] > 4096
        (status(400, words, param=param) if more else answer(GOOD))(handler, body)
    with ChatServer(limited) as server:
        designer = make_designer("openai", model="m", base_url=server.url, max_tokens=8192)
        first, second = designer.reply(REQUEST), designer.reply(REQUEST)
    assert [sent["max_tokens"] for sent in server.requests] == [8192, 4096, 4096]
    assert first.text == GOOD and "asked again with max_tokens = 4096" in first.notes[0] and len(second.notes) == 1
    assert all(sent["response_format"]["type"] == "json_schema" for sent in server.requests)


@pytest.mark.parametrize("words", [
    "max_tokens is too large", "max_completion_tokens is too large for this model",
    "This model's maximum context length is 2000 tokens. However, you requested 10500 tokens (2308 in the messages, "
    "8192 in the completion)."])
def test_there_is_no_question_without_the_limit_that_a_user_has_set(words):
    with ChatServer(status(400, words, param="max_tokens")) as server:
        found = fails(server, max_tokens=8192, response_format="text")
    assert len(server.requests) == 1 and "set another max_tokens (HTTP 400). It said: " in found


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


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_in_the_thoughts_alone_is_one(stream):
    with ChatServer(answer(None, thoughts=GOOD), answer("", thoughts="I would say {nothing}.", finish="length"),
                    answer(GOOD, thoughts="Perhaps {}?"), answer(f"[THINK]{BAD}[/THINK]\n{GOOD}")) as server:
        found, cut, usual, inside = (ask(server, stream=stream) for _ in range(4))
    assert (found.text, found.thoughts) == (GOOD, "") and "as thoughts (reasoning_content)" in found.notes[-1]
    assert (cut.text, usual.text, usual.thoughts) == ("", GOOD, "Perhaps {}?")
    assert (inside.text, inside.thoughts) == (GOOD, BAD)


def test_thoughts_as_parts_of_the_content():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": GOOD}]
    with ChatServer(raw(200, json.dumps({"choices": [{"message": {"content": parts}}]}))) as server:
        reply = ask(server, stream=False)
    assert (reply.text, reply.thoughts) == (GOOD, "Hm.")


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


@pytest.fixture
def waits(monkeypatch):
    "The pauses between two tries, noted down instead of waited for."
    found = []
    monkeypatch.setattr("envgen_nb.designer.openai._sleep", lambda seconds, ended: found.append(seconds))
    return found


def test_retry_after_is_honoured(waits):
    with ChatServer(status(429, headers={"Retry-After": "17"}), answer(GOOD)) as server:
        assert ask(server).text == GOOD
    assert 17.0 in waits
    when = formatdate(time.time() + 60, usegmt=True)
    for headers, tries in [({"Retry-After": "601"}, 1), ({"x-should-retry": "false"}, 1), ({"Retry-After": "nan"}, 2),
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


def test_a_server_that_asks_for_no_pause_is_not_asked_for_ever(waits, monkeypatch):
    monkeypatch.setattr("envgen_nb.designer.openai._PAUSE", 0.5)
    past = formatdate(time.time() - 60, usegmt=True)
    for headers in ({"Retry-After": "0"}, {"Retry-After": past}, {}):
        waits.clear()
        with ChatServer(status(429, headers=headers)) as server:
            with pytest.raises(DesignerError, match="refuses more calls"):
                ask(server, max_wait=5)
            assert 2 < len(server.requests) < 15 and min(waits) >= 0.3 and sum(waits) <= 5


def test_a_pause_is_a_number_after_any_number_of_tries():
    assert 0 < _pause(_Failure("it broke off", begun="a"), 5000)[0] <= 60


def test_what_the_environment_has_for_openai_goes_to_no_other_server(monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: sk-very\nAuthorization: Bearer sk-gateway")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    with ChatServer(answer(GOOD)) as server:
        assert ask(server).text == GOOD
    (sent,) = server.headers
    assert sent["authorization"] == "Bearer none" and not any(
        secret in value for value in sent.values() for secret in ("sk-", "org-mine", "proj-mine"))


SOON = {          # where servers say when to come back: in 12 seconds
    "retry-after": status(429, headers={"Retry-After": "12"}),
    "milliseconds": status(429, headers={"retry-after-ms": "12000"}),
    "Gemini": raw(429, json.dumps([{"error": {
        "code": 429, "message": "You exceeded your current quota.", "status": "RESOURCE_EXHAUSTED", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
                {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12s"}]}}])),
    "Gemini in words": status(429, "Quota exceeded for metric: x, limit: 16000.\nPlease retry in 12.00s."),
    "Groq": status(429, "Rate limit reached for model m on tokens per minute (TPM): Limit 15000, Used 11972, Requested "
                        "4351. Please try again in 12s. Visit https://example.com for more."),
    "Azure": status(429, "Requests have exceeded the call rate limit. Please retry after 12 seconds."),
    "Hugging Face": raw(503, '{"error": "Model m is currently loading", "estimated_time": 12.0}'),
    "what is used up": status(429, headers={
        "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s",
        "x-ratelimit-remaining-tokens": "90000", "x-ratelimit-reset-tokens": "6m0s"}),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("place", SOON)
def test_a_server_that_says_when_to_come_back_is_asked_again_then(place, stream, waits):
    told = []
    with ChatServer(*[SOON[place]] * 12, answer(GOOD)) as server:
        reply = ask(server, request=replace(REQUEST, on_status=told.append), max_retries=2, stream=stream)
    assert reply.text == GOOD and waits == [12.0] * 12 and len(server.requests) == 13
    assert sum("the next try is in 12 s, as the server asks" in line for line in told) == 12
    assert told[2].endswith("try 2 of 3 (before: HTTP 503)" if place == "Hugging Face" else "of 3 (before: HTTP 429)")


def test_moments_since_1970(waits):
    moment = time.time() + 50
    body = {"error": {"message": "Rate limit exceeded", "code": 429, "metadata": {"headers": {
        "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{1000 * moment:.0f}"}}}}
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    for trouble in (raw(429, json.dumps(body)), raw(200, json.dumps(body)),          # with status 200, too
                    status(429, headers={"anthropic-ratelimit-requests-remaining": "0",
                                         "anthropic-ratelimit-requests-reset": date})):
        with ChatServer(trouble, answer(GOOD)) as server:
            assert ask(server, max_retries=0).text == GOOD
    assert len(waits) == 3 and all(40 < wait <= 50 for wait in waits)


@pytest.mark.parametrize("code", [503, 429, 529])
def test_a_busy_server_is_asked_for_minutes(code, waits):
    "One that does not say when to come back: llama.cpp while it loads a model."
    with ChatServer(*[status(code, "Loading model")] * 15, answer(GOOD)) as server:
        reply = ask(server, max_retries=0)
    assert reply.text == GOOD and len(waits) == 15 and waits[:5] == sorted(waits[:5])
    assert max(waits) <= 60
    waits.clear()
    with ChatServer(status(code, "Loading model")) as server:
        found = fails(server, max_retries=0, max_wait=0.5)
    assert 1 < len(server.requests) < 40 and sum(waits) <= 0.5
    assert f"(HTTP {code}). It said: Loading model" in found and "raise max_wait (0.5 s)" in found


def test_how_long_to_wait_is_a_setting(tmp_path, waits):
    with ChatServer(status(429, headers={"Retry-After": "30"})) as server:
        write_text(tmp_path / "settings.ini",
                   f"[designer]\nname = openai\nmodel = m\nbase_url = {server.url}\nmax_wait = 70\n")
        settings = load_settings(tmp_path / "settings.ini")
        with pytest.raises(DesignerError, match="it asks for a pause of 30 s, longer than max_wait leaves"):
            make_designer("openai", **settings.designer_options).reply(REQUEST)
    assert waits == [30.0, 30.0]


def test_busy_in_the_middle_of_a_stream(waits):
    event = 'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n'
    with ChatServer(*[raw(200, event, "text/event-stream")] * 3, answer(GOOD)) as server:
        assert ask(server, max_retries=0).text == GOOD
    assert len(waits) == 3


@pytest.mark.parametrize("trouble, words", [
    (status(429, "Please try again in 23m10s."), "it asks for a pause of 1390 s, longer than max_wait leaves"),
    (raw(429, '{"error": {"message": "Add credit.", "type": "insufficient_quota", "code": "insufficient_quota"}}'),
     "after 1 try; wait, or see whether the account has credit"),
    (raw(429, '[{"error": {"message": "Quota.", "details": [{"quotaId": "GenerateRequestsPerDayPerProject"}, '
              '{"retryDelay": "31s"}]}}]'), "after 1 try; wait"),
])
def test_a_wait_that_would_be_in_vain(trouble, words, waits):
    with ChatServer(trouble) as server:
        assert words in fails(server)
    assert waits == [] and len(server.requests) == 1


def test_a_pause_can_be_interrupted():
    class Stop(Exception):
        pass

    told = []

    def stop(text):
        if any("the next try is in 300 s" in line for line in told):
            raise Stop
    before = threading.active_count()
    with ChatServer(status(429, headers={"Retry-After": "300"})) as server:
        with pytest.raises(Stop):
            ask(server, stop, replace(REQUEST, on_status=told.append))
        end = time.monotonic() + 60
        while threading.active_count() > before + 1:                         # the server has a thread of its own
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(server.requests) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("listening", [True, False])
def test_every_try_is_told(stream, listening):
    told = []
    troubles = (slow(1.5, answer(GOOD)), drop, status(503), status(429, headers={"retry-after-ms": "20"}))
    with ChatServer(*troubles, answer(GOOD)) as server:
        reply = ask(server, (lambda text: None) if listening else None, replace(REQUEST, on_status=told.append),
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
            ask(server, stop, replace(REQUEST, on_status=told.append), timeout=5)
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
    (status(429, "quota exceeded"), "refuses more calls, after 1 try; wait, or see whether the account has credit"),
    (status(503, "Loading model"), "is busy, or still loads its model, after 1 try"),
    (status(404, "model 'm' not found"), "knows no model 'test-model'"),
    (status(401, "bad key"), "needs a key; put it into an environment variable, and name the variable in api_key_env"),
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
        found = fails(server, max_retries=1, max_wait=0, timeout=0.3, stream=stream, response_format="text")
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


KEYS = {"usual": KEY, "short": "hunter2", "with quotation marks": 'my-"key"-with-\'marks\'',
        "other signs": "a\\b&<c>%d/e"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_no_key_comes_back_in_any_form(name, stream, monkeypatch, waits):
    "In an error, in the answer, in its thoughts, in notes; what is streamed, and what is told while waiting, as well."
    key = KEYS[name]
    monkeypatch.setenv("MY_KEY", key)
    forms = [key, json.dumps(key), json.dumps({"error": json.dumps(key)}), html.escape(key), quote(key, safe=""),
             repr(key)]
    echo, heard, told = "; ".join(forms), [], []
    text = f"{GOOD} {echo} end"
    whole = answer(text, piece=3, thoughts=f"It is {echo}.")
    with ChatServer(status(503, echo, headers={"Retry-After": "1"}),
                    refuses("json_schema", words="{} " + echo.replace("{", "").replace("}", ""), then=whole)) as server:
        reply = ask(server, heard.append, replace(REQUEST, on_status=told.append), api_key_env="MY_KEY", stream=stream)
    said = [reply.text, reply.thoughts, *reply.notes, "".join(heard), *told]
    for behaviour in (status(401, echo), raw(400, echo), raw(200, echo, "text/html"), raw(502, f"<html>{echo}"),
                      raw(200, json.dumps({"error": {"message": echo}})),
                      raw(200, f'data: {json.dumps({"error": {"message": echo}})}\n\n', "text/event-stream")):
        with ChatServer(behaviour) as server:
            said.append(fails(server, api_key_env="MY_KEY", max_retries=0, response_format="text", stream=stream))
    for form in (form.strip("\"'") for form in forms if len(form) < 60):
        assert not [one for one in said if form in one], form
    assert "[key]" in reply.text and "[key]" in reply.thoughts and "".join(heard).endswith("end") and "[key]" in said[3]
    assert "[key]" in "".join(heard) and any("[key]" in line for line in told)


def test_a_short_key_that_is_a_word_of_the_question_stays_one(monkeypatch):
    for key in ("wood", "no", "1"):
        monkeypatch.setenv("MY_KEY", key)
        with ChatServer(answer(GOOD)) as server:
            assert ask(server, api_key_env="MY_KEY").text == GOOD


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
    where = f"{server.url}, with the key in MY_KEY"                       # named before the call
    again = f"cycle 1: waiting for the designer (attempt 2 of 3): {where}, try 1 of 5"
    assert f"cycle 1: waiting for the designer (attempt 1 of 3): {where}, try 2 of 5 (before: HTTP 503)" in lines
    assert again in lines and any(line.startswith(f"{again} · for ") for line in lines)
    assert f"cycle-1: {where}, try 2 of 5 (before: HTTP 503)\n" in told
    written = [path.read_bytes() for path in run.path.rglob("*") if path.is_file()]
    assert all(KEY[:8] not in text for text in (*lines, told)) and all(KEY[:8].encode() not in data for data in written)


def test_no_control_character_of_a_model_reaches_a_terminal(tmp_path, capsys, waits):
    "Nor a file, the report or the studio: in a reply, in JSON escapes, in thoughts, in an error, in what is streamed."
    attack = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202e"
    escaped = json.dumps(attack)[1:-1]
    good = json.dumps({"bottleneck": attack, "environments": [{"purpose": f"a {attack}", "settings": {}}] * 2})
    bad = json.dumps({"environments": [{"settings": {attack: 1, "inventory_settings": {attack: attack}}}, {}]})
    with ChatServer(status(503, attack, headers={"Retry-After": "1"}), status(400, f"response_format {attack}"),
                    answer(bad, thoughts=attack), answer(f"{attack} no JSON", refusal=attack),
                    answer(f"<think>{attack}</think>{good}")) as server:
        run = create_run(make_settings(**SMALL, designer="openai", bottleneck=True, designer_options={
            "model": "m", "base_url": server.url}), tmp_path / "run")
        out, stop, heard = io.StringIO(), threading.Event(), []
        watcher = threading.Thread(target=watch, args=(run.path, stop, out, 0.2))
        watcher.start()
        for event in run_cycles(run.path, on_text=heard.append):
            if isinstance(event, Accepted):
                break
        stop.set()
        watcher.join()
        server.behaviours = (status(401, attack),)
        with pytest.raises(DesignerError) as caught:
            ask(server)
    page = write_report(run).read_text()
    shown = [out.getvalue(), *capsys.readouterr(), "".join(heard), str(caught.value), page,
             conversation_html(run, "cycle-1")]
    written = [path.read_text() for path in run.path.rglob("*") if path.suffix in (".md", ".json", ".jsonl")]
    for text in (*shown, *written):
        assert not re.search("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e]", text)
    seen = r"\u001b]52;c;aGk=\u0007"
    assert all(seen in text for text in (shown[0], shown[2], *shown[3:5])) and escaped[:13] in page
    assert run.designs("cycle-1")[0].purpose == f"a {escaped}"


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
