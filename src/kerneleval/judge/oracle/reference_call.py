"""One call of a task's trusted reference, and the forms of it that make bounds: in fp64, in the case's dtype, on moved
inputs, on inputs that lie as the candidate's do, and with softmax by other formulas. ``reference.py`` compares them.

Moved inputs (by a small part of themselves, up or down) measure conditioning. They stay where the operator is defined.
A probability just below 1 would be moved beyond it: on a CPU the reference raises then, and on a GPU an assert in its
kernel ends every context of the process. What would leave the range is moved the other way, by as much.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from kerneleval.devices.cpu import worker_threads
from kerneleval.judge.oracle.expectation import PROBE, as_real
from kerneleval.judge.windows.buffers import gradient_of, laid_out
from kerneleval.records import Argument, Case, InfrastructureError, KernelEvalError, Task, TensorSpec, UsageError
from kerneleval.tasks.formats.widening import in_double

Tensors = tuple[torch.Tensor, ...]


@contextlib.contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """TF32 on or off for matrix products and convolutions; restored afterwards."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32, convolution.allow_tf32 = tf32, tf32
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


@dataclass(frozen=True, kw_only=True)
class ReferenceCall:
    """One call of a trusted reference."""

    task: Task
    case: Case
    args: Sequence[Any]
    grads: Sequence[torch.Tensor] | None = None
    """Upstream gradients; None: forward."""
    problem: Any = None
    """Module problem; None: an operator."""
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Of the module problem."""
    native_on: str = ""
    """Torch device on which the native reference runs, where the judge works on another; empty: where the arguments
    lie. Module problems run where they were built."""

    def natively(self) -> Tensors:
        """Outputs of the native reference, in the case's dtype, wherever it ran."""
        with worker_threads(self.args):
            outputs = self.run(self.case.dtype)
        if not self.native_on or self.problem is not None:
            return outputs
        return tuple(output.cpu() for output in outputs)

    def there(self) -> ReferenceCall:
        """The same call on arguments that lie where the native reference runs."""
        if not self.native_on or self.problem is not None:
            return self

        def moved(value: Any) -> Any:
            return value.to(self.native_on) if isinstance(value, torch.Tensor) else value

        grads = None if self.grads is None else [moved(g) for g in self.grads]
        return replace(self, args=[moved(a) for a in self.args], grads=grads)

    def run(self, what: str) -> Tensors:
        """Outputs, or gradients of the differentiable arguments; detached, sharing no memory with the arguments.

        Raises:
            UsageError: the reference raises.
            InfrastructureError: the device has too little memory.
        """
        try:
            if self.problem is not None:
                runner = self.problem.oracle if what == "fp64" else self.problem.reference
                return tuple(runner(list(self.args), dict(self.weights)))
            # a file of one's own may widen half types to fp32, as its kernels do: its oracle is wider still; casts to
            # half types are what its operator does
            own = what == "fp64" and self.task.baseline_source
            with in_double(halves=False) if own else contextlib.nullcontext():
                found = self._forward() if self.case.direction == "forward" else self._backward()
        except torch.OutOfMemoryError as error:
            text = f"too little device memory for the {what} reference at {self.case.key}"
            raise InfrastructureError(text) from error
        except KernelEvalError:
            raise
        except Exception as error:
            text = f"the reference of task {self.task.name} raised in {what} at {self.case.key}: "
            raise UsageError(text + f"{type(error).__name__}: {error}") from error
        given = (*self.args, *(self.grads or ()))
        taken = {a.untyped_storage().data_ptr() for a in given if isinstance(a, torch.Tensor)}
        return tuple(t.clone() if t.untyped_storage().data_ptr() in taken else t.contiguous() for t in found)

    @property
    def given(self) -> tuple[Any, ...]:
        """Arguments, upstream gradients and weights."""
        return (*self.args, *(self.grads or ()), *self.weights.values())

    @property
    def inside(self) -> torch.dtype | None:
        """The half type to which a problem file casts of its own accord, known once there is an oracle."""
        found: torch.dtype | None = getattr(self.problem, "inside", None)
        return found

    @property
    def narrow(self) -> bool:
        """Whether any tensor is of a half type, or becomes one on the way."""
        tensors = [a for a in (*self.args, *self.weights.values()) if isinstance(a, torch.Tensor)]
        return self.inside is not None or any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors)

    def _forward(self) -> Tensors:
        args = [a.clone() if isinstance(a, torch.Tensor) else a for a in self.args] if self.task.in_place else self.args
        with torch.no_grad():
            return _outputs(self.task.reference(*args))

    def _backward(self) -> Tensors:
        args, leaves = list(self.args), []
        for position, spec in enumerate(self.task.arguments(self.case.dims_map, self.case.dtype)):
            if isinstance(spec, TensorSpec) and spec.differentiable:
                args[position] = args[position].detach().requires_grad_()
                leaves.append(args[position])
        with torch.enable_grad():
            outputs = [o for o in _outputs(self.task.reference(*args)) if o.is_floating_point() or o.is_complex()]
            return torch.autograd.grad(outputs, leaves, list(self.grads or ()))

    def converted(self, convert: Callable[[torch.Tensor, int], torch.Tensor]) -> ReferenceCall:
        """The same call on converted tensors; ``convert`` also gets a running number."""
        count = iter(range(1 << 30))

        def each(value: Any) -> Any:
            return convert(value, next(count)) if inexact(value) else value

        return replace(
            self,
            args=[each(a) for a in self.args],
            grads=None if self.grads is None else [each(g) for g in self.grads],
            weights={name: each(w) for name, w in self.weights.items()},
        )

    def moved(self, *, wide: bool = False, number: int = 0, size: float = 0.0) -> ReferenceCall:
        """The same call on moved tensors, in fp64 if ``wide``; ``number`` says which movement, ``size`` by how much."""
        problem = self.problem
        specs = () if problem is not None else self.task.arguments(self.case.dims_map, self.case.dtype)
        known = domains(specs, self.args) if specs else []
        even = size > 0 and any(isinstance(spec, TensorSpec) and spec.even for spec in specs)
        placed = self.task.tolerance.placed
        places = {i for i, one in enumerate(known) if placed and one == DOMAINS["symmetric"]}
        if size > 0 and _has_ties(specs, self.args):
            return self.converted(widened) if wide else self

        at_steps = problem is not None and self.case.distribution == "edges"
        held = problem.held(self.args, self.weights) if problem is not None and at_steps else {}
        keys = {id(self.args[index]) for index in problem.keys} if problem is not None else set()

        def each(tensor: torch.Tensor, place: int) -> torch.Tensor:
            if problem is not None:
                within = own_range(tensor) if problem.bounded else None
            else:
                within = known[place] if place < len(known) else None
            own = widened(tensor, place) if wide else tensor
            out = _moved(own, place + number, size, within)
            if place in places:  # 1 is added to them before they are multiplied
                out = torch.where(own.abs() < 1, own + (out - own) / own.abs().clamp_min(PROBE**4), out)
            if id(tensor) in keys and own.dim() == 1:  # the order of equal ones counts
                _, numbers, counts = own.unique(return_inverse=True, return_counts=True)
                out = torch.where(counts[numbers] > 1, own, out)
            if id(tensor) in held:
                out = torch.where(held[id(tensor)], own, out)
            if even and tensor.is_floating_point() and tensor.itemsize > 2:  # what is exact in every kernel stays so
                out = torch.where(tensor.half() == tensor, own, out)
            return out

        return self.converted(each)

    def placed(self) -> ReferenceCall:
        """The same call on arguments and upstream gradients that lie in memory as the candidate's do."""
        specs = self.task.arguments(self.case.dims_map, self.case.dtype)
        args = [
            laid_out(arg, self.case.layout, spec) if isinstance(spec, TensorSpec) and spec.role == "data" else arg
            for arg, spec in zip(self.args, specs, strict=True)
        ]
        grads = None
        if self.grads is not None:
            forms = [gradient_of(tuple(g.shape), str(g.dtype)[6:]) for g in self.grads]
            grads = [laid_out(g, self.case.layout, form) for g, form in zip(self.grads, forms, strict=True)]
        return replace(self, args=args, grads=grads)

    def other_formulas(self) -> list[ByLogSums | ByKeptLogSums | ByWeights | UnitsOff]:
        """Formulas that show more of the rounding than the native one where few numbers decide."""
        if self.problem is not None:
            return [ByLogSums()] if self.case.distribution in ("large_scale", "far_mean") else []
        forward = self.case.direction == "forward"
        if self.case.distribution not in ("large_scale", "outlier", *["common"] * forward):
            return []
        if forward:
            return [ByKeptLogSums()]
        single, double = torch.float32, torch.float64
        weights = [ByWeights(double, double), ByWeights(single, double), ByWeights(single, single)]
        weights += [ByWeights(single, single, off=True)] if self.narrow else []
        return [UnitsOff(), ByKeptLogSums(), *weights]


def inexact(value: Any) -> bool:
    """Whether it is a tensor of floating or complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _outputs(result: Any) -> Tensors:
    values = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"a reference returns a tensor or a tuple of them, got {type(value).__name__}")
    return tuple(value.detach() if not value.requires_grad else value for value in values)


def widened(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """In fp64; for :meth:`ReferenceCall.converted`."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


# -- Inputs moved by a small part of themselves ------------------------------------------------------------------------

Range = tuple[Any, Any]
"""The least and the largest number, as numbers or tensors of one element."""

DOMAINS: dict[str, Range] = {"uniform": (0.0, 1.0), "symmetric": (-1.0, 1.0), "above_one": (1.0, math.inf)}
"""Where the operators are defined that draw such values (``TensorSpec.values``), but for 0, which nothing crosses."""

_PRIME = 65521
"""Length of the pattern of signs: prime, so that it meets the rows of no tensor in step."""

AGAIN = 1000
"""What a second movement adds to the numbers of the tensors."""

_OTHER_SIZES = (1.0, 1.45, 1.15, 1.3)
"""Multiples of PROBE by which the tensors move the second time: where one product of two numbers decides, both may have
moved by the same the first time, one up and one down."""

_PIECE = 1 << 24
"""Elements that are looked at together."""


def _has_ties(specs: Sequence[Any], args: Sequence[Any]) -> bool:
    """Whether an argument is divided by a power of two before it is rounded (``Arg.ties``): nothing is rounded on the
    way there, so what lies half way between two numbers does in every kernel.
    """
    named = {spec.name: arg for spec, arg in zip(specs, args, strict=True)} if specs else {}
    steps = [named[spec.ties] for spec in specs if isinstance(spec, TensorSpec) and spec.ties]
    return any(bool((torch.frexp(torch.as_tensor(step).float()).mantissa == 0.5).all()) for step in steps)


def _moved(tensor: torch.Tensor, number: int, size: float = 0.0, within: Range | None = None) -> torch.Tensor:
    """Every element moved by PROBE of itself or a little more (or that times ``size``), up or down, in fp32 or the
    tensor's own wider type; none out of the range ``within``.
    """
    narrow = tensor.is_floating_point() and tensor.itemsize <= 2
    moved = (tensor.float() if narrow else tensor).contiguous()
    flat = as_real(moved).reshape(-1)
    if flat.numel() == 0:
        return moved
    size = size or (_OTHER_SIZES[number % len(_OTHER_SIZES)] if number >= AGAIN else 1.0)
    factors = _factors(str(tensor.device), flat.dtype, size)[-7919 * (number + 1) % _PRIME :][:_PRIME]
    whole = flat.numel() // _PRIME * _PRIME
    out = torch.empty_like(flat)
    if whole:
        torch.mul(flat[:whole].view(-1, _PRIME), factors, out=out[:whole].view(-1, _PRIME))
    torch.mul(flat[whole:], factors[: flat.numel() - whole], out=out[whole:])
    if within is not None:
        _turn_back(flat, out, within)
    shaped = out.view(as_real(moved).shape)
    return torch.view_as_complex(shaped) if tensor.is_complex() else shaped


def domains(specs: Sequence[Argument], args: Sequence[Any]) -> list[Range | None]:
    """Where each argument of floating or complex numbers may lie, in order; None: anywhere."""
    return [
        DOMAINS.get(spec.values)
        for spec, arg in zip(specs, args, strict=True)
        if isinstance(spec, TensorSpec) and (arg.is_floating_point() or arg.is_complex())
    ]


def own_range(tensor: torch.Tensor) -> Range | None:
    """The range of a tensor's own numbers, for of a problem file's no other is known; of equal ones in [-1, 1] that.
    Nothing waits for a device here. None: it has no elements.
    """
    if not tensor.numel():
        return None
    low, high = as_real(tensor).aminmax()
    equal, one = low == high, torch.ones_like(high)
    return torch.where(equal, -one, low), torch.where(equal, one, high)


def _turn_back(given: torch.Tensor, moved: torch.Tensor, within: Range) -> None:
    """Move what has left the range the other way instead, in ``moved`` itself; what was outside stays as it is."""
    low, high = within
    for x, y in zip(given.split(_PIECE), moved.split(_PIECE), strict=True):
        left = ((y > high) & (x <= high)) | ((y < low) & (x >= low))
        torch.where(left, x + (x - y), y, out=y)


@functools.lru_cache(maxsize=32)
def _factors(device: str, dtype: torch.dtype, size: float) -> torch.Tensor:
    """1 + size * PROBE or 1 - size * PROBE at random, twice in a row: the pattern from any place on is a part of
    it. Fixed and public: it decides nothing but a bound.
    """
    generator = torch.Generator(device=device).manual_seed(20240229)
    signs = torch.randint(0, 2, (_PRIME,), generator=generator, device=device).to(dtype)
    return (1 + (2 * signs - 1) * (size * PROBE)).repeat(2)


# -- Softmax by other formulas -----------------------------------------------------------------------------------------

_SOFTMAX: tuple[Any, ...] = (F.softmax, torch.softmax, torch.Tensor.softmax)
_LOG_SOFTMAX: tuple[Any, ...] = (F.log_softmax, torch.log_softmax, torch.Tensor.log_softmax)


class _OtherSoftmax(TorchFunctionMode):
    met = False
    """Whether there was a softmax at all."""
    functions: tuple[Any, ...] = _SOFTMAX
    """Those in whose place another formula is used."""

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """Softmax over one dim."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same by another formula."""
        options = dict(kwargs or {})
        if func in self.functions:
            of_tensors = func in (F.softmax, F.log_softmax)
            names = ("input", "dim", "_stacklevel", "dtype") if of_tensors else ("input", "dim", "dtype")
            given = dict(zip(names, args, strict=False)) | options
            scores, dim, dtype = given.get("input", given.get("self")), given.get("dim"), given.get("dtype")
            if isinstance(scores, torch.Tensor) and isinstance(dim, int) and scores.dim():
                self.met = True
                return self.weights(scores if dtype is None else scores.to(dtype), dim).contiguous()  # as torch's own
        return func(*args, **options)


class _Step(NamedTuple):
    """A step of a softmax that is written out: a difference (``sub``), its exponential (``exp``), the sum of that in a
    row (``sum``; ``flat`` without its dim), one by it (``reciprocal``), or a product of the exponential and a matrix.
    Or a log-softmax (``log``), of which the exponential is one.
    """

    name: str
    of: torch.Tensor
    """The scores of a difference and of its exponential; else the exponential."""
    version: int
    """Of that tensor; it may be written later."""
    own: int = 0
    """Version of what the step made."""
    factor: Any = 1.0
    """By what the scores are multiplied before the exponential."""
    shift: tuple[int, ...] = ()
    """Shape of what was taken off."""
    dim: int = -1
    """Over which is summed."""
    again: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Makes the same product of other exponentials."""
    right: torch.Tensor | None = None
    right_version: int = 0
    """The other factor of a product."""
    opened: torch.Tensor | None = None
    """Where the exponential counts; None: everywhere."""
    total: torch.Tensor | None = None
    """The sum itself, where something was added to it, or it is held above a number."""

    @property
    def is_intact(self) -> bool:
        """Whether what it took was not written since then."""
        right = self.right is None or self.right._version == self.right_version
        return bool(right and self.of._version == self.version)


_NAMES = {"true_divide": "div", "divide": "div", "subtract": "sub", "multiply": "mul", "special_exp2": "exp2"}
_QUOTIENTS = {"div": "sum", "mul": "reciprocal"}
"""How a softmax ends, and the step that its second factor is."""
_PRODUCTS = ("matmul", "bmm", "mm", "einsum")
_SHAPED = ("unsqueeze", "view", "reshape", "__getitem__")
_MASKING = ("mul", "masked_fill", "where")
"""What leaves a part of the exponentials at 0."""
_HOLDING = ("add", "clamp", "clamp_min", "maximum", "max", "masked_fill", "where")
"""What keeps a sum from being 0."""


def _is_shift(scores: Any, shift: Any) -> bool:
    """Whether a difference may be that of scores and their maximum: a number is taken off, or fewer than there are
    scores.
    """
    if not isinstance(scores, torch.Tensor) or not scores.dim() or scores.is_inference():
        return False
    return not isinstance(shift, torch.Tensor) or shift.numel() < scores.numel()


def _is_single(value: Any) -> bool:
    """Whether it is one number."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.dim() <= 1 and not value.is_inference()
    return isinstance(value, (int, float))


def _keeps_rows(equation: Any, operands: Sequence[Any]) -> bool:
    """Whether an einsum of two is a product of matrices: over the last dim of the first one, whose others come first in
    the result and in order.
    """
    left, _, out = str(equation).replace(" ", "").replace("...", "@").partition("->")
    first, comma, second = left.partition(",")
    if len(operands) != 2 or not comma or not out or not first:
        return False
    return first[-1] in second and first[-1] not in out and out[:-1] == first[:-1] and len(set(first)) == len(first)


_MOST_SCORES = 1 << 26
"""So many scores of a fused attention are written down at most."""

_LOST = 0.5
"""So far from 1 the weights of a row add up to something else: no kernel that keeps the logarithm of a sum is right."""


class ByLogSums(_OtherSoftmax):
    """While it is entered, softmax is made from the logarithm of each row's sum, as by kernels that keep or combine
    such logarithms (FlashDecoding, cross entropies). Of scores in the thousands that number is rounded more coarsely
    than the weights are, and the native softmax may show nothing of it.

    So is a softmax that is written out: ``e / e.sum(dim, keepdim=True)`` of ``e = exp(c * (x - m))``, where ``m`` is
    one number for all of the dim. It may be written in place, by powers of 2, by the reciprocal of the sum, or with a
    product of ``e`` and a matrix that is divided later. A mask may leave a part of ``e`` at 0, and the sum may be kept
    from being 0: what it is divided by then counts, however little it is. So is the exponential of a log-softmax.
    """

    def __init__(self) -> None:
        super().__init__()
        self._steps = WeakTensorKeyDictionary()
        """By what comes out of a step of a softmax that is written out, that step."""

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """``exp(x - log sum exp(x))``, in fp32 at least; the softmax itself where that number has no digit left, as in
        rows that a mask of -1e9 hides whole.
        """
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        found = torch.exp(wide - torch.logsumexp(wide, dim, keepdim=True))
        lost = (found.sum(dim, keepdim=True) - 1).abs() > _LOST
        return torch.where(lost, torch.softmax(wide, dim), found).to(scores.dtype)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same by another formula."""
        called = str(getattr(func, "__name__", ""))
        in_place = called.endswith("_") and not called.endswith("__")
        name = called[:-1] if in_place else called
        name, given = _NAMES.get(name, name), [*args, *(kwargs or {}).values()]
        if name in _QUOTIENTS and len(given) == 2 and (found := self._quotient(name, *given)) is not None:
            return given[0].copy_(found) if in_place else found
        if name == "exp" and (logs := self._step(given[0], "log")) is not None:
            self.met, found = True, self.weights(logs.of.to(given[0].dtype), logs.dim)
            return given[0].copy_(found) if in_place else found
        if name in ("mul", "add") and len(given) == 2 and self._step(given[0]) is None:
            given.reverse()
        if name == "where" and len(given) == 3:  # as masked_fill has them
            condition, first, second = given
            own = self._step(first) is not None
            given = [first, condition.logical_not(), second] if own else [second, condition, first]
        before = self._step(given[1 if name == "einsum" else 0]) if given and name != "sub" else None
        total = given[0].clone() if before is not None and before.name in ("sum", "flat") and name in _HOLDING else None
        if name == "sub" and len(given) == 2 and _is_shift(*given):
            scores = given[0].clone() if in_place else given[0]
            self._steps.pop(given[0], None)  # else a long chain of differences would be kept
            before = _Step("sub", scores, scores._version, shift=tuple(getattr(given[1], "shape", ())))
        fused = self._attention(*args, **(kwargs or {})) if func is F.scaled_dot_product_attention else None
        out = super().__torch_function__(func, types, args, kwargs) if fused is None else fused
        options = dict(kwargs or {})
        if before is not None and isinstance(out, torch.Tensor) and not out.is_inference() and "out" not in options:
            step = self._next(name, before, given, options, out)
            if step is None and total is not None and out.shape == total.shape:
                step = before if before.total is not None else before._replace(total=total)
            if step is not None and name in _PRODUCTS:
                rest, options = list(args), {key: v for key, v in options.items() if key not in ("input", "self")}
                place = 1 if name == "einsum" else 0
                step = step._replace(again=lambda e: func(*rest[:place], e, *rest[place + 1 :], **options))
            if step is not None:
                self._steps[out] = step._replace(own=out._version)
        if name == "log_softmax" and isinstance(out, torch.Tensor) and not out.is_inference():
            dim = options.get("dim", *given[1:2])
            if type(dim) is int and given[0].dim():
                self._steps[out] = _Step("log", given[0], given[0]._version, out._version, dim=dim)
        return out

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> torch.Tensor | None:
        """A fused attention; None: it drops weights, or has too many scores to write them down."""
        scale = options.get("scale")
        scale = max(1, query.shape[-1]) ** -0.5 if scale is None else scale
        if dropout_p or query.shape[:-1].numel() * key.shape[-2] > _MOST_SCORES:
            return None
        if options.get("enable_gqa"):
            key, value = (one.repeat_interleave(query.shape[-3] // max(1, one.shape[-3]), -3) for one in (key, value))
        scores = query @ key.mT * scale
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        self.met = True
        hidden = (scores == -math.inf).all(-1, keepdim=True)  # such rows are 0
        return self.weights(scores, -1).masked_fill(hidden, 0.0) @ value

    def _next(
        self, name: str, before: _Step, given: Sequence[Any], options: Mapping[str, Any], out: torch.Tensor
    ) -> _Step | None:
        """The step that follows on one; None: this is none."""
        if name == "sub" and before.name == "sub":
            return before
        if name in _QUOTIENTS and before.name == "sub" and len(given) == 2 and _is_single(given[1]):
            if name == "div" and not isinstance(given[1], torch.Tensor) and not given[1]:
                return None
            return before._replace(factor=before.factor * given[1] if name == "mul" else before.factor / given[1])
        if name in ("exp", "exp2") and before.name == "sub":
            return before._replace(name="exp", factor=before.factor * (math.log(2) if name == "exp2" else 1))
        if before.name == "exp" and name in _MASKING and (opened := _opened(name, given, out)) is not None:
            return before._replace(opened=opened if before.opened is None else before.opened & opened)
        if before.name == "exp" and name == "sum":
            return _sum_of(given, options)
        if before.name == "exp" and name in _PRODUCTS:
            return _product_of(name, given)
        if before.name == "flat" and name in _SHAPED:
            if not _gets_dim_back(name, before, given, out):
                return None
            return before._replace(name="sum", total=None if before.total is None else before.total.view(out.shape))
        one = name == "reciprocal" or (name == "__rdiv__" and given[1:] == [1])
        return before._replace(name="reciprocal") if one and before.name == "sum" else None

    def _step(self, made: Any, name: str = "") -> _Step | None:
        """The step that made a value, of this name if one is given; None: it is none, or something was written since
        then.
        """
        step: _Step | None = self._steps.get(made) if isinstance(made, torch.Tensor) else None
        if step is None or name not in ("", step.name) or made._version != step.own or not step.is_intact:
            return None
        return step

    def _quotient(self, name: str, number: Any, by: Any) -> torch.Tensor | None:
        """A softmax that is written out, at its last step; None: it is none."""
        if name == "mul" and self._step(by, "reciprocal") is None:
            number, by = by, number
        total = self._step(by, _QUOTIENTS[name])
        made = self._step(total.of, "exp") if total is not None else None
        if total is None or made is None:
            return None
        scores, dim, shift = made.of, total.dim, made.shift
        if torch.broadcast_shapes(scores.shape, shift) != scores.shape or shift[dim - scores.dim() :][:1] not in (
            (),
            (1,),
        ):
            return None
        product = self._step(number, "product") if dim == scores.dim() - 1 else None
        if number is not total.of and (product is None or product.of is not total.of or product.again is None):
            return None
        if torch.is_grad_enabled() and scores.requires_grad and not (number.requires_grad and by.requires_grad):
            return None  # a part was made without gradients
        self.met = True
        scores = scores * made.factor
        if made.opened is not None:
            scores = scores.masked_fill(~made.opened, -math.inf)
        found = self.weights(scores, dim)
        found = found if product is None or product.again is None else product.again(found)
        if total.total is not None:
            own, part = (number / by, total.total / by) if name == "div" else (number * by, total.total * by)
            found = torch.where(total.total == 0, own, found * part)
        return found.to(torch.result_type(number, by))


def _opened(name: str, given: Sequence[Any], out: torch.Tensor) -> torch.Tensor | None:
    """Where exponentials are not multiplied by 0 or replaced by it; None: something else is made of them."""
    mask = given[1] if len(given) > 1 else None
    if not isinstance(mask, torch.Tensor) or mask.is_complex() or out.shape != given[0].shape:
        return None
    opened = mask != 0
    if name == "mul":
        is_mask = len(given) == 2 and bool((opened == mask).all())
    else:
        opened, is_mask = ~opened, _is_single(given[2]) and not given[2]
    return opened if is_mask else None


def _sum_of(given: Sequence[Any], options: Mapping[str, Any]) -> _Step | None:
    """The sum of exponentials over one dim, in their own type; None: it is another sum."""
    first, *rest = given[: len(given) - len(options)] or given[:1]
    named = dict(zip(("dim", "keepdim", "dtype"), rest, strict=False)) | {
        k: v for k, v in options.items() if k != "input"
    }
    dim = named.get("dim", named.get("axis"))
    dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    if type(dim) is not int or named.get("dtype") is not None:
        return None
    return _Step(
        "sum" if named.get("keepdim", named.get("keepdims")) else "flat", first, first._version, dim=dim % first.dim()
    )


def _product_of(name: str, given: Sequence[Any]) -> _Step | None:
    """The product of exponentials and a matrix; None: it is another one."""
    operands = given[1:] if name == "einsum" else given
    if name == "einsum" and not _keeps_rows(given[0], operands):
        return None
    first, right = operands[0], operands[1]
    if not isinstance(right, torch.Tensor) or right.dim() < 2 or right.is_inference():
        return None
    return _Step("product", first, first._version, right=right, right_version=right._version)


def _is_whole(index: Any) -> bool:
    return isinstance(index, slice) and index == slice(None)


def _gets_dim_back(name: str, step: _Step, given: Sequence[Any], out: torch.Tensor) -> bool:
    """Whether sums get the dim back over which was summed, of size 1, in the same order."""
    index = given[1] if isinstance(given[1], tuple) else (given[1],)
    if name == "__getitem__" and not all(one is None or one is Ellipsis or _is_whole(one) for one in index):
        return False
    shape = list(step.of.shape)
    shape[step.dim] = 1
    return list(out.shape) == shape


class ByKeptLogSums(_OtherSoftmax):
    """While it is entered, softmax, log-softmax and cross entropy are made from the logarithm of each row's sum, in
    fp32 at least, which their gradients take too: as kernels do that keep one number a row for the backward.
    """

    functions = (*_LOG_SOFTMAX, *_SOFTMAX)
    _exponential = False

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """``x - log sum exp(x)``, of a softmax the exponential of it."""
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        logs = wide - torch.logsumexp(wide, dim, keepdim=True)
        return (logs.exp() if self._exponential else logs).to(scores.dtype)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same by another formula."""
        options = dict(kwargs or {})
        self._exponential = func in _SOFTMAX
        if func is F.cross_entropy:
            self.met = True
            given = {name: value for name, value in options.items() if name not in ("size_average", "reduce")}
            return _cross_entropy(self, *args, **given)
        return super().__torch_function__(func, types, args, options)


def _cross_entropy(
    formula: ByKeptLogSums,
    logits: torch.Tensor,
    targets: torch.Tensor,
    weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """``F.cross_entropy`` by a formula of log-softmax; itself where shares are asked for, or some of several kinds."""
    options: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
    if targets.is_floating_point() or (label_smoothing and (weight is not None or ignore_index >= 0)):
        return F.cross_entropy(logits, targets, label_smoothing=label_smoothing, **options)
    classes = min(1, logits.dim() - 1)
    logs = formula.weights(logits, classes).contiguous()  # the gradient of nll_loss of images takes no other
    loss = F.nll_loss(logs, targets, **options)
    if not label_smoothing:
        return loss
    even = -logs.mean(classes)
    even = even.mean() if reduction == "mean" else even.sum() if reduction == "sum" else even
    return (1 - label_smoothing) * loss + label_smoothing * even


class ByWeights(_OtherSoftmax):
    """While it is entered, the gradient of softmax is made from its weights ``y`` by ``y (g - sum of g y)``, rounded as
    kernels do. Where one weight of a row is nearly 1, what comes out is the difference of two equal numbers, and every
    rounding leaves another one.

    Args:
        weights: dtype in which the weights are made, before they are rounded to the scores' (fp32 of half types).
        sums: dtype in which the gradient is made; fp64 as the scalars of a CPU kernel are, fp32 in torch's order.
        off: whether the sum is one rounding of the scores' type off, as eager code in a half type may have it. In a row
            that one weight decides, any one formula may be right by luck.
    """

    def __init__(self, weights: torch.dtype, sums: torch.dtype, *, off: bool = False) -> None:
        super().__init__()
        self._weights, self._sums, self._off = weights, sums, off

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """Softmax whose gradient is that one."""
        part = 1 - torch.finfo(scores.dtype).eps / 2 if self._off else 1.0
        found: torch.Tensor = _Weights.apply(scores, dim, self._weights, self._sums, part)  # type: ignore[no-untyped-call]
        return found


_SLOPES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "special_erfcx": lambda x, y: 2 * x * y - 2 / math.sqrt(math.pi),
}
"""(x, the function's value y) -> the derivative."""


_MOST_OFF = 2.0**-7
"""How far (log ratio) a weight of a logsumexp may be off at most: what is right there is no further off."""


class UnitsOff(TorchFunctionMode):
    """While it is entered, functions of ``_SLOPES`` in fp32 are two units in the last place nearer to 0, as those of
    GPUs may be, and a logsumexp is half a unit off where its weights are made of it. Gradients are made of that. Where
    these cancel (of a tanh that is nearly 1), or the exponential of a large number is taken, they are what that
    rounding leaves. A tanh or a sigmoid that is exactly 1 stays: every kernel has 0 there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.met = False
        """Whether there was such a function."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same two units off."""
        out, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        given = dict(zip(("input", "dim", "keepdim"), args, strict=False)) | dict(kwargs or {})
        x, dim = given.get("input"), given.get("dim")
        whole = name == "logsumexp" and isinstance(dim, int)
        if not (whole or name in _SLOPES) or not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return out
        self.met = True
        eps, near = torch.finfo(x.dtype).eps, out.detach()
        if whole and isinstance(dim, int):
            rows = near if given.get("keepdim") else near.unsqueeze(dim)
            off = (0.5 * eps * rows.abs()).clamp(max=_MOST_OFF)
            moved = torch.exp(x.detach() - rows + off) * (x - x.detach())
            return near + moved.sum(dim, keepdim=bool(given.get("keepdim")))
        near = torch.where((near.abs() == 1) & (name != "special_erfcx"), near, near * (1 - 2 * eps))
        return near + _SLOPES[name](x.detach(), near) * (x - x.detach())


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, dim: int, inner: torch.dtype, sums: torch.dtype, part: float
    ) -> torch.Tensor:
        own = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim)
        if scores.numel():
            wide = scores.to(torch.promote_types(own, inner))
            weights = torch.exp(wide - wide.amax(dim, keepdim=True))
            weights = (weights / weights.sum(dim, keepdim=True)).to(own)
        ctx.save_for_backward(weights)
        ctx.dim, ctx.sums, ctx.part = dim, torch.promote_types(own, sums), part
        return weights.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        (weights,) = ctx.saved_tensors
        y, g = weights.to(ctx.sums), grad.to(ctx.sums)
        return (y * (g - ctx.part * (y * g).sum(ctx.dim, keepdim=True))).to(grad.dtype), None, None, None, None
