"""Commands on the machine: what it can do at best, and what is missing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kerneleval.cli import settings
from kerneleval.cli.exits import FAILED, PASSED
from kerneleval.cli.options import DeviceOption, Json, StoreOption, device_of, store_of
from kerneleval.cli.output import console, print_json, progress


def peaks(
    device: DeviceOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure all peaks again.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the peaks of this machine.

    Shows bandwidth and operations per second, next to the figures of the data sheet.
    """
    options: dict[str, Any] = {"device": device_of(device), "again": measure}
    from kerneleval import pipeline
    from kerneleval.reports import peaks_view

    with progress(lines=not as_json) as on_event:
        found = pipeline.peaks(**options, on_event=on_event)
    print_json(found) if as_json else peaks_view.render_peaks(found, console())
    return PASSED


def doctor(store: StoreOption = None, as_json: Json = False) -> int:
    """Check this machine, and say what to install.

    Looks at devices, languages, sandbox, clock and store.
    """
    from kerneleval.pipeline import doctor as report
    from kerneleval.reports import doctor_view

    found = report.examine(store_of(store), settings.read().cache_dir)
    print_json(found) if as_json else doctor_view.render(found, console())
    return PASSED if found["usable"] else FAILED
