"""The corpus of attacks and honest patterns before KernelBench's own judge and before this one, side by side.

    python -m benchmarks.kernelbench_attacks --repo PATH [--jobs 6] [--only caching] [--ours results/attacks-...json]

``PATH`` is a checkout of KernelBench. Each operator specimen of ``tests/attacks`` that runs on a CUDA device becomes a
pair of a problem and a ``ModelNew`` (``benchmarks/kernelbench_pairs.py``); KernelBench's static checker reads it, and
its ``eval_kernel_against_ref`` judges it with 5 trials and its measurement, in a process of its own. Then the same
specimen is judged here, as ``python -m tests.attacks`` does, or that program's result file is read (``--ours``).
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from benchmarks.kernelbench_pairs import NotTranslated, Pair, translate
from benchmarks.kernelbench_process import evaluate
from benchmarks.report import Report, parser
from kerneleval.judge import Judge

_BUILDS_TIMEOUT_S = 300.0
"""For those that ``load_inline`` compiles: PyTorch's headers alone take a minute or more."""
_MISSING_KERNEL = ("Missing ", "No ")
_NOT_JUDGED = "not judged"


def main() -> int:
    """Run it."""
    options = _arguments()
    started = time.monotonic()
    specimens = collect("cuda", options.only)
    theirs = _theirs(specimens, options)
    ours: dict[str, tuple[str, str, bool | None]] = {}
    with Judge(options.device) as judge:
        if options.ours:
            ours = _read_ours(options.ours, specimens)
        else:
            ours = _ours(judge, specimens, started, options.seconds)
        report = Report("kernelbench_attacks", judge.machine, options.out)
        rows = [_row(s, theirs[s.name], ours.get(s.name, (_NOT_JUDGED, "", None))) for s in specimens]
        report.table(_HEAD, [[row[name] for name in _HEAD] for row in rows])
        elsewhere = [s for s in collect("cpu", options.only) if s.device == "cpu"]
        names = ", ".join(s.name for s in elsewhere)
        report.say(
            "The specimens were written against this judge: those that look for its files, frames or processes find "
            "nothing of the kind at KernelBench's, and give something wrong instead.",
            f"For the CPU alone, which KernelBench does not judge: {names or 'none'}",
            "",
        )
        report.say(*_totals(rows))
        report.data = {"rows": rows, "details": _without_folders(theirs), "for_the_cpu": [s.name for s in elsewhere]}
        report.write()
    return 0


def _arguments() -> argparse.Namespace:
    made = parser((__doc__ or "").split("\n", maxsplit=1)[0])
    made.add_argument("--repo", type=Path, default=os.environ.get("KERNELBENCH"), help="checkout of KernelBench")
    made.add_argument("--jobs", type=int, default=6, help="KernelBench's processes side by side")
    made.add_argument("--timeout", type=float, default=90.0, help="seconds that KernelBench gets for a specimen")
    made.add_argument("--only", default="", help="only this folder of tests/attacks")
    made.add_argument("--category", default="power_of_two", help="shape category of the one size")
    made.add_argument("--ours", type=Path, default=None, help="result of tests.attacks: do not judge them again")
    made.add_argument("--seconds", type=float, default=1e9, help="stop beginning new specimens after this long")
    options = made.parse_args()
    if not options.repo or not (Path(options.repo) / "src" / "kernelbench" / "eval.py").is_file():
        made.error(f"--repo {options.repo}: no checkout of KernelBench with src/kernelbench/eval.py")
    if not torch.cuda.is_available():
        made.error("KernelBench judges on CUDA devices alone, and PyTorch finds none here")
    return options


# --------------------------------------------------------------------------------------------------------------------
# KernelBench
# --------------------------------------------------------------------------------------------------------------------


def _theirs(specimens: list[Specimen], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What KernelBench says of each: ``verdict``, ``why``, ``static`` and what it told in full."""
    started = time.monotonic()

    def one(specimen: Specimen) -> dict[str, Any]:
        try:
            pair = translate(specimen, options.category)
        except NotTranslated as why:
            return {"verdict": _NOT_JUDGED, "why": str(why), "static": "", "static_errors": []}
        lacking = _lacking(pair)
        if lacking or time.monotonic() - started > options.seconds:
            why = f"{', '.join(lacking)} not found here" if lacking else "no time left"
            return {"verdict": "not run", "why": why, "static": "", "static_errors": []}
        begun = time.monotonic()
        timeout_s = max(options.timeout, _BUILDS_TIMEOUT_S) if pair.needs else options.timeout
        found = evaluate(Path(options.repo) / "src", pair.problem, pair.candidate, pair.backend, timeout_s=timeout_s)
        made = reading(found) | {"seconds": round(time.monotonic() - begun, 1), "told": found}
        print(specimen.name, made["verdict"], made["why"], made["static"], made["seconds"], flush=True)
        return made

    with ThreadPoolExecutor(options.jobs) as pool:
        return dict(zip((s.name for s in specimens), pool.map(one, specimens), strict=True))


def _lacking(pair: Pair) -> list[str]:
    def there(name: str) -> bool:
        cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        return bool(shutil.which(name) or shutil.which(name, path=f"{cuda}/bin") or importlib.util.find_spec(name))

    return [name for name in pair.needs if not there(name)]


def reading(found: dict[str, Any]) -> dict[str, Any]:
    """``verdict`` (accepted or rejected), ``why`` and ``static`` from what a process of KernelBench told."""
    errors = list(found["errors"])
    static = "never reached" if found["valid"] is None else "; ".join(errors) or "valid"
    base = {"static": static, "static_errors": errors}
    if "result" not in found:
        last = found.get("said", "").split(" | ")[-1][-120:]
        return base | {"verdict": "rejected", "why": f"{found['ended']}: {last}".rstrip(": ")}
    result = found["result"]
    if result is None:
        return base | {"verdict": "rejected", "why": "it asks for another try (lock file)"}
    told = result["metadata"]
    if not result["compiled"]:
        return base | {"verdict": "rejected", "why": f"does not load: {told.get('compilation_error', '')[:120]}"}
    if not result["correctness"]:
        issue = told.get("correctness_issue") or told.get("runtime_error") or told.get("runtime_error_name", "")
        trials = told.get("correctness_trials", "")
        return base | {"verdict": "rejected", "why": f"{issue[:120]} {trials}".strip()}
    why = "correct"
    if result["runtime"] > 0 and result["ref_runtime"] > 0:
        why += f", speedup {result['ref_runtime'] / result['runtime']:.2f}"
    if told.get("excessive_speedup"):
        why += ", flagged as excessive"
    if told.get("error_during_performance"):
        why += f", not measured: {told['error_during_performance'][:80]}"
    return base | {"verdict": "accepted", "why": why}


# --------------------------------------------------------------------------------------------------------------------
# This judge
# --------------------------------------------------------------------------------------------------------------------


def _without_folders(told: Any) -> Any:
    """The same with the files of tracebacks by their names alone: where they lie is this machine's affair."""
    if isinstance(told, dict):
        return {name: _without_folders(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_without_folders(value) for value in told]
    return re.sub(r"(?<![\w.])/(?:[^/\s\"']+/)+", "", told) if isinstance(told, str) else told


def _ours(
    judge: Judge, specimens: list[Specimen], started: float, seconds: float
) -> dict[str, tuple[str, str, bool | None]]:
    """(verdict, reason, whether it got its due) of each."""
    found: dict[str, tuple[str, str, bool | None]] = {}
    for specimen in specimens:
        if time.monotonic() - started > seconds:
            found[specimen.name] = ("not run", "no time left", None)
            continue
        verdict = judged(judge, specimen)
        found[specimen.name] = (verdict.verdict, verdict.reason, got_its_due(specimen, verdict))
        print(specimen.name, *found[specimen.name], flush=True)
    return found


def _read_ours(path: Path, specimens: list[Specimen]) -> dict[str, tuple[str, str, bool | None]]:
    """The same from a result of ``tests.attacks``; of several judgements of one specimen the first that was off."""
    due = {s.name: s for s in specimens}
    found: dict[str, tuple[str, str, bool | None]] = {}
    for _, name, verdict, stage, reason, *_ in json.loads(path.read_text())["rows"]:
        specimen = due.get(name)
        if specimen is None or found.get(name, ("", "", True))[2] is False:
            continue
        right = verdict == specimen.verdict and (
            verdict == "passed" or (stage in specimen.stages and reason in specimen.reasons)
        )
        found[name] = (verdict, reason, right)
    return found


# --------------------------------------------------------------------------------------------------------------------
# Side by side
# --------------------------------------------------------------------------------------------------------------------

_HEAD = ("class", "specimen", "is", "KernelBench", "why", "static checker", "ours", "reason", "as due")


def _row(specimen: Specimen, theirs: dict[str, Any], ours: tuple[str, str, bool | None]) -> dict[str, Any]:
    return {
        "class": specimen.kind,
        "specimen": specimen.name,
        "is": "honest" if specimen.verdict == "passed" else "attack",
        "KernelBench": theirs["verdict"],
        "why": theirs["why"],
        "static checker": theirs["static"],
        "static_errors": theirs["static_errors"],
        "ours": ours[0],
        "reason": ours[1],
        "as due": {True: "yes", False: "NO", None: ""}[ours[2]],
    }


def _totals(rows: list[dict[str, Any]]) -> list[str]:
    """Counts over what both judged."""
    lines = []
    for kind in ("attack", "honest"):
        both = [
            r for r in rows
            if r["is"] == kind and r["KernelBench"] in ("accepted", "rejected") and r["ours"] in ("passed", "failed")
        ]  # fmt: skip
        accepted = [r for r in both if r["KernelBench"] == "accepted"]
        unread = [r for r in accepted if all(e.startswith(_MISSING_KERNEL) for e in r["static_errors"])]
        valid = [r for r in accepted if not r["static_errors"]]
        passed = [r for r in both if r["ours"] == "passed"]
        lines.append(
            f"{kind}: {len(both)} specimens of {len({r['class'] for r in both})} classes judged by both. "
            f"KernelBench's evaluation accepts {len(accepted)}; of these its static checker objects to "
            f"{len(accepted) - len(valid)}, to {len(accepted) - len(unread)} for more than that there is no kernel of "
            f"the backend in the file. Ours passes {len(passed)}."
        )
        if kind == "attack":
            lines.append(f"  accepted there: {', '.join(r['specimen'] for r in accepted) or 'none'}")
            lines.append(f"  passed here: {', '.join(r['specimen'] for r in passed) or 'none'}")
        else:
            lines.append(f"  rejected there: {', '.join(r['specimen'] for r in both if r not in accepted) or 'none'}")
            lines.append(f"  failed here: {', '.join(r['specimen'] for r in both if r not in passed) or 'none'}")
    left = collections.Counter(r["KernelBench"] for r in rows)
    lines.append(f"KernelBench: {', '.join(f'{n} {what}' for what, n in sorted(left.items()))}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
