"""KernelBench problems as tasks, unchanged: a Python file with ``Model``, ``get_inputs`` and ``get_init_inputs``.

What is ours and not KernelBench's: inputs are drawn on the device, integers stay integers, weights are handed over by
state_dict and changed between checks, the oracle is the same module in fp64, and a sweep judges other sizes as well.
``docs/kernelbench.md`` says all of it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kerneleval.records import Dim, Finding, Scalar, Task, TensorSpec, Tolerance, UsageError
from kerneleval.tasks.formats.distributions import Safe, safe_distributions
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ITEMS, ProblemFile
from kerneleval.tasks.formats.survey import init_arguments
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import own_dims, variants

_OUTLIER_RMS = 2.0
"""Where sizes differ within a tensor, convolutions that are stable in the norm alone are further off than the floor
allows: those that PyTorch takes from NNPACK by up to 1.23 times, over KernelBench's problems made small. Without NNPACK
none is."""

_DECAYS_RMS = 4.0
"""Where an argument holds decays: Mamba-2 in chunks of 64 steps, whose running sums of logarithms reach 50 and more,
was off by up to 1.7 times the bound on the file's own inputs."""

_LAYOUTS = ("contiguous", "transposed", "sliced", "offset")
"""Of a sweep, where the reference takes them; inputs along a stride of 0 would be other values."""


def read(path: str | Path, sweep: bool = False, suite_seed: int = 0) -> Task:
    """A KernelBench problem as a task, whose name holds eight digits of the content's hash, so that results of two
    files of one name never mix. Candidates are classes ``ModelNew``; ``build(dims, device)`` gives a
    :class:`ModuleProblem`.

    The file is executed: give only files that you trust, as with any Python program. Sizes and costs are found lazily,
    by running the problem on tensors without memory; :class:`Survey` says what is counted. Neither ``flops`` nor
    ``bytes`` bounds what a clever candidate needs (a triangular matrix need not be read whole).

    ``sweep``: also judge other sizes, chosen by the public ``suite_seed`` and found by varying the file's
    integers (``sweep.py``). At the file's own sizes, inputs of other scale and sign are judged too where the problem is
    defined there: most files draw from [0, 1) alone, where a softmax needs no maximum and a ReLU is the identity.

    Raises UsageError: the file is missing, is no problem file, or raises (the message names path, line and error).
    """
    file = ProblemFile(Path(path))
    init_arguments(file, file.execute({}), 0)
    surveys = Surveys(file)
    given = ("given", own_dims(surveys) if sweep else dict(file.sizes))
    case_dims = (given, *variants(surveys, suite_seed)) if sweep else (given,)
    safe = _safe(surveys, sweep)
    level = _level(file.path)
    slug = re.sub(r"[^A-Za-z0-9_.+-]", "_", file.path.stem)
    # a survey runs the file: it is asked only where the word stands there
    stable = bool(re.search(r"\bstable\b", file.text)) and surveys.at({}).stable
    build = functools.partial(_built, file, safe, surveys.at({}).keys if stable else frozenset())
    return Task(
        name=f"kernelbench:{slug}@{file.hash[:8]}",
        category=category_of(file.path.stem, file.tree, level),
        source="kernelbench",
        level=level,
        summary=_summary(file),
        dims=tuple(
            Dim(name=name, low=min(values), high=max(values), scaled=False)
            for name in given[1]
            for values in ([dims[name] for _, dims in case_dims],)
        ),
        dtypes=("float32",),
        arguments=lambda dims, dtype: surveys.at(dims).arguments,
        reference=_reference(build),
        flops=lambda dims: surveys.at(dims).flops,
        bytes=lambda dims, dtype: surveys.at(dims).bytes,
        tolerance=Tolerance(
            kind=_kind(surveys),
            reduction=lambda dims: surveys.at(dims).terms,
            guessed=True,
            normwise=True,  # it may hold products and convolutions anywhere
            stable=stable,
            rms=_DECAYS_RMS if safe.decays or safe.gates else 1.0,
            outlier_rms=_OUTLIER_RMS,
        ),
        distributions=("standard", *safe.distributions),
        layouts=_LAYOUTS if sweep else _LAYOUTS[:1],
        no_backward="KernelBench problems are forward only",
        case_dims=case_dims,
        findings=_findings(surveys, safe, case_dims, sweep),
        baseline_source=file.baseline_text,
        module=True,
        build=build,
    )


def _built(file: ProblemFile, safe: Safe, keys: frozenset[int], dims: Mapping[str, int], device: str) -> ModuleProblem:
    problem = ModuleProblem(file, dims, device, **safe.options)
    problem.keys = keys
    for name, value in safe.attributes.items():
        setattr(problem, name, value)
    for name in dims.keys() & ITEMS:
        if dims[name] > 1:
            problem.alike = problem.find_shared(dims[name], ITEMS[name]) | dict(problem.alike)
    return problem


def _safe(surveys: Surveys, sweep: bool) -> Safe:
    """Distributions beyond the file's own; none for a file that fails in miniature, unless sizes are to be swept."""
    try:
        return safe_distributions(surveys)
    except UsageError as error:
        if sweep:
            raise
        # where its own sizes are judged, it may be right
        return Safe(untried=(str(error).splitlines() or ["it raises"])[0])


def _findings(
    surveys: Surveys, safe: Safe, case_dims: Sequence[tuple[str, Mapping[str, int]]], sweep: bool
) -> tuple[Finding, ...]:
    """What every verdict on the task must say: that no other size was found, distributions that fell out, and arguments
    that a candidate may ignore.
    """
    found = []
    if sweep and len(case_dims) == 1:
        text = (
            "no other sizes: the file has none that could be varied, or runs at no others, so a candidate may be wrong "
            "at every other one. Write sizes as whole numbers at the top of the file or in get_inputs(), and let Model "
            "take others than these"
        )
        found.append(Finding(check="shapes", level="warn", message=text))
    elif sweep and (fixed := _fixed(surveys, case_dims)):
        text = f"of one size in every case: {', '.join(fixed)}; a candidate may be wrong at every other one"
        found.append(Finding(check="shapes", level="warn", message=text))
    if safe.untried:
        text = f"judged on its own inputs alone: at small sizes, where others are tried, it fails: {safe.untried}"
        found.append(Finding(check="reference", level="warn", message=text))
    if safe.fell_out:
        why = "the file itself raises there, is not near fp64, or selects among equal numbers"
        text = f"not judged on {', '.join(safe.fell_out)} inputs: {why}"
        found.append(Finding(check="reference", level="info", message=text))
    for distribution, kept in safe.spared.items():
        names = ", ".join(surveys.at({}).arguments[index].name for index in sorted(kept))
        text = f"{distribution} inputs leave {names} as the file draws it: it takes no other, or makes decays of it"
        found.append(Finding(check="reference", level="info", message=text))
    if safe.tame:
        why = "the file raises there, is not near fp64, or chooses among equal numbers"
        text = f"not judged with {', '.join(safe.tame)} at the ends of its range: {why}"
        found.append(Finding(check="reference", level="info", message=text))
    if safe.vary_weights == "never":
        text = "the weights are those that Model is made with in every case, for the file takes no others"
        found.append(Finding(check="reference", level="warn", message=text))
    counters = {surveys.at({}).arguments[index].name for index in safe.counters}
    if same := [*safe.same, *(name for name in _plain(surveys, case_dims) if name not in counters)]:
        text = f"argument {same[0]} is the same in every draw: a candidate may ignore it"
        if len(same) > 1:
            text = f"arguments {', '.join(same)} are the same in every draw: a candidate may ignore them"
        found.append(Finding(check="reference", level="warn", message=text))
    return tuple(found)


_LEAST_FIXED = 8
"""Sizes below this that never vary are not told: of coordinates, classes, channels of a picture."""


def _fixed(surveys: Surveys, case_dims: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    """Dims of arguments that have one size in all cases, by name."""
    try:
        draws = [surveys.at(dims).arguments for _, dims in case_dims]
    except UsageError:
        return []
    every = [[a for a in arguments if isinstance(a, TensorSpec)] for arguments in draws]
    return [
        f"dim {dim} of {one.name} ({sizes[0]})"
        for one, *others in zip(*every, strict=False)
        for dim, sizes in enumerate(zip(one.shape, *(other.shape for other in others), strict=False))
        if sizes[0] >= _LEAST_FIXED and len(set(sizes)) == 1
    ]


def _plain(surveys: Surveys, case_dims: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    """Plain arguments that have one value in all cases and draws, or lists of the same ones, by name; floats but 0 get
    others, and None says nothing.
    """
    try:
        draws = [surveys.at(dims).arguments for _, dims in case_dims]
        if any(isinstance(a, Scalar) and not _gets_others(a.value) for a in draws[0]):
            draws.append(surveys.other_arguments)
    except UsageError:
        return []
    every = [[a for a in arguments if isinstance(a, Scalar)] for arguments in draws]
    if len(set(map(len, every))) > 1:
        return []
    return [
        one.name
        for one, *others in zip(*every, strict=True)
        if not _gets_others(one.value) and all(_values(other.value) == _values(one.value) for other in others)
    ]


def _values(plain: Any) -> set[str]:
    """What stands in a plain argument, however often: a list may be as long as a size."""
    return {repr(leaf) for leaf in tree_leaves(plain)}


def _gets_others(value: Any) -> bool:
    return all(leaf is None or (isinstance(leaf, float) and leaf != 0) for leaf in tree_leaves(value))


def _reference(build: Callable[[Mapping[str, int], str], ModuleProblem]) -> Callable[..., Any]:
    def reference(*args: Any) -> tuple[torch.Tensor, ...]:
        """``Model`` at the file's own sizes, as initialised, on the device of the arguments."""
        device = next((str(a.device) for a in args if isinstance(a, torch.Tensor)), "cpu")
        problem = build({}, device)
        return problem.reference(args, problem.weights(0))

    return reference


def _kind(surveys: Surveys) -> Any:
    """``index`` for problems that give nothing but positions of an input's elements, found by argmax or argmin: ties
    are free there. A choice among computed numbers hardly ever has ties.
    """
    if not re.search(r"\barg(max|min)\b", surveys.file.text):
        return "float"
    found = surveys.at({})
    positions = bool(found.operators & {"argmax", "argmin"}) and found.chooses_inputs
    return "index" if positions and all("int" in spec.dtype for spec in found.outputs) else "float"


def _level(path: Path) -> int:
    """The number in the name of the folder ``level<n>``; 1 elsewhere."""
    match = re.fullmatch(r"level_?([1-9])", path.resolve().parent.name, re.IGNORECASE)
    return int(match[1]) if match else 1


def _summary(file: ProblemFile) -> str:
    for node in file.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model" and (text := ast.get_docstring(node)):
            return text.strip().split("\n")[0]
    return file.path.stem.replace("_", " ").strip()


# -- Category ---------------------------------------------------------------------------------------------------------

_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"attention", re.I)),
    ("convolution", re.compile(r"conv(_?transposed?)?_?[123]d|\bconv_|convolution", re.I)),
    (
        "normalization",
        re.compile(r"(batch|layer|group|instance|rms|local_response|frobenius|l1|l2)_?norm|normalize", re.I),
    ),
    ("gemm", re.compile(r"matmul|\bmm\b|\bbmm\b|einsum|linear\b|addmm|matrix_multiplication|\bgemm\b", re.I)),
)
_REDUCTIONS = re.compile(
    r"\b(log_?)?softmax\b|cum(sum|prod)|pool|loss|cross_entropy|\bkl_div\b"
    r"|\b(sum|mean|prod|max|min|amax|amin|argmax|argmin|norm|std|var|logsumexp)\b",
    re.I,
)


def category_of(stem: str, tree: ast.Module, level: int) -> str:
    """A guess of the operator category, from names alone.

    From level 2 on every problem is ``fused``. On level 1 the families attention, convolution, normalization and gemm
    are looked for, in that order, among the names that the file's classes use, then in the file's name; the first found
    counts. Else anything that sums, scans, pools or is a loss is a ``reduction``, and the rest ``elementwise``. A file
    that uses several of the families and has no such word in its own name is ``fused``.
    """
    if level >= 2:
        return "fused"
    used = " ".join(sorted(_names(tree)))
    found = [family for family, pattern in _FAMILIES if pattern.search(used)]
    named = [family for family, pattern in _FAMILIES if pattern.search(stem)]
    if named:
        return named[0]
    if found:
        return found[0] if len(found) == 1 else "fused"
    return "reduction" if _REDUCTIONS.search(f"{used} {stem.replace('_', ' ')}") else "elementwise"


def _names(tree: ast.Module) -> set[str]:
    """Names and attributes in the file's classes; ``matmul`` for the operator ``@``."""
    names: set[str] = set()
    for top in tree.body:
        for node in ast.walk(top) if isinstance(top, ast.ClassDef) else ():
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.MatMult):
                names.add("matmul")
    return names
