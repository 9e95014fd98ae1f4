"""A worker's bytes against the judge's end of the wire: garbage, cut and joined frames, lengths beyond every limit,
JSON that hurts parsers, hundreds of descriptors, drips and floods.

Whatever comes, the judge has a message, or one of the failures that name the candidate, in time; it keeps no more than
a frame in memory and no descriptor. The worker's end is a socket pair that the test writes to itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz.hostile import SCALE, effort, json_values, texts

from kerneleval.sandbox import reaper
from kerneleval.sandbox.slot import Slot
from kerneleval.worker import host
from kerneleval.worker.host import Worker, WorkerError, WorkerFailure
from kerneleval.worker.wire import Channel, Closed, WireError, decode_plain, encode_plain

REASONS = {"crash", "exit", "timeout", "memory_limit", "output_flood", "device_error", "protocol"}
LIMIT = 1 << 12


class _Zygote:
    """Knows no process."""

    def reap(self, pid: int, wait_s: float) -> int | None:
        return None

    def forget(self, number: int) -> None:
        pass


class Ends:
    """A worker as the judge sees it, and the ends that a hostile one would hold."""

    def __init__(self, limit_bytes: int = LIMIT) -> None:
        ours, self.theirs = socket.socketpair()
        output, self.printing = os.pipe()
        os.set_blocking(output, False)
        slot = Slot(number=0, base="/nonexistent", directory="/nonexistent")
        self.channel = Channel(ours, limit_bytes=limit_bytes)
        self.worker = Worker(_Zygote(), 0, slot, 0, self.channel, output, 1 << 30)  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """The worker's end is gone."""
        if self.printing >= 0:
            self.theirs.close()
            os.close(self.printing)
            self.printing = -1


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "kill_all", lambda *_: [])
    monkeypatch.setattr(reaper, "resident_bytes", lambda *_: 0)


@contextlib.contextmanager
def ends(limit_bytes: int = LIMIT) -> Iterator[Ends]:
    made = Ends(limit_bytes)
    try:
        yield made
    finally:
        made.hang_up()
        made.worker.close()


def frame(body: bytes, length: int | None = None) -> bytes:
    return struct.pack("<I", len(body) if length is None else length) + body


def answered(made: Ends, timeout_s: float = 1.0) -> dict[str, Any] | WorkerError | WorkerFailure:
    """What the judge makes of the answer; anything else that is raised fails the test."""
    try:
        answer = made.worker.request("go", None, "computed", timeout_s=timeout_s)
    except WorkerFailure as failure:
        assert failure.reason in REASONS
        assert len(str(failure)) < 2000
        assert not made.worker.alive
        return failure
    except WorkerError as error:
        assert len(str(error)) <= 4000
        assert len(error.kind) <= 200
        assert all(len(text) <= 4000 for text in error.evidence.values())
        return error
    assert answer["op"] == "computed"
    return answer


BODIES = st.one_of(
    st.binary(max_size=200),
    json_values().map(lambda value: json.dumps(value).encode()),
    st.dictionaries(
        st.sampled_from(["op", "kind", "message", "traceback", "unsupported", "broken"]), json_values()
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(["computed", "error"]).flatmap(
        lambda op: st.dictionaries(texts(8), json_values()).map(lambda value: json.dumps({"op": op, **value}).encode())
    ),
    st.sampled_from(
        [
            b'{"op":"computed","op":"error"}',
            b'{"op":"error","op":"computed"}',
            b'{"op":NaN}',
            b'{"op":"computed","x":Infinity}',
            b'{"op":"computed","x":1e400}',
            b'{"op":"computed","x":-1e999999999999}',
            b'{"op":"computed","x":' + b"9" * 4000 + b"}",
            b'{"op":"computed","x":' + b"9" * 5000 + b"}",
            b'{"op":"\\ud800"}',
            b'{"op":"\xff\xfe"}',
            b'\xef\xbb\xbf{"op":"computed"}',
            b'{"op":' + b"[" * 900 + b"]" * 900 + b"}",
            b'{"op":"error","kind":' + b'{"":' * 400 + b"1" + b"}" * 400 + b"}",
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"null",
            b"",
            b" " * 100,
        ]
    ),
)

LENGTHS = st.sampled_from([0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])

PARTS = st.one_of(
    st.binary(max_size=64),
    BODIES.map(frame),
    st.tuples(BODIES, LENGTHS).map(lambda pair: frame(*pair)),
    st.tuples(BODIES.map(frame), st.integers(0, 64)).map(lambda pair: pair[0][: -pair[1] or None]),
    st.just(struct.pack("<Q", 1 << 63)),
    st.just(struct.pack("<q", -1)),
)


@given(parts=st.lists(PARTS, max_size=6), cuts=st.lists(st.integers(1, 5000), max_size=8))
@effort(60)
def test_any_bytes_are_messages_or_no_messages(parts: list[bytes], cuts: list[int]) -> None:
    """However they are cut into pieces; what is kept never exceeds a frame and one read."""
    sent, ours = socket.socketpair()
    channel = Channel(ours, limit_bytes=LIMIT)
    data = b"".join(parts)[: 64 << 10]
    try:
        for size in [*cuts, len(data) + 1]:
            piece, data = data[:size], data[size:]
            sent.sendall(piece)
            for _ in range(8):
                message = channel.poll()
                assert message is None or isinstance(message, dict)
            assert len(channel._buffer) <= LIMIT + 4 + (1 << 16)
        sent.close()
        while True:
            channel.recv(1.0)
    except WireError:
        pass
    finally:
        sent.close()
        channel.close()


@pytest.mark.slow
@given(
    messages=st.lists(st.dictionaries(texts(8), json_values(), max_size=3), max_size=4),
    step=st.integers(1, 400),
)
@effort(80)
def test_messages_arrive_as_they_were_sent(messages: list[dict[str, Any]], step: int) -> None:
    frames = [frame(json.dumps(message).encode()) for message in messages]
    fit = [json.loads(f[4:]) for f in frames if _strict(f[4:]) and len(f) <= 4 + (1 << 20)]
    data = b"".join(f for f in frames if _strict(f[4:]))
    sent, ours = socket.socketpair()
    channel = Channel(ours, limit_bytes=1 << 20)
    feeder = threading.Thread(target=lambda: [sent.sendall(data[i : i + step]) for i in range(0, len(data), step)])
    feeder.start()
    try:
        assert [channel.recv(5.0) for _ in fit] == fit
    finally:
        feeder.join()
        sent.close()
        channel.close()


def _strict(body: bytes) -> bool:
    def refuse(token: str) -> Any:
        raise ValueError(token)

    try:
        json.loads(body, parse_constant=refuse)
    except ValueError:
        return False
    return True


@pytest.mark.slow
@given(parts=st.lists(PARTS, min_size=1, max_size=4), hang_up=st.booleans())
@example(parts=[frame(b'{"op":"error","kind":' + b"[" * 900 + b"]" * 900 + b"}")], hang_up=False)
@effort(60)
def test_an_answer_is_a_message_or_the_candidates_failure(parts: list[bytes], hang_up: bool) -> None:
    with ends() as made:
        made.theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            made.theirs.send(b"".join(parts))
        if hang_up:
            made.hang_up()
        started = time.monotonic()
        answered(made, 0.02)
        assert time.monotonic() - started < 2.0


SEEDS = (
    frame(b'{"op":"computed","event_ns":12.5,"wrong":null}'),
    frame(b'{"op":"error","kind":"ValueError","message":"no","traceback":"x","unsupported":false,"broken":false}'),
    frame(b'{"op":"observed","aten":{"aten.add.Tensor":3},"launches":{},"changed":[],"extensions":["a"]}'),
    frame(b'{"op":"module","state":[["w",[3,4],"float32"],["b",[],"float32"]]}'),
    frame(b'{"op":"error","kind":"RuntimeError","message":"illegal memory access","broken":true}'),
    frame(b'{"op":"computed","x":[[[[{"a":[1e400,-0,9999999999999999999]}]]]]}'),
)


def _mutated(rng: random.Random) -> bytes:
    """One or two answers, with bytes exchanged, added, doubled or left out."""
    data = bytearray(b"".join(rng.choices(SEEDS, k=rng.randint(1, 2))))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        act = rng.randrange(5)
        if act == 0 and at < len(data):
            data[at] = rng.choice((0, 0x22, 0x5B, 0x5D, 0x7B, 0x7D, 0x80, 0xFF, rng.randrange(256)))
        elif act == 1:
            data[at:at] = rng.randbytes(rng.randrange(6))
        elif act == 2:
            del data[at : at + rng.randrange(8)]
        elif act == 3:
            data[at:at] = data[max(0, at - 12) : at] * rng.randrange(40)
        elif len(data) >= 4:
            struct.pack_into("<I", data, 0, max(0, len(data) - 4 + rng.randint(-3, 3)))
    return bytes(data)


@pytest.mark.slow
def test_thousands_of_mutated_answers() -> None:
    """As above, without the care that Hypothesis takes: some thousands a second."""
    seed = 0 if os.environ.get("CI") else random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    found = {"message": 0, "error": 0, "protocol": 0, "timeout": 0, "device_error": 0}
    for number in range(10_000 * SCALE):
        data = _mutated(rng)
        try:
            with ends() as made:
                made.theirs.send(data)
                made.hang_up()  # so that what is cut off is the end, and nobody waits
                answer = answered(made)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, example {number}: {data!r}") from error
        kind = "message" if isinstance(answer, dict) else "error" if isinstance(answer, WorkerError) else answer.reason
        found[kind] += 1
    assert min(found["message"], found["error"], found["protocol"], found["device_error"]) > 0, found


@given(
    fields=st.dictionaries(
        st.sampled_from(["kind", "message", "traceback", "unsupported", "broken"]), json_values(), max_size=5
    )
)
@effort(60)
def test_an_error_answer_is_bounded_text(fields: dict[str, Any]) -> None:
    with ends(1 << 20) as made:
        made.theirs.sendall(frame(json.dumps({"op": "error", **fields}).encode()))
        answer = answered(made)
        assert isinstance(answer, (WorkerError, WorkerFailure))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors in /proc")
def test_descriptors_that_a_worker_attaches_never_arrive() -> None:
    """Nor does what carries them cost the message."""
    before = _descriptors()
    with ends() as made:
        own = _descriptors()
        for _ in range(3):
            body = frame(b'{"op":"computed"}')
            socket.send_fds(made.theirs, [body[:1]], [made.printing] * 250)
            socket.send_fds(made.theirs, [body[1:]], [made.theirs.fileno()] * 250)
            assert answered(made) == {"op": "computed"}
        assert _descriptors() == own
    assert _descriptors() == before


def test_descriptors_never_take_the_place_of_a_standard_stream() -> None:
    """A candidate may have closed them, and what libraries print would go to memory of the judge."""
    code = (
        "import mmap, os, socket\n"
        "from kerneleval.worker.wire import Channel\n"
        "ours, theirs = socket.socketpair()\n"
        "said = os.dup(1)\n"
        "file = os.memfd_create('memory')\n"
        "os.ftruncate(file, 4)\n"
        "os.close(1), os.close(2)\n"
        "Channel(ours).send({}, fds=[file])\n"
        "channel = Channel(theirs, accept_fds=True)\n"
        "channel.recv(5.0)\n"
        "memory = mmap.mmap(channel.take_fd(), 4)\n"
        "os.write(1, b'text'), os.write(2, b'text')\n"
        "os.write(said, b'kept' if bytes(memory) == bytes(4) else b'lost')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("kept", "")


def test_a_descriptor_that_finds_no_place_is_told_with_the_limit() -> None:
    code = (
        "import os, resource, socket\n"
        "from kerneleval.worker.wire import Channel\n"
        "ours, theirs = socket.socketpair()\n"
        "channel = Channel(theirs, accept_fds=True)\n"
        "Channel(ours).send({}, fds=[0])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "channel.recv(5.0)\n"
        "channel.take_fd()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "a file descriptor was sent and none arrived; the process may open 3 files" in ended.stderr


def test_a_drip_does_not_outlive_the_timeout() -> None:
    with ends() as made:
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                for byte in frame(b'{"op":"computed",' + b" " * 3000 + b"}"):
                    made.theirs.send(bytes([byte]))
                    if stop.wait(0.002):
                        return

        dripping = threading.Thread(target=drip)
        dripping.start()
        started = time.monotonic()
        failure = answered(made, 0.3)
        stop.set()
        dripping.join()
        assert isinstance(failure, WorkerFailure)
        assert failure.reason == "timeout"
        assert time.monotonic() - started < 2.0


def test_a_flood_is_read_one_message_at_a_time() -> None:
    """What the judge did not ask for stays in the kernel's buffer, which is bounded."""
    with ends() as made:
        made.theirs.setblocking(False)
        one, sent = frame(b'{"op":"computed","x":"' + b"x" * 500 + b'"}'), 0
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += made.theirs.send(one)
            # a frame that was cut by the full buffer makes all that follows nonsense: as the worker chose
            if not isinstance(answered(made), dict):
                break
            assert len(made.channel._buffer) <= LIMIT + 4 + (1 << 16)
        assert sent < 64 << 20


def test_printing_does_not_keep_the_judge_from_looking_at_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a drip of output nor one of bytes on the wire: a worker that takes too much meanwhile is stopped."""
    monkeypatch.setattr(reaper, "resident_bytes", lambda *_: 2 << 30)
    for on_the_wire in (False, True):
        with ends() as made:
            stop = threading.Event()

            def drip(made: Ends = made, stop: threading.Event = stop, on_the_wire: bool = on_the_wire) -> None:
                with contextlib.suppress(OSError):
                    made.theirs.send(frame(b"", 3000))
                    while not stop.wait(0.01):
                        made.theirs.send(b" ") if on_the_wire else os.write(made.printing, b".")

            dripping = threading.Thread(target=drip)
            dripping.start()
            started = time.monotonic()
            failure = answered(made, 4.0)
            stop.set()
            dripping.join()
            assert isinstance(failure, WorkerFailure)
            assert failure.reason == "memory_limit"
            assert time.monotonic() - started < 2.0


def test_asking_a_worker_that_is_gone_is_its_failure() -> None:
    with ends() as made:
        made.worker.close()
        with pytest.raises(WorkerFailure) as failure:
            made.worker.request("go", {}, "computed", timeout_s=1.0)
        assert failure.value.reason == "protocol"
        with pytest.raises(Closed):
            made.channel.send({"op": "go"})


def test_output_of_any_bytes_is_kept_in_part() -> None:
    with ends() as made:
        os.write(made.printing, b"\xff\x00\x1b[2J" * 8000)
        made.theirs.sendall(frame(b'{"op":"error"}'))
        error = answered(made)
        assert isinstance(error, WorkerError)
        made.theirs.sendall(frame(b'{"op":"error"}'))
        error = answered(made)
        assert isinstance(error, WorkerError)
        assert len(error.evidence["printed"]) <= 2000
        assert len(made.worker.printed) <= host._OUTPUT_KEPT_BYTES


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.one_of(st.just("__kind__"), texts(8)), inner, max_size=5),
    ),
    max_leaves=12,
)


@given(value=PLAIN)
@effort(100)
def test_plain_values_come_back_through_json(value: Any) -> None:
    """With tuples, NaN, infinities, and mappings that look like marks."""
    text = json.dumps(encode_plain(value), allow_nan=False)
    assert repr(decode_plain(json.loads(text))) == repr(value)


def test_a_source_as_large_as_a_file_may_be_reaches_the_worker() -> None:
    """What a judge sends may be larger than what it takes; escaped in JSON, a source takes up to six times its size."""
    ours, theirs = socket.socketpair()
    judge, worker = Channel(ours, limit_bytes=4 << 20), Channel(theirs, accept_fds=True)
    sent = {"op": "load", "source": "\x01" * (4 << 20)}
    sender = threading.Thread(target=judge.send, args=(sent,))
    sender.start()
    assert worker.recv(10.0) == sent
    sender.join()
    judge.close()
    worker.close()
