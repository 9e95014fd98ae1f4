"""Commands on the machine: what it can do at best, and what is missing."""

from __future__ import annotations

from typing import Annotated

import typer

from kerneleval.cli.options import DeviceOption, Json, StoreOption, device_of, read_settings, store_of
from kerneleval.cli.output import FAILED, PASSED, progress, show


def peaks(
    device: DeviceOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure all peaks again.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the peaks of this machine.

    Shows bandwidth and operations per second, next to the figures of the data sheet.
    """
    kind = device_of(device)
    from kerneleval import pipeline
    from kerneleval.reports import machine_view

    with progress(lines=not as_json) as on_event:
        found = pipeline.peaks(device=kind, again=measure, on_event=on_event)
    return show(found, as_json, machine_view.render_peaks)


def doctor(store: StoreOption = None, as_json: Json = False) -> int:
    """Check this machine, and say what to install.

    Looks at devices, languages, sandbox, clock and store.
    """
    from kerneleval.pipeline import doctor as report
    from kerneleval.reports import machine_view

    found = report.examine(store_of(store), read_settings().cache_dir)
    show(found, as_json, machine_view.render_doctor)
    return PASSED if found["usable"] else FAILED
