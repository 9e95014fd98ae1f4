"""A command under way: its output as it comes, its time, its end; and what an agent says that it used, of which
nothing is trusted to be there, or to be what it should.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KEPT_BYTES = 512 * 1024
"""Of the output: so much of its beginning and of its end."""

_GRACE_S = 8.0
"""Time between asking the command's monitor to end it, which takes five seconds at most, and killing that."""

_POLL_S = 0.1

_REST = 64
"""Reads of what a command left in the pipe: more than it holds."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code; negative: the signal that ended it."""
    cut: str
    """Why it was ended: ``time``, ``stopped``; empty: it ended by itself."""
    output: str
    """What it wrote to standard output and standard error, without the middle of what is longer than 1 MiB."""


def run(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    stop: threading.Event,
    paused_s: Callable[[], float],
) -> Ended:
    """Run a command, in a session of its own, to its end, or until its time is over or it is stopped: then SIGTERM,
    and SIGKILL after a while. ``environment`` is all of its environment; ``paused_s`` gives the seconds so far that do
    not count. Raises OSError where it could not be started.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C at the terminal is not the command's
    )
    output, cut, asked = _Output(), "", 0.0
    begun = time.monotonic()
    assert process.stdout is not None
    try:
        with process.stdout, selectors.DefaultSelector() as selector:
            os.set_blocking(process.stdout.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ)
            while not _has_ended(process):
                selector.select(_POLL_S)
                if not output.take(process.stdout.fileno()):
                    time.sleep(_POLL_S / 10)  # it closed its output, or has nothing to say
                now = time.monotonic()
                if not cut and (stop.is_set() or now - begun - paused_s() > seconds):
                    cut, asked = "stopped" if stop.is_set() else "time", now
                    _signal(process.pid, signal.SIGTERM)
                elif cut and now - asked > _GRACE_S:
                    _signal(process.pid, signal.SIGKILL)
            _signal(process.pid, signal.SIGKILL)  # what is left of the group, where no monitor has seen to it
            process.wait()
            for _ in range(_REST):
                if not output.take(process.stdout.fileno()):
                    break
    finally:
        if process.returncode is None:
            _end(process)
    return Ended(code=process.returncode, cut=cut, output=output.text())


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL after a while."""
    _signal(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while not _has_ended(process) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has; its status stays to be collected, so that no other process gets its number meanwhile."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """The beginning and the end of what is written."""

    def __init__(self) -> None:
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0

    def take(self, handle: int) -> bool:
        """Read what is there just now; False: nothing."""
        try:
            part = os.read(handle, 1 << 16)
        except BlockingIOError:
            return False
        room = _KEPT_BYTES - len(self._head)
        self._head += part[:room]
        self._tail += part[room:]
        if len(self._tail) > 2 * _KEPT_BYTES:
            self._trim()
        return bool(part)

    def _trim(self) -> None:
        over = len(self._tail) - _KEPT_BYTES
        if over > 0:
            del self._tail[:over]
            self._dropped += over

    def text(self) -> str:
        """All that is kept, as text."""
        self._trim()
        gap = f"\n[... {self._dropped} bytes are left out ...]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode("utf-8", "replace")


PRICES = "as the agent says"
"""List that an agent's own figure is from, for ``Origin.prices``."""

_MOST = 10**12
_TRIES = 200

_IN = ("input_tokens", "prompt_tokens", "tokens_in")
_OUT = ("output_tokens", "completion_tokens", "tokens_out")
_CACHED = ("cached_tokens", "cached_input_tokens", "cache_read_input_tokens", "tokens_cached")
_REASONING = ("reasoning_tokens", "reasoning_output_tokens", "tokens_reasoning")
_MONEY = ("total_cost_usd", "cost_usd", "money_usd")
_TURNS = ("num_turns", "turns")
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Not included in ``input_tokens`` where they have these names (Anthropic's API); elsewhere included."""

_DETAILS = ("input_tokens_details", "prompt_tokens_details", "output_tokens_details", "completion_tokens_details")


def read_usage(text: str) -> dict[str, Any]:
    """Usage from a JSON object, or from the last one of several lines that has any; empty where nothing is given and
    valid: whole numbers that are not negative, parts no larger than what they are a part of.

    Known are flat objects with ``model``, ``input_tokens``, ``output_tokens``, ``cached_tokens``, ``reasoning_tokens``,
    ``cost_usd`` and ``turns``, and those that the programs of model makers print: with a table ``usage``, with
    ``total_cost_usd``, ``num_turns`` and ``modelUsage``. Names of the result are those of :class:`Origin`, and
    ``turns``.
    """
    for found in _objects(text):
        if usage := _read(found):
            return usage
    return {}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """The whole text as JSON, else the objects that begin a line, the last one first."""
    whole = _parse(text)
    if isinstance(whole, list):
        yield from (one for one in reversed(whole) if isinstance(one, dict))
        return
    if isinstance(whole, dict):
        yield whole
        return
    end = len(text)
    for _ in range(_TRIES):
        start = text.rfind("\n{", 0, end) + 1
        if start == 0 and not text.startswith("{"):
            return
        found = _parse(text[start:].partition("\n")[0]) or _parse(text[start:])
        if isinstance(found, dict):
            yield found
        if start == 0:
            return
        end = start - 1


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(found: Mapping[str, Any]) -> dict[str, Any]:
    inner = found.get("usage")
    parts: list[Mapping[str, Any]] = [found]
    if isinstance(inner, dict):
        parts = [inner, *(inner[name] for name in _DETAILS if isinstance(inner.get(name), dict)), found]
    usage: dict[str, Any] = {}
    tokens_in, out = _count(parts, _IN), _count(parts, _OUT)
    if tokens_in is not None:
        beside = [_count(parts, (name,)) or 0 for name in _BESIDE]
        usage["tokens_in"] = tokens_in + sum(beside)
    if out is not None:
        usage["tokens_out"] = out
    for name, keys, of in (("tokens_cached", _CACHED, "tokens_in"), ("tokens_reasoning", _REASONING, "tokens_out")):
        part = _count(parts, keys)
        if part is not None and part <= usage.get(of, -1):
            usage[name] = part
    turns = _count(parts, _TURNS)
    if turns is not None:
        usage["turns"] = turns
    money = _first(parts, _MONEY)
    if _is_number(money) and 0 <= money <= _MOST:
        usage |= {"money_usd": float(money), "prices": PRICES}
    if usage and (model := _model(found)):
        usage["model"] = model
    return usage


def _model(found: Mapping[str, Any]) -> str:
    table = found.get("modelUsage")
    names = [found.get("model"), *(sorted(table) if isinstance(table, dict) else ())]
    known = [n for n in names if isinstance(n, str) and n.strip() and n.isprintable() and len(n) <= 200]
    return known[0] if isinstance(found.get("model"), str) and known else ", ".join(known[:3])


def _first(parts: list[Mapping[str, Any]], keys: tuple[str, ...]) -> Any:
    return next((part[key] for key in keys for part in parts if part.get(key) is not None), None)


def _count(parts: list[Mapping[str, Any]], keys: tuple[str, ...]) -> int | None:
    value = _first(parts, keys)
    if not _is_number(value) or not 0 <= value <= _MOST or value != int(value):
        return None
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
