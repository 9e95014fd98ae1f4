"""The calls of one window: in an order in which no result may be kept for another call."""

from __future__ import annotations

from kerneleval.judge import cells


def test_no_ring_of_buffers_survives_the_order_of_calls() -> None:
    """Two buffers in turn did once in a thousand, when the order was merely drawn."""
    one, other = object(), object()
    for _ in range(20_000):
        calls = [one, other, *cells._turns((one, other))]
        for buffers in range(1, 7):
            kept = {number % buffers: call for number, call in enumerate(calls)}
            assert any(kept[number % buffers] is not call for number, call in enumerate(calls)), buffers
