"""The `openai` designer against a real server on loopback that misbehaves in every way that we know of."""

import json
import logging
import socket
import time

import pytest
from chat_server import ChatServer, answer, drop, drop_midway, raw, refuses, slow, status

from envgen_nb.designer.design import Budget, BudgetError, DesignError, conversation, design
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.provider import ProviderError, Request, make_provider
from envgen_nb.designer.reply import Design, format_reply, response_schema
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
    "The client's pauses between two tries, shortened; and no keys or proxies from outside."
    import openai._base_client as client
    monkeypatch.setattr("envgen_nb.designer.openai._PAUSE", 0.01)
    monkeypatch.setattr(client, "INITIAL_RETRY_DELAY", 0.01, raising=False)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def ask(server, on_text=None, request=REQUEST, **options):
    options = {"model": "test-model", "max_retries": 2, "timeout": 5, **options}
    return make_provider("openai", base_url=server.url, **options).reply(request, on_text)


def fails(server, **options) -> str:
    with pytest.raises(ProviderError) as caught:
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
    assert make_provider("openai", model="m", base_url=base_url).key_variable == variable


def test_missing_key_is_said_before_any_call():
    with pytest.raises(ProviderError, match="OPENAI_API_KEY is not set"):
        make_provider("openai", model="m").reply(REQUEST)
    with ChatServer(answer(GOOD)) as server:
        assert "MY_KEY is not set" in fails(server, api_key_env="MY_KEY")
    assert server.requests == []


def test_own_machine_is_reached_without_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ChatServer(answer(GOOD)) as server:
        assert ask(server, max_retries=0).text == GOOD


# --- options that a server does not take


def test_ladder_down_to_text():
    with ChatServer(refuses("json_schema", "json_object", then=answer(BAD))) as server:
        provider = make_provider("openai", model="m", base_url=server.url)
        first, second = provider.reply(REQUEST), provider.reply(REQUEST)
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
        with pytest.raises(ProviderError, match="broke off its answer, 2 times in all") as caught:
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


def test_server_is_not_running():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ProviderError, match="cannot be reached .*is it running, and is base_url right"):
        make_provider("openai", model="m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=1).reply(REQUEST)


@pytest.mark.parametrize("trouble, words", [
    (slow(3, answer(GOOD)), "did not answer within 0.3 s (2 tries)"),
    (drop, "cannot be reached (2 tries"),
    (status(500, "out of memory"), "failed, after 2 tries; try later (HTTP 500). It said: out of memory"),
    (status(429, "quota exceeded"), "refuses more calls, after 2 tries"),
    (status(404, "model 'm' not found"), "knows no model 'test-model'"),
    (status(401, "bad key"), "wants a key; put it into an environment variable, and name the variable in api_key_env"),
    (status(400, "maximum context length is 100 tokens"), "It said: maximum context length is 100 tokens"),
    (raw(200, "<html>Welcome</html>", "text/html"), "answered with text/html that is not JSON, beginning '<html>Wel"),
    (raw(200, "not json"), "answered with application/json that is not JSON"),
    (raw(200, "{}"), "its answer holds no message"),
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
            provider = make_provider("openai", model="m", base_url=server.url, api_key_env="MY_KEY", max_retries=0)
            with pytest.raises(ProviderError) as caught:
                provider.reply(REQUEST)
            error = caught.value
            assert error.__cause__ is None and error.__context__ is None      # the client's errors hold the request
            said += [str(error), repr(error), repr(provider), repr(vars(provider))]
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


# --- answers that are none, and asking again


@pytest.mark.parametrize("nothing, note", [
    (answer(""), None), (answer(None), None), (answer(None, refusal="I must not."), "the model refused: I must not."),
    (answer('{"environments": [', finish="length"), "raise max_tokens"),
    (answer("", finish="content_filter"), "content filter"),
])
@pytest.mark.parametrize("stream", [True, False])
def test_no_answer_is_asked_again(nothing, note, stream):
    with ChatServer(nothing, answer(GOOD)) as server:
        provider = make_provider("openai", model="m", base_url=server.url, stream=stream)
        first, second = design(provider, REQUEST)
    assert first.complaints and second.complaints == () and len(second.designs) == 2
    assert note is None or any(note in said for said in first.reply.notes)
    again = server.requests[1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert all(message["content"] for message in again)
    assert str(first.complaints[0]) in again[-1]["content"]


def test_invalid_then_valid():
    with ChatServer(answer(BAD), answer("nothing"), answer(GOOD)) as server:
        attempts = list(design(make_provider("openai", model="m", base_url=server.url), REQUEST))
    assert [len(attempt.complaints) for attempt in attempts] == [1, 1, 0]
    last = server.requests[2]["messages"]
    assert last[1]["content"] == BAD and "30 is not allowed; allowed: 0-9" in last[2]["content"]
    assert last[3]["content"] == "nothing" and "there is no JSON" in last[4]["content"] and len(last) == 5


def test_never_valid():
    with ChatServer(answer(BAD, finish="length")) as server:
        with pytest.raises(DesignError) as caught:
            list(design(make_provider("openai", model="m", base_url=server.url), REQUEST, max_reasks=1))
    assert len(caught.value.attempts) == len(server.requests) == 2
    assert "30 is not allowed" in str(caught.value) and "raise max_tokens" in str(caught.value)


def test_budget_of_the_run():
    with ChatServer(answer(BAD)) as server:
        provider = make_provider("openai", model="m", base_url=server.url)
        with pytest.raises(BudgetError, match="2 of 2 .max_calls.*resume"):
            list(design(provider, REQUEST, max_reasks=5, budget=Budget(max_calls=2)))
        assert len(server.requests) == 2
        with pytest.raises(BudgetError, match="max_tokens"):
            list(design(provider, REQUEST, max_reasks=5, budget=Budget(max_tokens=500)))
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
        provider = make_provider("openai", model="m", base_url=server.url)
        attempt = next(design(provider, REQUEST))
        assert server.hung_up.wait(10)
    assert "at most 200000 are read" in str(attempt.complaints[0])


def test_a_proper_reply_in_the_prompts_form():
    worlds = CRAFTER.practice("place_table")[:1] * 2
    with ChatServer(answer(format_reply([Design(world, "p") for world in worlds]))) as server:
        attempt, = design(make_provider("openai", model="m", base_url=server.url, response_format="text"), REQUEST)
    assert [d.world for d in attempt.designs] == worlds
