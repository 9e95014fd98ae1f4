"""Results that others published, as a store takes them: a machine, a protocol, planned attempts and their verdicts.

Nothing of them was judged here. So the device is ``published``, trust is ``weak``, every claim of speed is
``inconclusive``, and each verdict carries a warning that says so. See ``docs/published.md``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kerneleval.analysis.formats.common.published import NOISE, NOT_JUDGED, Published, clean
from kerneleval.analysis.formats.common.registry import FORMATS, PublishedFiles
from kerneleval.store import NewRun

if TYPE_CHECKING:
    from kerneleval.store.store import Store

__all__ = ["FORMATS", "NOISE", "NOT_JUDGED", "Published", "load", "put"]


def load(
    path: str | os.PathLike[str],
    *,
    file_format: str = "kernelbench",
    baseline: str | os.PathLike[str] | None = None,
    solutions: str | os.PathLike[str] | None = None,
    name: str = "",
    hardware: str = "",
    level: int | None = None,
) -> Published:
    """Read what others published.

    Args:
        path: an ``eval_results.json`` of KernelBench, or a ``.jsonl`` of KernelBench-X's corpus.
        file_format: the name of a format, a module of ``analysis/formats``.
        baseline: of KernelBench: the times of the reference, ``baseline_time_torch.json``; None: those taken with each
            sample, if any.
        solutions: of KernelBench: folder with the sources, ``level_L_problem_P_sample_S_kernel.py``; None: none.
        name: name of run and generator; empty: the results' folder or file, or ``KernelBench-X``.
        hardware: name of the device, where the files don't state it.
        level: KernelBench's level; None: the only one that the baseline has.

    Raises:
        UsageError: an unknown format, a file that is none, options that the format has not, a level that is not given,
            or hardware that differs from what the files state.
    """
    return FORMATS.find(file_format)(
        PublishedFiles(
            path=Path(path),
            baseline=None if baseline is None else Path(baseline),
            solutions=None if solutions is None else Path(solutions),
            name=clean(name, 200),
            hardware=hardware,
            level=level,
        )
    )


def put(store: Store, published: Published) -> tuple[str, bool]:
    """Store it as a run; (identifier, whether anything was written).

    A complete run of the same name, machine and protocol with the same attempts and candidates is left as it is and
    its identifier given; an interrupted one goes on.

    Raises:
        UsageError: the store can't take it.
    """
    of = published
    wanted = {(p.generator, p.sample, p.task, p.candidate.hash if p.candidate else "") for p in of.planned}
    where = (of.name, (of.machine,), of.protocol)
    for info in store.runs():
        alike = where == (info.name, info.machines, info.protocol) and info.complete and not info.audit
        if alike and wanted == {(a.generator, a.sample, a.task, a.candidate) for a in store.attempts(info.id)}:
            return info.id, False
    run = store.begin_run(
        NewRun(
            name=of.name,
            generators=of.generators,
            machines=(of.machine,),
            protocol=of.protocol,
            plan=of.planned,
        ),
        resume=True,
    )
    for planned, verdict in zip(of.planned, of.verdicts, strict=True):
        store.put_verdict(run, planned.generator, planned.sample, planned.candidate, verdict)
    return run, True
