"""What this machine can do at best: its measured peaks, with the vendor's figures beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import borrowed
from kerneleval.records import OnEvent, tell, to_plain

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge


def peaks(
    device: str | None = None,
    *,
    again: bool = False,
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> dict[str, Any]:
    """The peaks of a machine: from the cache, and measured now as far as they are not known (``again``: all of them).

    Returns:
        plain data: ``machine``, ``fingerprint``, ``product`` and ``source`` (empty: no vendor's figures are known),
        ``unsteady`` (what speaks against what was measured now; empty: nothing, or nothing was), and ``peaks``: the
        fields of :class:`Peak`, with ``datasheet`` and ``share`` of it (None: not stated).

    Raises:
        UsageError: no such device, or not usable here.
        InfrastructureError: the device has no memory left to measure with.
    """
    from kerneleval.devices.common.datasheet import product_of
    from kerneleval.judge.machine import peaks as stage

    measured = 0

    def on_measure(name: str, done: int, total: int) -> None:
        nonlocal measured
        measured += 1
        tell(on_event, "peaks", done, total, f"measuring {name}")

    with borrowed(judge, device) as owner:
        owner.pool.quiet()
        before = owner.device.conditions()
        found = stage.known(owner.device, owner.machine, owner.pool.cache_dir, again=again, on_measure=on_measure)
        why = owner.device.unsteady(before, owner.device.conditions()) if measured else ""
        machine = owner.machine
    product = product_of(machine)
    rows = []
    for peak in found.peaks:
        stated = product.figure(peak.name) if product else 0.0
        share = peak.best / stated if stated and peak.best else None
        rows.append(to_plain(peak) | {"datasheet": stated or None, "share": share})
    return {
        "machine": to_plain(machine),
        "fingerprint": machine.fingerprint,
        "product": product.name if product else "",
        "source": product.source if product else "",
        "unsteady": why,
        "peaks": rows,
    }
