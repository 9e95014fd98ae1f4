"""What this machine can do at best: every peak measured now, beside the vendor's figures."""

from __future__ import annotations

import time

from benchmarks.report import Report, parser
from kerneleval import pipeline
from kerneleval.judge import Judge


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "").parse_args()
    with Judge(options.device) as judge:
        report = Report("peaks", judge.machine, options.out)
        before, began = judge.device.conditions(), time.monotonic()
        found = pipeline.peaks(judge=judge, again=True)
        seconds = time.monotonic() - began
        after = judge.device.conditions()
    rows = []
    for peak in found["peaks"]:
        unit, share, stated = peak["unit"], peak["share"], peak["datasheet"]
        if peak["why_not"]:
            rows.append((peak["name"], "not available", "", "", "", "", peak["why_not"]))
            continue
        figures = (_rate(peak["best"], unit), f"{peak['median'] / peak['best']:.3f}", peak["n"])
        beside = (_rate(stated, unit), f"{share:.3f}") if stated else ("", "")
        rows.append((peak["name"], *figures, *beside, peak["how"]))
    report.table(("peak", "best", "median / best", "n", "data sheet", "share", "measured by"), rows)
    report.say(f"data sheet: {found['product']} ({found['source']})" if found["product"] else "no data sheet is known")
    report.say(f"took {seconds:.0f} s; unsteady: {found['unsteady'] or 'no'}")
    report.say(f"conditions before: {before}", f"conditions after: {after}")
    report.data = found | {"seconds": seconds, "before": before, "after": after}
    report.write()


def _rate(value: float, unit: str) -> str:
    """In 10^12 a second, so that columns can be compared."""
    return f"{value / 1e12:.4g} T{unit}"


if __name__ == "__main__":
    main()
