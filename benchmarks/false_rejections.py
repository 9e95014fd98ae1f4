"""How often right answers lie beyond their bounds: other algebra for every operator, in process, thousands of calls.

The judge's own inputs, expectations and comparison, at every case of plans with other public seeds and at other values
of the plain arguments; the forms are those of ``benchmarks/right_forms.py``. What a window looks at besides (copies,
caches, clocks) is not part of it. A rejection here is one that an honest kernel would meet.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy import stats

from benchmarks.report import Report, parser
from benchmarks.right_forms import FORMS, STEPS, Form
from kerneleval import devices, tasks
from kerneleval.devices import Device
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.reference_call import precision
from kerneleval.judge.probes.calls import BoundCase, Drawn, other_scalars
from kerneleval.records import Case, Protocol, Task, new_secret
from kerneleval.tasks import sampling, shapes

_CATEGORIES = ("tiny", "small", "power_of_two", "non_power_of_two", "rectangular")
_SHOWN = 3
"""Rejections that are told in full for each operator."""


@dataclass
class _Tally:
    calls: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tasks", default="", help="comma separated; empty: all")
    made.add_argument("--seconds", type=float, default=600.0, help="for all tasks together")
    made.add_argument("--kib", type=int, default=1024, help="most that the arguments and outputs of a case take")
    options = made.parse_args()
    device = devices.find(options.device) if options.device else devices.default()
    names = [n for n in options.tasks.split(",") if n] or list(tasks.CORE)
    report = Report("false_rejections", device.machine(), options.out)
    budget = shapes.Budget(memory_bytes=options.kib << 10, flops=device.case_budget()[1])
    tallies: dict[str, _Tally] = {}
    for name in names:
        tally = tallies[name] = _Tally()
        _measure(tasks.find(name), device, budget, tally, time.monotonic() + options.seconds / len(names))
        _tell(report, name, tally)
        report.data = {"tasks": {n: {"calls": t.calls, "rejected": t.rejected} for n, t in tallies.items()}}
        report.write()
    calls, rejected = (sum(sum(c.values()) for c in kind) for kind in zip(*_counts(tallies), strict=True))
    most = stats.binomtest(rejected, calls).proportion_ci(0.95, "exact").high
    report.say("", f"{rejected} of {calls} right calls rejected: at most 1 in {1 / most:,.0f} (95 %, Clopper-Pearson)")
    report.write()


def _counts(tallies: dict[str, _Tally]) -> list[tuple[Counter[str], Counter[str]]]:
    return [(t.calls, t.rejected) for t in tallies.values()]


def _measure(task: Task, device: Device, budget: shapes.Budget, tally: _Tally, until: float) -> None:
    """Every form of a task at plan after plan, until the time is up; at least one plan's first case."""
    for case, larger in _cases(task, budget):
        bound = BoundCase(task, case, device, tf32=False, scalars=_scalars(task, case, larger))
        drawn = bound.draw(new_secret())
        for label, form, widened in _forms(task, case):
            with precision(tf32=False):
                outputs = _run(form, bound, drawn, widened)
            found = compare(outputs, drawn.expectation)
            key = f"{case.direction} {case.dtype} {label}"
            tally.calls[key] += 1
            if isinstance(found, Mismatch):
                tally.rejected[key] += 1
                others = "".join(f" {n}={v:g}" for n, v in _plain(bound).items())
                tally.told.append(f"{key}: {case.key}{others}: {found.message}")
        if time.monotonic() > until:
            return


def _cases(task: Task, budget: shapes.Budget) -> Iterator[tuple[Case, bool | None]]:
    """Cases of plans with other and other seeds, each with the task's plain arguments and with others."""
    known = tuple(c for c in _CATEGORIES if sampling.exists(task, c))
    for seed in itertools.count(1):
        protocol = Protocol(categories=known, suite_seed=seed, tier="quick")
        for number, case in enumerate(shapes.plan(task, protocol, budget)):
            yield case, (None, True, None, False)[(number + seed) % 4]


def _scalars(task: Task, case: Case, larger: bool | None) -> dict[str, float]:
    return {} if larger is None else other_scalars(task, case, larger=larger)


def _plain(bound: BoundCase) -> dict[str, float]:
    values = {s.name: getattr(s, "value", None) for s in bound.specs}
    return {name: value for name, value in values.items() if isinstance(value, float)}


def _forms(task: Task, case: Case) -> Iterator[tuple[str, Form, bool]]:
    """(label, form, whether its arguments are widened)."""
    half = case.dtype in ("float16", "bfloat16")
    yield "reference", task.reference, half  # in half types: PyTorch's own, in fp32
    for number, form in enumerate(FORMS[task.name]):
        yield f"form {number}", form, half
    for number, form in enumerate(STEPS.get(task.name, ()) if half else ()):
        yield f"steps {number}", form, False


def _run(form: Form, bound: BoundCase, drawn: Drawn, widened: bool) -> list[torch.Tensor]:
    """Outputs or gradients, in the case's dtype."""
    args: list[Any] = [a.clone() if isinstance(a, torch.Tensor) else a for a in drawn.args]
    leaves = [args[i].requires_grad_() for i in bound.wanted]
    given = [
        a.float() if widened and isinstance(a, torch.Tensor) and a.is_floating_point() and a.dtype.itemsize < 4 else a
        for a in args
    ]
    with torch.set_grad_enabled(bool(leaves)):
        made = form(*given)
        outputs = [made] if isinstance(made, torch.Tensor) else list(made)
        wanted = [e.native.dtype for e in drawn.expectation.outputs]
        if not leaves:
            return [o.to(dtype) for o, dtype in zip(outputs, wanted, strict=True)]
        rounded = [o.to(g.dtype) for o, g in zip(outputs, drawn.grads, strict=True)]
        return list(torch.autograd.grad(rounded, leaves, drawn.grads))


def _tell(report: Report, name: str, tally: _Tally) -> None:
    calls, rejected = sum(tally.calls.values()), sum(tally.rejected.values())
    report.say(f"{name:24} {calls:6} calls  {rejected:4} rejected")
    for key in sorted(tally.rejected):
        report.say(f"    {tally.rejected[key]} of {tally.calls[key]}  {key}")
    for line in tally.told[:_SHOWN]:
        report.say(f"    {line}")


if __name__ == "__main__":
    main()
