"""Loads candidates under a guard, each in a process of its own, and prints what the guards told: JSON lines."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from kerneleval.worker.guarding import Guard

# stands for the worker's code that calls the candidate
CALLER: dict = {"__name__": "kerneleval.worker.caller"}
exec("def call(function):\n    return function()", CALLER)


def told(source: str) -> list[dict[str, str]]:
    folder = Path(tempfile.mkdtemp())
    (folder / "candidate.py").write_text(source)
    guard = Guard(folder)
    spec = importlib.util.spec_from_file_location("candidate", folder / "candidate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    guard.claims([])
    guard.when = "call"
    if hasattr(module, "run"):
        CALLER["call"](module.run)
    return guard.claims([])


def main() -> None:
    import torch  # noqa: F401 - before the forks, as in a zygote

    for name, source in json.load(sys.stdin).items():
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                text = json.dumps({"name": name, "told": told(source)})
                os.write(1, (text + "\n").encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os.kill(os.getpid(), 9) if code == 0 else os.abort()
        os.waitpid(child, 0)


main()
