"""A chat-completions server on this machine that answers by a script, with every mishap that real ones have."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = "Here is the kernel.\n\n```python\nimport torch\n\n\ndef relu(x):\n    return torch.relu(x)\n```\n"
USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 300,
    "total_tokens": 1500,
    "prompt_tokens_details": {"cached_tokens": 1000},
    "completion_tokens_details": {"reasoning_tokens": 120},
}


@dataclass(frozen=True, kw_only=True)
class Say:
    """What the server does with one request."""

    text: str = GOOD
    """The answer."""
    status: int = 200
    """HTTP status; others than 200 send an error."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""
    finish: str = "stop"
    """Reason for the end; empty: none is sent."""
    usage: Any = field(default_factory=lambda: USAGE)
    """Usage; None: not told."""
    model: str = "tiny-1"
    """Model that it says to be."""
    refusal: str = ""
    """Refusal beside the text."""
    raw: bytes | None = None
    """Sent as the body instead, with success."""
    delay_s: float = 0.0
    """Before anything is sent."""
    hang: bool = False
    """Nothing is sent, until the server ends."""
    cut_after: int = -1
    """Characters of the answer after which the connection is reset; -1: it is not."""


Script = Callable[[dict[str, Any], int], Say]
"""(request body, how many came before) -> what to do."""


class ChatServer(ThreadingHTTPServer):
    """Serves a script; notes all requests."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.answered = 0
        self.open = self.most_open = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append({"path": self.path, **body})
            self.server.headers.append(dict(self.headers))
            self.server.times.append(time.monotonic())
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        try:
            self._act(self.server.script(body, number), body)
        finally:
            with self.server.lock:
                self.server.open -= 1

    def _act(self, say: Say, body: dict[str, Any]) -> None:
        time.sleep(say.delay_s)
        if say.hang:
            self.server.ended.wait()
            self.close_connection = True
        elif say.status != 200:
            self._send(say.status, json.dumps({"error": {"message": say.text, "code": "scripted"}}).encode(), say)
        elif say.raw is not None:
            self._send(200, say.raw, say)
        elif self.path.endswith("/messages"):
            self._messages(say)
        elif body.get("stream"):
            self._stream(say)
        else:
            self._whole(say)
        with self.server.lock:
            self.server.answered += 1

    def _send(self, status: int, content: bytes, say: Say) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in say.headers:
            self.send_header(name, value)
        self.end_headers()
        if say.cut_after >= 0:
            self.wfile.write(content[: say.cut_after])
            self._reset()
        else:
            self.wfile.write(content)

    def _whole(self, say: Say) -> None:
        message = {"role": "assistant", "content": say.text, "refusal": say.refusal or None}
        made = {
            "id": "c-1",
            "object": "chat.completion",
            "created": 1,
            "model": say.model,
            "choices": [{"index": 0, "message": message, "finish_reason": say.finish}],
        }
        if say.usage is not None:
            made["usage"] = say.usage
        self._send(200, json.dumps(made).encode(), say)

    def _stream(self, say: Say) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = 0
        for begin in range(0, len(say.text), 24):
            if 0 <= say.cut_after <= sent:
                self._reset()
                return
            part = say.text[begin : begin + 24]
            self._piece(say, {"content": part})
            sent += len(part)
        if say.refusal:
            self._piece(say, {"refusal": say.refusal})
        if say.finish:
            self._piece(say, {}, finish=say.finish)
        if say.usage is not None:
            self._event(
                {
                    "id": "c-1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": say.model,
                    "choices": [],
                    "usage": say.usage,
                }
            )
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _messages(self, say: Say) -> None:
        """The same in the events of Anthropic's API; ``usage`` and ``finish`` are in its words."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        message = {
            "id": "m-1",
            "type": "message",
            "role": "assistant",
            "model": say.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**say.usage, "output_tokens": 1},
        }
        self._named("message_start", {"message": message})
        self._named("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
        for begin in range(0, len(say.text), 24):
            if 0 <= say.cut_after <= begin:
                self._reset()
                return
            delta = {"type": "text_delta", "text": say.text[begin : begin + 24]}
            self._named("content_block_delta", {"index": 0, "delta": delta})
        self._named("content_block_stop", {"index": 0})
        ending = {"stop_reason": say.finish, "stop_sequence": None}
        self._named("message_delta", {"delta": ending, "usage": {"output_tokens": say.usage["output_tokens"]}})
        self._named("message_stop", {})
        self._chunk(b"")

    def _named(self, name: str, what: dict[str, Any]) -> None:
        self._chunk(f"event: {name}\ndata: {json.dumps({'type': name, **what})}\n\n".encode())

    def _piece(self, say: Say, delta: dict[str, Any], finish: str | None = None) -> None:
        self._event(
            {
                "id": "c-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": say.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        )

    def _event(self, what: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(what).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _reset(self) -> None:
        """End the connection as one that breaks."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


@contextlib.contextmanager
def serving(script: Script) -> Iterator[ChatServer]:
    server = ChatServer(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()


def in_turn(*said: Say) -> Script:
    """The first request gets the first, and so on; the last one stays."""
    return lambda body, number: said[min(number, len(said) - 1)]
