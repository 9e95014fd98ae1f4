"""Stores of several machines as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerneleval.records import OnEvent, UsageError, tell, to_plain


def merge(sources: Sequence[str], *, store_url: str | None = None, on_event: OnEvent | None = None) -> dict[str, Any]:
    """Copy every run of other stores, which are only read, with all that they need, into one store, made where there is
    none; as plain data what came of it.

    Each source is one transaction: after a failure the store holds the sources before it and nothing of the one that
    failed, and the same call goes on. What is there already stays as it is.

    Returns:
        ``store``; ``sources``: a :class:`kerneleval.store.merging.Merged` for each; ``names``: names that several runs
        of the store have -> identifiers, the latest first; ``machines``: number of machines of all merged runs.

    Raises:
        UsageError: no source is given, or one that is no store, of a newer version, or the target itself; a run is in
            both with other contents.
        InfrastructureError: a source is damaged, disk or server fail.
    """
    from kerneleval.store import open_store

    if not sources:
        raise UsageError("no source is given; give the path or URL of a store")
    opened = [open_store(url, create=False, write=False) for url in sources]  # a bad one is named before anything moves
    found = []
    with open_store(store_url) as target:
        for source in opened:

            def told(done: int, total: int, place: str = source.place) -> None:
                tell(on_event, "merge", done, total, place)

            with source:
                found.append(target.merge(source, told))
        names: dict[str, list[str]] = {}
        for info in target.runs():
            names.setdefault(info.name, []).append(info.id)
        place = target.place
    merged = {run.id: run for one in found for run in one.runs}
    return {
        "store": place,
        "sources": [to_plain(one) for one in found],
        "names": {name: ids for name, ids in names.items() if len(ids) > 1 and set(ids) & set(merged)},
        "machines": len({machine.fingerprint for run in merged.values() for machine in run.machines}),
    }
