"""Counts the files and functions that one verdict runs through in the judge's process.

    python scripts/spine.py [CANDIDATE [TASK]] [--list]

Without arguments: the gelu of the archetype ``baseline``, quick tier, on the CPU. Small shapes alone are judged: larger
ones run through the same files. A file counts if at least one of its functions ran; what runs while a module is
imported does not count, nor do lambdas and comprehensions. The worker's process is not seen: it has another
interpreter. The cache is empty, so the noise of the device is measured and its self-check runs, on any machine.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import os
import sys
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1] / "src" / "kerneleval"

GELU = "import torch\n\n\ndef gelu(x):\n    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))\n"


def main() -> int:
    """Judge once under a profiler and print what ran; the exit code is the verdict's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("candidate", nargs="?", help="file to judge; without it: a gelu in plain PyTorch")
    parser.add_argument("task", nargs="?", default="gelu")
    parser.add_argument("--list", action="store_true", help="every file with the number of its functions that ran")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELEVAL_CACHE_DIR"] = folder  # what the machine has in its own changes what runs
        candidate = given.candidate or str(Path(folder) / "gelu.py")
        if given.candidate is None:
            Path(candidate).write_text(GELU)
        words = ["check", candidate, "--task", given.task, "--quick", "--device", "cpu", "--json", "--allow", "library"]
        words += ["--category", "small"]
        code, seen = _profiled(words)
    by_file: dict[str, set[str]] = collections.defaultdict(set)
    for one in seen:
        path = Path(one.co_filename)
        by_file[str(path.relative_to(ROOT))].add(one.co_qualname)
    if given.list:
        for file, functions in sorted(by_file.items()):
            print(f"{len(functions):4}  {file}")
    functions = sum(map(len, by_file.values()))
    print(f"{len(by_file)} files, {functions} functions of the judge's process ran; the verdict's exit code is {code}")
    return code


def _counts(frame: FrameType) -> bool:
    """Whether a frame is a function of this package, neither a class body nor called while a module is imported."""
    code = frame.f_code
    if not code.co_filename.startswith(str(ROOT)) or code.co_name.startswith("<") or not code.co_flags & CO_OPTIMIZED:
        return False
    outer: FrameType | None = frame
    while (outer := outer.f_back if outer else None) is not None:
        if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(str(ROOT)):
            return False
    return True


def _profiled(words: list[str]) -> tuple[int, set[CodeType]]:
    """The exit code of the command, and the code objects that ran in any thread of this process."""
    from kerneleval.__main__ import main as command

    seen: set[CodeType] = set()
    known: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in known:
            known.add(frame.f_code)
            if frame.f_code.co_name == "measure_noise":
                frame.f_globals["_SESSIONS"] = min(1, frame.f_globals["_SESSIONS"])  # all go through the same files
            if _counts(frame):
                seen.add(frame.f_code)

    sys.argv = ["kerneleval", *words]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            code = command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return code if isinstance(code, int) else 0, seen


if __name__ == "__main__":
    raise SystemExit(main())
