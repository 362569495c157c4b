"""A server on loopback that speaks the chat-completions protocol and misbehaves on demand, for tests of `openai`."""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["Handler", dict], None]


class Handler(BaseHTTPRequestHandler):
    "Answers each POST with the next behaviour of the server; the last one is repeated."
    protocol_version = "HTTP/1.1"
    server: "ChatServer"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.server.paths.append(self.path)
        behaviour = self.server.behaviours[min(number, len(self.server.behaviours) - 1)]
        try:
            behaviour(self, body)
        except OSError:
            self.server.hung_up.set()          # the client went away in the middle
            self.close_connection = True

    def do_GET(self):
        self.server.looked.append({name.lower(): value for name, value in self.headers.items()})
        self.send(404, "{}")

    def send(self, status: int, body: str, kind: str = "application/json", headers: dict | None = None):
        "One whole response."
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def start_stream(self, kind: str = "text/event-stream"):
        "The head of a chunked response."
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: str):
        "One chunk of it; the empty one ends it."
        self.wfile.write(f"{len(data.encode()):x}\r\n{data}\r\n".encode())
        self.wfile.flush()

    def event(self, data: dict | str):
        "One server-sent event."
        self.chunk(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")

    def reset(self):
        "Cut the connection, as a crash would."
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *args):
        pass


class ChatServer(ThreadingHTTPServer):
    "`with ChatServer(answer('hello')) as server: … server.url, server.requests`"
    daemon_threads = True

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours, self.scheme = behaviours, "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.requests: list[dict] = []         # the bodies, in order of arrival
        self.headers: list[dict] = []
        self.looked: list[dict] = []           # the headers of GET, which asks no model
        self.paths: list[str] = []
        self.lock, self.hung_up = threading.Lock(), threading.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *stuff):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass                                    # a connection that was cut on purpose


def _usage(body: dict, text: str) -> dict:
    sent = sum(len(message["content"]) for message in body["messages"])
    return {"prompt_tokens": sent // 4, "completion_tokens": len(text) // 4, "total_tokens": (sent + len(text)) // 4}


def answer(text: str | None, finish: str | None = "stop", refusal: str | None = None, usage: bool = True,
           pause: float = 0.0, piece: int = 20, thoughts: str | None = None) -> Behaviour:
    "A proper answer, streamed if that is asked for."
    def behave(handler: Handler, body: dict):
        if not body.get("stream"):
            message = {"role": "assistant", "content": text, "refusal": refusal, "reasoning": thoughts}
            whole = {"id": "1", "object": "chat.completion", "model": body["model"],
                     "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
            return handler.send(200, json.dumps(whole | ({"usage": _usage(body, text or "")} if usage else {})))
        handler.start_stream()
        for start in range(0, len(thoughts or ""), piece):
            handler.event(_chunk({"content": None, "reasoning_content": thoughts[start:start + piece]}))
        stream(handler, text or "", pause, piece)
        if refusal:
            handler.event(_chunk({"refusal": refusal}))
        handler.event(_chunk({}, finish))
        if usage and (body.get("stream_options") or {}).get("include_usage"):
            handler.event({"id": "1", "object": "chat.completion.chunk", "choices": [],
                           "usage": _usage(body, text or "")})
        handler.event("[DONE]")
        handler.chunk("")
    return behave


def stream(handler: Handler, text: str, pause: float = 0.0, piece: int = 20):
    "The text in pieces."
    for start in range(0, len(text), piece):
        handler.event(_chunk({"role": "assistant", "content": text[start:start + piece]}))
        time.sleep(pause)


def _chunk(delta: dict, finish: str | None = None) -> dict:
    return {"id": "1", "object": "chat.completion.chunk", "model": "test",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def status(code: int, message: str = "no", headers: dict | None = None, param: str | None = None) -> Behaviour:
    "An error in OpenAI's form."
    body = json.dumps({"error": {"message": message, "type": "error", "param": param, "code": None}})
    return lambda handler, _: handler.send(code, body, headers=headers)


def raw(code: int, body: str, kind: str = "application/json", headers: dict | None = None) -> Behaviour:
    "Anything at all."
    return lambda handler, _: handler.send(code, body, kind, headers)


def slow(seconds: float, then: Behaviour) -> Behaviour:
    "Silence first."
    def behave(handler: Handler, body: dict):
        time.sleep(seconds)
        then(handler, body)
    return behave


def drop(handler: Handler, body: dict):
    "No answer: the connection is cut."
    handler.reset()


def drop_midway(text: str, politely: bool = False) -> Behaviour:
    "The beginning of a streamed answer, then a cut; politely: the stream ends as if all were well."
    def behave(handler: Handler, body: dict):
        handler.start_stream()
        stream(handler, text)
        if politely:
            handler.chunk("")
        else:
            handler.reset()
    return behave


def refuses(*options: str, then: Behaviour, code: int = 400, words: str = "Unsupported parameter: '{}'",
            param: bool = False) -> Behaviour:
    "A server that does not know some options; `json_schema` and `json_object` are kinds of response_format."
    def behave(handler: Handler, body: dict):
        sent = set(body) | {(body.get("response_format") or {}).get("type")}
        for option in options:
            if option in sent:
                return status(code, words.format(option), param=option if param else None)(handler, body)
        then(handler, body)
    return behave
