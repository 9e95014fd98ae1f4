"""The options that commands share: their types, and how what is given becomes what the pipeline takes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from kerneleval.cli import settings
from kerneleval.records import UsageError, near

__all__ = [
    "SHORT_DTYPES",
    "AllowOption",
    "Baseline",
    "BaselineOption",
    "DeviceOption",
    "DirectionOption",
    "DistributionOption",
    "DtypeOption",
    "Json",
    "Precise",
    "Quick",
    "RunsArgument",
    "Shapes",
    "ShapesOption",
    "StoreOption",
    "Tier",
    "case_of",
    "chosen_of",
    "complete_devices",
    "complete_tasks",
    "device_of",
    "names_of",
    "split",
    "store_of",
    "tier_of",
]


class Shapes(StrEnum):
    """Which sizes a candidate is judged at."""

    default = "default"
    sweep = "sweep"
    real = "real"


class Tier(StrEnum):
    """How much is timed."""

    quick = "quick"
    standard = "standard"
    precise = "precise"


class Baseline(StrEnum):
    """What speedup is measured against."""

    eager = "eager"
    compile = "compile"


def complete_tasks(incomplete: str) -> list[str]:
    """Names of tasks that begin so."""
    from kerneleval import tasks

    return [name for name in tasks.all_tasks() if name.startswith(incomplete)]


def complete_devices(incomplete: str) -> list[str]:
    """Names of devices that begin so."""
    from kerneleval import devices

    return [name for name in devices.names() if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="Device kind; the GPU where there is one, else the CPU. [env: KERNELEVAL_DEVICE]",
        autocompletion=complete_devices,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Path or URL of the store; ./kerneleval.db by default. [env: KERNELEVAL_STORE]"),
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Identifiers or names; the latest run otherwise. Several merge machines."),
]
AllowOption = Annotated[str, typer.Option(help="Tracks that may pass: custom, mixed, library.")]
DtypeOption = Annotated[list[str] | None, typer.Option(metavar="DTYPE", help="Only these dtypes: float32 or fp32 ...")]
DirectionOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only forward, or only backward.")]
DistributionOption = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these input distributions.")]
ShapesOption = Annotated[
    Shapes,
    typer.Option(
        help="'sweep' varies a problem file's own sizes too; 'real': the shapes of models instead of sampled."
    ),
]
BaselineOption = Annotated[Baseline, typer.Option(help="What speedup is measured against.")]
Quick = Annotated[bool, typer.Option("--quick", help="A verdict in about a second, with wide intervals.")]
Precise = Annotated[bool, typer.Option("--precise", help="Intervals of 1 %, from several fresh processes.")]


# --------------------------------------------------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------------------------------------------------

SHORT_DTYPES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip
"""Names that people give dtypes."""


def split(values: Iterable[str] | None) -> list[str]:
    """The entries of options that may be repeated and may hold commas."""
    return [part.strip() for value in values or () for part in value.split(",") if part.strip()]


def chosen_of(
    option: str, values: Iterable[str] | None, known: Iterable[str], short: dict[str, str] | None = None
) -> tuple[str, ...]:
    """What an option that may be repeated names, in full; raises UsageError for an unknown name or an empty list."""
    known = tuple(known)
    chosen = dict.fromkeys((short or {}).get(part, part) for part in split(values))
    for part in chosen:
        if part not in known:
            raise UsageError(f"{option} {part!r} is unknown; {near(part, known)}")
    if values and not chosen:
        raise UsageError(f"{option} is empty; known are {', '.join(known)}")
    return tuple(chosen)


def case_of(key: str | None) -> str:
    """The key of the one case asked for; empty: none was."""
    if key is not None and not key.strip():
        raise UsageError(
            "--case is empty; give a key such as gelu/forward/M=4,N=7/float32/contiguous/standard, or leave it out"
        )
    return key or ""


def tier_of(quick: bool, precise: bool) -> str:
    """The tier that the two flags mean."""
    if quick and precise:
        raise UsageError("--quick and --precise exclude each other")
    return "quick" if quick else "precise" if precise else "standard"


def names_of(option: str, given: list[str] | None) -> tuple[str, ...]:
    """The names given, each once or with commas; raises UsageError where the option is given and names nothing."""
    names = tuple(split(given))
    if given and not names:
        raise UsageError(f"{option} is empty; give names, or leave it out for all")
    return names


def device_of(given: str | None) -> str | None:
    """The device given, by option or environment; raises UsageError for an unknown one."""
    from kerneleval import devices

    name = given or settings.read().device
    if name is not None:
        devices.find(name)
    return name


def store_of(given: str | None) -> str | None:
    """The store given, by option or environment."""
    return given or settings.read().store
