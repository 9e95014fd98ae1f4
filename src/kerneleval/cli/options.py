"""The options that commands share, and what they become: fields of ``CandidateSpec``, ``RunSpec`` and ``Protocol``.

An option is declared once, in :data:`OPTIONS`; a command names those that it takes in :func:`takes`. Below the command
line only the records travel.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from kerneleval.records import DIRECTIONS, DISTRIBUTIONS, DTYPES, SHAPE_CATEGORIES, TRACKS, UsageError, near

Shapes = StrEnum("Shapes", ["default", "sweep", "real"])
Tier = StrEnum("Tier", ["quick", "standard", "precise"])
Baseline = StrEnum("Baseline", ["eager", "compile"])
Time = StrEnum("Time", ["device", "call"])


def complete_tasks(incomplete: str) -> list[str]:
    """Names of tasks that begin so."""
    from kerneleval import tasks

    return [name for name in tasks.all_tasks() if name.startswith(incomplete)]


def complete_devices(incomplete: str) -> list[str]:
    """Names of devices that begin so."""
    from kerneleval import devices

    return [name for name in devices.names() if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")]
_DEVICE = typer.Option(
    "--device",
    help="Device to judge on; default: the GPU if there is one, else the CPU. [env: KERNELEVAL_DEVICE]",
    autocompletion=complete_devices,
)
_STORE = typer.Option("--store", help="Path or URL of the store; default: ./kerneleval.db. [env: KERNELEVAL_STORE]")
DeviceOption = Annotated[str | None, _DEVICE]
StoreOption = Annotated[str | None, _STORE]
RunsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help="Identifiers or names of runs; default: the latest run.")
]
FileArgument = Annotated[
    str,
    typer.Argument(
        help="The candidate: .py (Triton, Numba, PyTorch), .cpp, .cu, .hip, .metal or .cl; or store:HASH, "
        "one from the store."
    ),
]
TaskOption = Annotated[
    str,
    typer.Option(
        "--task", "-t", help="Name of a task, or path of a KernelBench problem file.", autocompletion=complete_tasks
    ),
]


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


def _case_of(key: str) -> str:
    if not key.strip():
        raise UsageError(
            "--case is empty; give a key such as gelu/forward/M=4,N=7/float32/contiguous/standard, or leave it out"
        )
    return key


def names_of(option: str, given: list[str] | None) -> tuple[str, ...]:
    """The names given, each once or with commas; raises UsageError where the option is given and names nothing."""
    names = tuple(split(given))
    if given and not names:
        raise UsageError(f"{option} is empty; give names, or leave it out for all")
    return names


_PREFIX = "KERNELEVAL_"


class Settings(BaseSettings):
    """What a user sets once for all commands; an empty variable counts as not set, an option wins over its variable."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    store: str | None = None
    """Path or URL of the store; None: ``kerneleval.db`` in the working directory."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    cache_dir: Path = Field(default_factory=lambda: _user_cache() / "kerneleval")
    """Where compiled candidates and noise figures are kept; ``kerneleval`` in the user's cache directory otherwise."""

    @field_validator("cache_dir")
    @classmethod
    def _is_directory(cls, value: Path) -> Path:
        if value.exists() and not value.is_dir():
            raise ValueError("is a file; give a directory")
        return value


def _user_cache() -> Path:
    # The judge has the same rule (judge/windows/worker_pool.py), but importing the judge means importing torch.
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base else Path.home() / ".cache"


def read_settings() -> Settings:
    """The settings of this environment. Raises UsageError that names the variable with the bad value."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        variable = _PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"{variable}={first.get('input')!s}: {reason}") from error


def device_of(given: str | None) -> str | None:
    """The device given, by option or environment; raises UsageError for an unknown one."""
    from kerneleval import devices

    name = given or read_settings().device
    if name is not None:
        devices.find(name)
    return name


def store_of(given: str | None) -> str | None:
    """The store given, by option or environment."""
    return given or read_settings().store


Fields = dict[str, Any]
"""What the options of a command line set: field of a record -> value."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of the command line that fills one field of a record."""

    field: str
    """Field of ``Protocol``, ``CandidateSpec`` or ``RunSpec``."""
    type: Any
    declared: Any
    """Names, help and metavar."""
    default: Any = None
    """Its value where it is not given; None: the record's own default."""
    read: Callable[[Any], Any] = lambda value: value
    """What is given -> the field's value; raises UsageError."""


def restriction(
    name: str, field: str, text: str, known: Iterable[str], short: dict[str, str] | None = None, metavar: str = "NAME"
) -> Option:
    """An option that restricts a choice to known names; it may be repeated and may hold commas."""
    return Option(
        field=field,
        type=list[str] | None,
        declared=typer.Option(name, metavar=metavar, help=text),
        read=lambda given: chosen_of(name, given, known, short) or None,
    )


def _flag(field: str, default: bool, *names: str, text: str) -> Option:
    return Option(field=field, type=bool, declared=typer.Option(*names, help=text), default=default)


def _tier(name: str, text: str) -> Option:
    read: Callable[[bool], str | None] = lambda flag: name if flag else None  # noqa: E731
    return Option(field="tier", type=bool, declared=typer.Option(f"--{name}", help=text), default=False, read=read)


def _choice(field: str, kind: type[StrEnum], text: str) -> Option:
    """One of several words, the first where it is not given."""
    declared, default = typer.Option(help=text), next(iter(kind))
    return Option(field=field, type=kind, declared=declared, default=default, read=lambda one: one.value)


def _text(field: str, text: str) -> Option:
    return Option(field=field, type=str, declared=typer.Option(help=text), default="")


def _number(field: str, kind: type, metavar: str, text: str, *names: str) -> Option:
    return Option(field=field, type=kind | None, declared=typer.Option(*names, metavar=metavar, help=text))


def _names(field: str, text: str, *names: str, complete: Callable[[str], list[str]] | None = None) -> Option:
    declared = typer.Option(*names, help=text, autocompletion=complete)
    return Option(field=field, type=list[str] | None, declared=declared, read=lambda given: tuple(split(given)))


OPTIONS: dict[str, Option] = {
    # Protocol
    "shapes": _choice(
        *("shapes", Shapes),
        "Sizes to judge at. default: sampled sizes; sweep: vary the sizes of a problem file too; "
        "real: sizes of models.",
    ),
    "allow": Option(
        field="allow",
        type=str,
        declared=typer.Option(help="Tracks that may pass: custom, mixed, library."),
        default="custom,mixed",
        read=lambda tracks: chosen_of("--allow", [tracks], TRACKS),
    ),
    "quick": _tier("quick", "Short timing, and fewer cases: wide intervals, some seconds on a GPU."),
    "precise": _tier("precise", "Long timing: intervals of 1 %, from several new processes."),
    "dtype": restriction("--dtype", "dtypes", "Only these dtypes: float32 or fp32, ...", DTYPES, SHORT_DTYPES, "DTYPE"),
    "direction": restriction("--direction", "directions", "Only forward, or only backward.", DIRECTIONS),
    "distribution": restriction(
        "--distribution", "distributions", "Only these distributions of inputs.", DISTRIBUTIONS
    ),
    "category": restriction("--category", "categories", "Only these shape categories.", SHAPE_CATEGORIES),
    "baseline": _choice("baseline", Baseline, "What the candidate's speed is compared with."),
    "timing": _flag("timed", True, text="Time a correct candidate, or judge only whether it is correct."),
    "time": _choice(
        *("time", Time),
        "Which time of a call speedups are of where both are measured. device: that of its work on the device; "
        "call: what calling it costs, with what the host does.",
    ),
    "tf32": _flag("tf32", False, "--tf32", text="Allow TF32 in float32 tasks."),
    "patience": Option(
        field="patience_s",
        type=float | None,
        declared=typer.Option(
            *("--patience",),
            metavar="SECONDS",
            min=1.0,
            max=86400.0,
            help="Seconds for which a candidate's calls together may keep the judge waiting; default: 60.",
        ),
    ),
    "suite_seed": Option(
        field="suite_seed", type=int, declared=typer.Option(min=0, help="Public seed of the sampled sizes."), default=0
    ),
    # CandidateSpec
    "entry": _text("entry", "Name of the entry point; default: found by convention."),
    "backward_entry": _text(
        "backward_entry", "Name of the explicit backward entry point; default: found by convention."
    ),
    "language": _text("language", "Language of the file; default: found from its content."),
    "case": Option(
        field="case",
        type=str | None,
        declared=typer.Option(metavar="KEY", help="Judge only this case; a replay line names its key."),
        read=lambda key: None if key is None else _case_of(key),
    ),
    "fail_fast": _flag("fail_fast", False, "--fail-fast", text="End at the first case that fails."),
    # CandidateSpec and RunSpec
    "device": Option(field="device", type=str | None, declared=_DEVICE, read=device_of),
    "store": Option(field="store_url", type=str | None, declared=_STORE, read=store_of),
    # RunSpec
    "generator": _names(
        "generators", "Name, file or directory of a generator; may be given several times.", "--generator", "-g"
    ),
    "task": _names(
        "tasks",
        "Task to judge; may be given several times; default: the suite of the archetypes.",
        *("--task", "-t"),
        complete=complete_tasks,
    ),
    "resume": _flag("resume", True, text="Continue an unfinished run of the same plan."),
    "name": _text("name", "Name of the run, for people."),
    "target": _number(
        "target", float, "X", "Do not refine a correct draft with a speedup of X or more.", "--target-speedup"
    ),
    "max_usd": _number("max_usd", float, "USD", "Stop asking generators after this much money."),
    "max_tokens": _number("max_tokens", int, "N", "Stop asking generators after N tokens."),
    "max_hours": _number("max_hours", float, "H", "Stop asking and judging after H hours."),
}
"""Parameter of a command -> what it declares and which field it fills."""

CANDIDATE = ("entry", "backward_entry", "language")
"""How a candidate's file is read."""

RESTRICTIONS = ("dtype", "direction", "distribution")
"""Which of the planned cases are judged."""

CAPS = ("max_usd", "max_tokens", "max_hours")
"""What asking generators may cost."""


def takes(
    *names: str, options: Mapping[str, Option] = OPTIONS, **defaults: Any
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a command the options of these names in place of its parameter ``fields``, which gets what they set;
    ``defaults`` are of this command (``...``: it must be given). The command raises UsageError for a bad value, or two
    options given that fill the same field.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name == "fields":
                parameters += [
                    _parameter(name, options[name], defaults.get(name, options[name].default)) for name in names
                ]
            else:
                kind = inspect.Parameter.KEYWORD_ONLY
                parameters.append(parameter.replace(kind=kind, annotation=hints[parameter.name]))

        def run(**given: Any) -> int:
            fields = _fields({name: options[name] for name in names}, given)
            return command(**{name: value for name, value in given.items() if name not in names}, fields=fields)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return decorate


def _parameter(name: str, option: Option, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[option.type, option.declared],
        default=inspect.Parameter.empty if default is ... else default,
    )


def _fields(options: Mapping[str, Option], given: Mapping[str, Any]) -> Fields:
    found: Fields = {}
    by: dict[str, str] = {}
    for name, option in options.items():
        value = option.read(given[name])
        if value is None:
            continue
        if option.field in found:
            raise UsageError(f"--{by[option.field]} and --{name} exclude each other; leave one of them out")
        found[option.field], by[option.field] = value, name
    return found
