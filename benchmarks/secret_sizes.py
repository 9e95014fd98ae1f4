"""How often a defect that is confined to a region of large sizes escapes the cases of a verdict, by drawing them.

A region: both of two dims reach a size, one of them a larger one, under some layouts and distributions. Printed for the
quick and the standard tier, with the plan and the secret cases of so many verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.report import Report, parser
from kerneleval import devices, tasks
from kerneleval.judge.judge import budget_of
from kerneleval.judge.probes.cells import TWO_LARGE
from kerneleval.records import Case, Protocol
from kerneleval.tasks import shapes
from kerneleval.tasks.secret_sizes import secret_cases


@dataclass(frozen=True)
class Region:
    """Where a kernel is wrong."""

    name: str
    inside: Callable[[Case], bool]


REGIONS = (
    Region("any data, any layout", lambda case: True),
    Region("large inputs", lambda case: case.distribution == "large_scale"),
    Region("small inputs", lambda case: case.distribution == "small_scale"),
    Region("strided", lambda case: case.layout != "contiguous"),
    Region("transposed", lambda case: case.layout == "transposed"),
    Region("large inputs, transposed", lambda case: (case.distribution, case.layout) == ("large_scale", "transposed")),
)


def large(case: Case, task: str, least: int, longest: int) -> bool:
    """Whether two scaled dims are large."""
    sizes = sorted((case.dims_map[dim.name] for dim in tasks.find(task).dims if dim.scaled), reverse=True)
    return len(sizes) > 1 and sizes[0] >= longest and sizes[1] >= least


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--verdicts", type=int, default=500)
    made.add_argument("--tasks", default="gelu,softmax,matmul")
    made.add_argument("--least", type=int, default=300, help="the smaller of two large sides, at least")
    made.add_argument("--longest", type=int, default=1100, help="the larger one, at least")
    options = made.parse_args()
    device = devices.find(options.device) if options.device else devices.default()
    report = Report("secret_sizes", device.machine(), options.out)
    rows = []
    for name in options.tasks.split(","):
        task = tasks.find(name)
        for tier in ("quick", "standard"):
            protocol = Protocol(tier=tier, directions=("forward",), dtypes=("float32",))
            budget = budget_of(device, task, protocol)
            planned = shapes.plan(task, protocol, budget)
            escaped = dict.fromkeys(REGIONS, 0)
            for _ in range(options.verdicts):
                cases = (*planned, *secret_cases(task, planned, budget, large=TWO_LARGE[tier]))
                met = [case for case in cases if large(case, name, options.least, options.longest)]
                for region in REGIONS:
                    escaped[region] += not any(map(region.inside, met))
            rows.append((name, tier, *(f"{escaped[region] / options.verdicts:.3f}" for region in REGIONS)))
    report.table(("task", "tier", *(region.name for region in REGIONS)), rows)
    report.data = {"rows": rows}
    report.write()


if __name__ == "__main__":
    main()
