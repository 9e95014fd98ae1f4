"""KernelBench's evaluation in a process of its own, on machines that lack what it imports and never calls there."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["PRELUDE", "evaluate"]

PRELUDE = """
import copy, importlib, json, sys, time, types
sys.path.insert(0, {root!r})
for name in ("openai", "litellm", "dotenv", "requests", "tqdm", "datasets", "tomli", "tomllib", "pydantic"):
    try:
        importlib.import_module(name)
    except ImportError:
        stub = types.ModuleType(name)
        stub.OpenAI = stub.completion = stub.load_dotenv = stub.tqdm = lambda *a, **k: None
        sys.modules[name] = stub
        if name == "pydantic":
            class BaseModel:
                def __init__(self, **values):
                    for field in type(self).__annotations__:
                        default = copy.copy(getattr(type(self), field, None))
                        setattr(self, field, values.get(field, default))
            stub.BaseModel = BaseModel
"""
"""Start of a script: ``{root}`` is the checkout's ``src``."""

_RUNNER = (
    PRELUDE
    + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30, 8 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
given = json.load(open({given!r}))
from kernelbench.eval import eval_kernel_against_ref
from kernelbench.kernel_static_checker import validate_kernel_static
valid, errors, warnings = validate_kernel_static(given["candidate"], backend=given["backend"], precision="fp32")
found = {{"valid": bool(valid), "errors": sorted(errors), "warnings": sorted(warnings)}}
write, flush, dumps, token = sys.stdout.write, sys.stdout.flush, json.dumps, {token!r}
def tell():
    write("\\n" + token + dumps(found) + "\\n")
    flush()
tell()
import torch
cuda = torch.cuda.is_available()
if cuda:
    torch.zeros(1, device="cuda")
result = eval_kernel_against_ref(
    given["problem"], given["candidate"], num_correct_trials=5, num_perf_trials=given["perf_trials"],
    measure_performance=True, backend=given["backend"], device=torch.device("cuda:0") if cuda else "cpu",
)
if result is None:
    found["result"] = None
else:
    found["result"] = {{
        "compiled": bool(result.compiled), "correctness": bool(result.correctness),
        "runtime": float(result.runtime), "ref_runtime": float(result.ref_runtime),
        "metadata": {{str(k): str(v)[:300] for k, v in result.metadata.items()}},
    }}
tell()
"""
)


def evaluate(
    source_root: Path, problem: str, candidate: str, backend: str, *, timeout_s: float, perf_trials: int = 100
) -> dict[str, Any]:
    """What KernelBench makes of a candidate: its static checker first, then 5 trials and its measurement.

    Returns:
        ``valid`` (None: never reached), ``errors`` and ``warnings`` of the static checker; ``result`` of the
        evaluation, None where it asked for another try; ``ended`` where the process gave no result.
    """
    token = f"result-{secrets.token_hex(16)} "
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as scratch:
        given = Path(scratch) / f"{secrets.token_hex(8)}.txt"
        values = {"problem": problem, "candidate": candidate, "backend": backend, "perf_trials": perf_trials}
        given.write_text(json.dumps(values))
        script = Path(scratch) / "theirs.py"
        script.write_text(_RUNNER.format(root=str(source_root), given=str(given), token=token))
        work = Path(scratch) / "work"
        work.mkdir()
        caches = {n: str(work / n.lower()) for n in ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TMPDIR")}
        (work / "tmpdir").mkdir()
        output = Path(scratch) / "output"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, str(script)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=work,
                env=os.environ | caches,
                start_new_session=True,
            )
            ended = _wait(process, timeout_s)
        lines = output.read_text(errors="replace").splitlines()
    told = [json.loads(line.removeprefix(token)) for line in lines if line.startswith(token)]
    found: dict[str, Any] = told[-1] if told else {"valid": None, "errors": [], "warnings": []}
    if "result" not in found:
        found["ended"] = ended
        found["said"] = " | ".join(line for line in lines if not line.startswith(token))[-400:]
    return found


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    """How it ended. Then its whole group is killed, before its number is free to be another's."""
    deadline = time.monotonic() + timeout_s
    ended = None
    while ended is None and time.monotonic() < deadline:
        time.sleep(0.05)
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    if ended is None:
        return f"no answer in {timeout_s:.0f} s"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code} and no result"
