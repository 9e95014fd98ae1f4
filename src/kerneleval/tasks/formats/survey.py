"""What a problem's tensors look like and what it costs, found by running it on tensors without memory (``meta``).

A run takes milliseconds whatever the sizes are, so a sweep can try many sizes before any of them is judged.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kerneleval.records import (
    DTYPES,
    Argument,
    Form,
    OutputForm,
    Scalar,
    TensorSpec,
    UsageError,
    flat,
    is_config,
    names_of,
    nested,
    opened,
)
from kerneleval.tasks.formats.problem_file import ProblemFile

T = TypeVar("T")

_SCANS = ("softmax", "_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
_NORMS = ("layer_norm", "group_norm", "batch_norm", "rms_norm")
_SUMS = (
    "sum", "nansum", "mean", "prod", "var", "std", "var_mean", "std_mean", "norm", "linalg_vector_norm", "logsumexp",
    "dot", "vdot", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
    "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "nll_loss_forward", "nll_loss2d_forward",
    "binary_cross_entropy", "binary_cross_entropy_with_logits",
)  # fmt: skip
_SELECTIONS = ("sort", "topk", "argmax", "argmin", "max", "min", "kthvalue", "median", "mode", "cummax", "cummin")


Place = tuple[str, tuple[tuple[int, int], ...]]
"""An operator, and where the file calls for it: function and instruction, of each call that led there."""

Shapes = tuple[tuple[int, ...], ...]
"""Of what an operator gives and of the tensors that are stretched to that, or of a tensor and of the places of it that
are used; all of as many dims.
"""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A problem at given sizes."""

    arguments: tuple[Argument, ...]
    """What ``get_inputs`` gives, in order, under the names of ``Model.forward``."""
    outputs: tuple[TensorSpec, ...]
    weights: tuple[TensorSpec, ...]
    trainable: bool
    """Whether any of the weights is a parameter."""
    flops: int
    """Floating-point operations of the matrix products, convolutions and attentions as written (a multiply-add counts
    as two); 0: there are none, and nothing is known. A candidate may do with fewer: the other half of a triangular
    matrix, a product that is only summed afterwards."""
    terms: int
    """The largest number of terms that one step sums into one element."""
    operators: frozenset[str]
    """Names of the ATen operators dispatched: ``convolution``, ``argmax``."""
    chooses_inputs: bool
    """Whether every argmax and argmin chooses among elements of an input as it was given, not of something computed."""
    stable: bool
    """Whether something is sorted and equal elements always keep their order: every sort is asked to be stable, and
    nothing is selected otherwise."""
    keys: frozenset[int]
    """Positions of inputs that are sorted as they were given."""
    steps: int
    unread: frozenset[str]
    """Weights that no operator takes."""
    real: bool
    """Whether it took real tensors: the problem's control flow reads values."""
    meetings: Mapping[Place, Sequence[Shapes]] = field(default_factory=dict, compare=False)
    """Of the first operators that take elements of several tensors together, the sizes each time."""

    @property
    def bytes(self) -> int:
        """Inputs, weights and outputs, each once."""
        tensors = [a for a in self.arguments if isinstance(a, TensorSpec)]
        return sum(spec.nbytes for spec in (*tensors, *self.weights, *self.outputs))

    @property
    def form(self) -> tuple[Any, ...]:
        """Everything that a change of sizes can change."""
        return (self.arguments, self.weights, self.outputs)


def survey(file: ProblemFile, dims: Mapping[str, int]) -> Survey:
    """Run the problem once, on ``meta`` tensors; on real ones on the CPU where its control flow reads values. Raises
    UsageError: the file raises at these sizes; the message says which of its lines.
    """
    namespace = file.execute(dims)
    init = init_arguments(file, namespace, 0)
    try:
        model = build_model(file, namespace, init, "meta", 0)
    except UsageError as error:
        if not _lacks_memory(error):
            raise
        # Constructors that read values (``linspace(...).item()``) need memory: for the weights alone, which is little.
        model = build_model(file, namespace, init, "cpu", 0).to("meta")
    try:
        return _run(file, namespace, model, "meta")
    except UsageError as error:
        if not _lacks_memory(error):
            raise
    return _run(file, namespace, build_model(file, namespace, init, "cpu", 0), "cpu")


def other_draw(file: ProblemFile, device: str) -> tuple[Argument, ...]:
    """What ``get_inputs`` gives at the file's own sizes under another seed than in a survey."""
    namespace = file.execute({})
    return _arguments(namespace, *call_inputs(file, namespace, device, 1))


def _lacks_memory(error: UsageError) -> bool:
    """Whether the problem failed because ``meta`` tensors hold no values."""
    return (
        isinstance(error.__cause__, (RuntimeError, NotImplementedError, TypeError))
        and "meta" in str(error.__cause__).lower()
    )


def _run(file: ProblemFile, namespace: ModuleType, model: torch.nn.Module, device: str) -> Survey:
    args, form = call_inputs(file, namespace, device, 0)
    recorder = _Recorder(str(file.path), args)
    shortened = _Shortened(recorder) if device == "meta" else contextlib.nullcontext()
    with file.running("Model.forward", 0, device), torch.no_grad(), recorder, shortened:
        result = model(*nested(form, args))
    return Survey(
        arguments=_arguments(namespace, args, form),
        outputs=tuple(_spec(f"out{i}", t, "output") for i, t in enumerate(outputs_of(result, device)[0])),
        weights=tuple(_spec(name, t, "weight") for name, t in model.state_dict().items()),
        trainable=next(model.parameters(), None) is not None,
        flops=recorder.flops,
        terms=recorder.terms,
        operators=frozenset(recorder.operators),
        chooses_inputs=recorder.chooses_inputs,
        stable=recorder.stable == {True},
        keys=frozenset(recorder.keys),
        steps=recorder.steps,
        unread=frozenset(name for name, t in model.state_dict().items() if recorder.misses(t)),
        real=device != "meta",
        meetings=recorder.meetings,
    )


def stretches(own: Survey, other: Survey) -> bool:
    """Whether a tensor is of size 1 and stretched at other sizes where it was as large as what it meets: of three
    columns the second half is one, and adds to each of the first half. Or whether a part of a tensor is used where all
    of it was: ``gather`` takes fewer rows than there are, and each channel has several filters where it had one. The
    file does not say that.
    """
    return any(
        _stretches(place[0] in (*_OF_PLACES, _CONVOLUTION), times, other.meetings[place])
        for place, times in own.meetings.items()
        if place in other.meetings
    )


def outgrows(own: Survey, other: Survey) -> bool:
    """Whether an output that has an argument's shape loses it at other sizes, and is as large as nothing that is given:
    a state of more steps than the kernel reaches back. Or whether arguments that are padded before a Fourier transform
    are of unlike lengths where they were alike. The file does not say that.
    """
    specs = [(a, b) for a, b in zip(own.arguments, other.arguments, strict=False) if isinstance(a, TensorSpec)]
    pairs = [(a.shape, b.shape) for a, b in specs if isinstance(b, TensorSpec) and len(a.shape) == len(b.shape)]
    given = {size for spec in (*other.arguments, *other.weights) if isinstance(spec, TensorSpec) for size in spec.shape}
    for before, after in zip(own.outputs, other.outputs, strict=False):
        for shape, now in pairs:
            sizes = zip(shape, after.shape, now, strict=False)
            grown = any(was == b != a and a not in given for was, a, b in sizes)
            if "cat" in own.operators and before.shape == shape and grown:
                return True
    if "constant_pad_nd" not in own.operators or not any("_fft" in name for name in own.operators):
        return False
    kept = {out.shape[-1] for out in other.outputs if out.shape}
    lasts = {(shape[-1], now[-1]) for shape, now in pairs if shape and shape[-1] > 1}
    apart = len(lasts) > len({size for size, _ in lasts})
    return apart and bool(kept & {now for _, now in lasts})


def _stretches(is_part: bool, own: Sequence[Shapes], other: Sequence[Shapes]) -> bool:
    """The same of one place of the file. In loops of another length each time is compared with every one."""
    if len(own) == len(other):
        return any(_new_gaps(is_part, *pair) for pair in zip(own, other, strict=True))
    ranks = {after: [before for before in own if [*map(len, before)] == [*map(len, after)]] for after in set(other)}
    return any(bool(alike) and all(_new_gaps(is_part, one, after) for one in alike) for after, alike in ranks.items())


def _new_gaps(is_part: bool, own: Shapes, other: Shapes) -> bool:
    """Whether a size that was as large as what it meets is smaller; of what is stretched, where it became 1."""
    if len(own) != len(other) or len(own[0]) != len(other[0]):
        return False
    return any(
        full == size and new < whole and (is_part or size > 1 == new)
        for before, after in zip(own[1:], other[1:], strict=True)
        for full, size, whole, new in zip(own[0], before, other[0], after, strict=True)
    )


# -- The three calls of a problem file --------------------------------------------------------------------------------


def init_arguments(file: ProblemFile, namespace: ModuleType, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """What ``get_init_inputs`` gives, as arguments in order and keywords; it is sent to the candidate's worker, so it
    must be plain. Raises UsageError: it raises, gives no list or dict, or holds something that is no plain data; or
    ``Model`` does not take it as it is written.
    """
    with file.running("get_init_inputs()", seed):
        given = namespace.get_init_inputs()
    if not isinstance(given, (list, tuple, Mapping)):
        raise UsageError(_no_list(file, "get_init_inputs()", given, "[]"))
    arguments, keywords = _positional(file, namespace, given)
    places: list[int | str] = [*range(len(arguments)), *keywords]
    for place, value in zip(places, (*arguments, *keywords.values()), strict=True):
        _check_plain(file, place, value)
    return list(arguments), keywords


def _positional(
    file: ProblemFile, namespace: ModuleType, given: Sequence[Any] | Mapping[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Keywords, or ``[arguments, keywords]``, as some files write it, as arguments in the order of ``Model`` and what
    it takes as keywords alone; all else as it is.
    """
    named = isinstance(given, Mapping)
    given = [[], given] if isinstance(given, Mapping) else given
    if len(given) != 2 or not isinstance(given[0], (list, tuple)) or not isinstance(given[1], Mapping):
        return given, {}
    try:
        signature = inspect.signature(namespace.Model)
    except (TypeError, ValueError):
        return tuple(given[0]), dict(given[1])
    try:
        bound = signature.bind(*given[0], **given[1])
    except TypeError as error:
        try:
            signature.bind(*given)
        except TypeError:
            named = True
        if named:
            form = "{keywords}" if not given[0] else "[[arguments], {keywords}]"
            text = f"get_init_inputs() gives {form}, which Model(...) does not take: {error}"
            raise UsageError(f"{file.path}: {text}") from error
        return given, {}  # two arguments, a list and a dict, that mean what they say
    return _in_order(bound)


def _in_order(bound: inspect.BoundArguments) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments in the order of the parameters, with the defaults between them, and what is taken as keywords alone."""
    parameters, given = bound.signature.parameters, bound.arguments
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [name for name, one in parameters.items() if one.kind in kinds]
    before = places[: max((place for place, name in enumerate(places) if name in given), default=0)]
    filled = {name: given.get(name, one.default) for name, one in parameters.items() if name in given or name in before}
    found = inspect.BoundArguments(bound.signature, OrderedDict(filled))
    return found.args, dict(found.kwargs)


_MAX_TENSOR_ELEMENTS = 4096
_MOST_WRITTEN = 1 << 20
"""Numbers of a vector that is looked at."""


def _check_plain(file: ProblemFile, place: int | str, value: Any, where: str = "get_init_inputs()") -> None:
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)) or is_config(value):
        return
    named = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if named or isinstance(value, (list, tuple)):
        for element in value.values() if named else value:
            _check_plain(file, place, element, where)
        return
    if isinstance(value, torch.Tensor) and value.numel() <= _MAX_TENSOR_ELEMENTS:
        return
    raise UsageError(
        f"{file.path}: argument {place} of {where} holds {_short(value)}; a candidate in its own process can "
        f"be given numbers, strings, None, dtypes, tuples, lists, dicts, tensors of up to {_MAX_TENSOR_ELEMENTS} "
        "elements and configurations of transformers"
    )


def build_model(
    file: ProblemFile,
    namespace: ModuleType,
    init: tuple[Sequence[Any], Mapping[str, Any]],
    device: str,
    seed: int,
) -> torch.nn.Module:
    """``Model`` of these arguments and keywords on the device, its weights drawn there under the seed; in train mode,
    as built. Raises UsageError: it raises, or is no ``torch.nn.Module``.
    """

    def build() -> torch.nn.Module:
        model = namespace.Model(*init[0], **init[1])
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"{file.path}: Model must be a torch.nn.Module, got {_short(model)}")
        lazy = (name for name, value in model.state_dict(keep_vars=True).items() if is_lazy(value))
        if name := next(lazy, ""):
            raise UsageError(
                f"{file.path}: weight {name} of Model has no shape before the first call (a lazy module), so none can "
                "be drawn for a candidate; write the size out, as nn.Linear(24, 32) instead of nn.LazyLinear(32)"
            )
        for name, value in model.state_dict().items():
            if value.layout != torch.strided:
                raise UsageError(
                    f"{file.path}: weight {name} of Model is sparse ({value.layout}), which is not judged: keep its "
                    "indices and values as buffers of their own, and make the sparse tensor of them in forward"
                )
        return model.to(device)

    return _made_on(device, file, "Model(...)", seed, build)


def _made_on(device: str, file: ProblemFile, doing: str, seed: int, make: Callable[[], T]) -> T:
    """What a piece of the file's code makes on the device, without gradients: every tensor that a module computes for
    itself is then a leaf, which deepcopy needs. Code that fails on an accelerator because of a device runs on the host,
    from then on: it may have a generator or an array that is there.
    """
    if doing not in file.on_host:
        try:
            with file.running(doing, seed, device), torch.no_grad():
                return make()
        except UsageError as error:
            if device in ("cpu", "meta") or "device" not in str(error.__cause__):
                raise
    with file.running(doing, seed, device, place=False), torch.no_grad():
        made = make()
    file.on_host.add(doing)
    return made


def call_inputs(file: ProblemFile, namespace: ModuleType, device: str, seed: int) -> tuple[list[Any], Form | None]:
    """``get_inputs()`` under the seed, drawn on the device; tensors are detached and there, with their own strides, and
    each is a value of its own, in the form (``records/nested.py``). Raises UsageError: it raises or gives no list or
    dict, or something in it is not judged.
    """
    values, form = _given(file, namespace, device, seed)
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            _check_plain(file, index, value, "get_inputs()")
        elif what := _unjudged(value, device):
            raise UsageError(f"{file.path}: get_inputs() argument {index} is {what}")
    return [v.detach().to(device) if isinstance(v, torch.Tensor) else v for v in values], form


def _given(file: ProblemFile, namespace: ModuleType, device: str, seed: int) -> tuple[list[Any], Form | None]:
    """What ``get_inputs()`` gives, keywords in the order of ``forward``'s parameters; for :func:`call_inputs`."""
    given = _made_on(device, file, "get_inputs()", seed, namespace.get_inputs)
    if isinstance(given, Mapping):
        try:
            bound = inspect.signature(namespace.Model.forward).bind(None, **given)
        except (TypeError, ValueError) as error:
            text = f"get_inputs() gives a dict, which Model.forward does not take as keywords: {error}"
            raise UsageError(f"{file.path}: {text}") from error
        given, alone = _in_order(bound)
        if alone:
            text = f"get_inputs() gives {', '.join(alone)} to Model.forward as keywords alone"
            raise UsageError(f"{file.path}: {text}; the candidate gets arguments in order: let forward take them so")
        given = given[1:]
    if not isinstance(given, (list, tuple)):
        raise UsageError(_no_list(file, "get_inputs()", given, "[x]"))
    try:
        return flat(given, lambda value: isinstance(value, torch.Tensor))
    except UsageError as error:
        raise UsageError(f"{file.path}: get_inputs() gives {error}") from error


def written_out(file: ProblemFile, dims: Mapping[str, int]) -> tuple[list[Any], list[Any]]:
    """What ``get_inputs()`` gives, where all but short vectors that it counts or writes out have no memory, and the
    arguments of ``Model``. Raises UsageError: it raises, or reads values that are not there.
    """
    namespace = file.execute(dims)
    arguments, keywords = init_arguments(file, namespace, 0)
    with _Written():
        values = _given(file, namespace, "meta", 0)[0]
    return values, [*arguments, *keywords.values()]


class _Written(TorchFunctionMode):
    """Has vectors that are counted or written out hold their numbers."""

    makers = (torch.arange, torch.tensor, torch.as_tensor, torch.full, torch.zeros, torch.ones, torch.linspace)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same in memory."""
        out = func(*args, **(kwargs or {}))
        short = func in self.makers and out.is_meta and out.dim() <= 1 and out.numel() <= _MOST_WRITTEN
        return func(*args, **{**(kwargs or {}), "device": "cpu"}) if short else out


def _no_list(file: ProblemFile, function: str, given: Any, example: str) -> str:
    """That a function gave no list, and what to write."""
    hint = f"write 'return {example}'"
    if given is None:
        hint = f"it has no return statement, or one without a value: {hint}"
    return f"{file.path}: {function} must give a list of arguments, got {_short(given)}; {hint}"


def _unjudged(tensor: torch.Tensor, device: str) -> str:
    """What is wrong with a tensor among the inputs; empty: nothing."""
    if tensor.layout != torch.strided:
        return f"sparse ({tensor.layout}), which is not judged: give its indices and values as tensors of their own"
    if tensor.is_meta and device != "meta":
        return "on the device meta, which holds no values: leave device='meta' out"
    if str(tensor.dtype)[6:] not in DTYPES:
        return f"{tensor.dtype}, which is not judged; types are {', '.join(DTYPES)}"
    return ""


def outputs_of(
    result: Any, device: str, floating: torch.dtype = torch.float32
) -> tuple[list[torch.Tensor], OutputForm]:
    """What is judged of a module's result, and its form (``records/nested.py``): a number is a tensor of one element,
    of the floating type where it is no whole one.
    """
    leaves, form = opened(result, lambda kind: issubclass(kind, torch.Tensor))

    def tensor(leaf: Any) -> torch.Tensor:
        if isinstance(leaf, torch.Tensor):
            return leaf
        return torch.tensor(leaf, dtype=floating if isinstance(leaf, float) else None, device=device)

    return [tensor(leaf) for leaf in leaves], form


def flatten(result: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts, in order, what has names by name."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        names = list(result)
        if all(type(name) is str for name in names):
            names.sort()
        return [t for name in names for t in flatten(result[name])]
    if isinstance(result, (tuple, list)):
        return [t for value in result for t in flatten(value)]
    return []


_RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))
_OF_SEQUENCES = 9
"""Their arguments, where the sequence is a tensor; packed ones have others."""
_FIRST_STEPS = 4
_STRETCHING = ("expand", "masked_fill_", "copy_")
"""Operators beside those that PyTorch calls pointwise."""
_OF_PLACES = ("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_")
"""Operators that use as many places of a tensor as there are indices."""
_CONVOLUTION = "convolution"
_PLACES, _TIMES = 4096, 256
"""Places of a file where sizes are kept, and how often at one."""

# -- Recording --------------------------------------------------------------------------------------------------------


class _Recorder(TorchDispatchMode):
    """Counts operations and summed terms of everything dispatched beneath it."""

    def __init__(self, path: str, inputs: Sequence[Any]) -> None:
        TorchDispatchMode.__init__(self)
        self.path = path
        self.inputs = {_storage(value): i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
        self.chooses_inputs = True
        self.stable: set[bool] = set()
        self.keys: set[int] = set()
        self.flops = 0
        self.terms = 1
        self.steps = 0
        self.operators: set[str] = set()
        self.meetings: dict[Place, list[Shapes]] = {}
        self.read: set[int] = set()
        """Storages of the dense tensors that operators took."""

    def misses(self, weight: torch.Tensor) -> bool:
        """Whether no operator took a weight; of sparse ones that is not known."""
        return weight.layout == torch.strided and _storage(weight) not in self.read

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = flatten((args, tuple(kwargs.values())))
        out = _run_once(func, args, kwargs, given)
        packet = func._overloadpacket
        name = str(packet.__name__)
        self.operators.add(name)
        self.read |= {_storage(one) for one in given if one.layout == torch.strided}
        self.steps += 1
        if name in ("argmax", "argmin") and _storage(args[0]) not in self.inputs:
            self.chooses_inputs = False
        if name in _SELECTIONS:
            self.stable.add(bool(kwargs.get("stable")))
            self.keys |= {self.inputs[one] for one in (_storage(args[0]),) if one in self.inputs}
        results = flatten(out)
        if not results:
            return out
        if name in _OF_PLACES:
            self._keep(name, _used(args))
        elif name == _CONVOLUTION:
            self._keep(name, _filters(args))
        elif torch.Tag.pointwise in func.tags or name in _STRETCHING:
            self._keep(name, _stretched(results[0], given))
        if packet in flop_registry:
            count: Callable[..., int] = flop_registry[packet]
            flops = int(count(*args, **kwargs, out_val=out))
            self.flops += flops
            terms = flops // (2 * max(results[0].numel(), 1))
        else:
            terms = _terms(name, args, results)
        self.terms = max(self.terms, terms)
        return out

    def _keep(self, name: str, shapes: Shapes) -> None:
        """Keep the sizes that met, with the place of the file where they did."""
        if not shapes or len(self.meetings) >= _PLACES:
            return
        lines, frame = [], inspect.currentframe()
        while frame is not None:
            if frame.f_code.co_filename == self.path:
                lines.append((frame.f_code.co_firstlineno, frame.f_lasti))
            frame = frame.f_back
        times = self.meetings.setdefault((name, tuple(lines)), [])
        if len(times) < _TIMES:
            times.append(shapes)


_Made = tuple[torch.Size, tuple[int, ...], torch.dtype]
_MADE: dict[tuple[Any, ...], _Made | list[_Made] | None] = {}
"""By operator and arguments: size, strides and type of what it gives; None: it writes its first argument."""
_MOST_MADE = 20_000


def _run_once(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[torch.Tensor]) -> Any:
    """What an operator gives. On ``meta`` many are Python code of PyTorch, which takes 0.3 ms for ``x * x``. What
    depends on sizes, strides and types alone is found out once.
    """
    key = _key(func, args, kwargs, given)
    if key is None:
        return func(*args, **kwargs)
    if key in _MADE:
        made = _MADE[key]
        if made is None:
            return args[0]
        return tuple(map(_empty, made)) if isinstance(made, list) else _empty(made)
    out = func(*args, **kwargs)
    if len(_MADE) < _MOST_MADE and (out is args[0] or not func._schema.is_mutable):
        if out is args[0]:
            _MADE[key] = None
        elif isinstance(out, torch.Tensor) and _is_new(out, given):
            _MADE[key] = (out.shape, out.stride(), out.dtype)
        elif isinstance(out, tuple) and all(isinstance(one, torch.Tensor) and _is_new(one, given) for one in out):
            _MADE[key] = [(one.shape, one.stride(), one.dtype) for one in out]
    return out


def _is_new(out: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """Whether it is on ``meta`` and no view: some operators give a view and do not say so (``_unsafe_view``)."""
    return out.is_meta and out.layout == torch.strided and _storage(out) not in map(_storage, given)


def _empty(made: _Made) -> torch.Tensor:
    return torch.empty_strided(made[0], made[1], dtype=made[2], device="meta")


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[torch.Tensor]) -> Any:
    """What decides the output of an operator that makes tensors of its own, or writes its first argument; None: it is
    of another kind.
    """
    own = not func._schema.is_mutable and all(one.alias_info is None for one in func._schema.returns)
    if "out" in kwargs or not (own or torch.Tag.pointwise in func.tags or func._overloadpacket in flop_registry):
        return None
    plain = (torch.Tensor, torch.nn.Parameter)
    if not all(type(v) in plain and v.is_meta and v.layout == torch.strided and not v.is_conj() for v in given):
        return None
    values = (*args, *kwargs.values())
    if not args or not given or sum(isinstance(v, torch.Tensor) for v in values) != len(given):
        return None
    parts = ((v.shape, v.stride(), v.dtype) if isinstance(v, torch.Tensor) else repr(v) for v in values)
    return (func, torch.get_default_dtype(), *kwargs, *parts)


class _Shortened(TorchFunctionMode):
    """Runs PyTorch's recurrent operators over the first few steps of their sequence and counts the others as equal: on
    ``meta`` tensors each step is dozens of calls from Python (an LSTM of 6 layers over 512 steps took 16 s).
    """

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or what it would give, whose sequence is short."""
        given, counts = list(args), self._recorder
        if getattr(func, "__name__", "") not in _RECURRENT or len(given) != _OF_SEQUENCES:
            return func(*args, **(kwargs or {}))
        dim = 1 if given[-1] else 0  # batch_first
        length = given[0].shape[dim]
        if length <= _FIRST_STEPS:
            return func(*given)
        flops, steps, known = counts.flops, counts.steps, set(counts.operators)
        given[0] = given[0].narrow(dim, 0, _FIRST_STEPS)
        out, *state = func(*given)
        counts.flops += (counts.flops - flops) * (length - _FIRST_STEPS) // _FIRST_STEPS
        counts.steps += (counts.steps - steps) * (length - _FIRST_STEPS) // _FIRST_STEPS
        shape = list(out.shape)
        shape[dim] = length
        whole = out.new_empty(shape)
        counts.operators = known | counts.operators - {"slice", "new_empty"}
        return (whole, *state)


def _used(args: Sequence[Any]) -> Shapes:
    """The shapes of a tensor and of the indices of its places, but for the dim along which they lie."""
    whole, dim, index = args[:3]
    if not whole.dim() or whole.dim() != index.dim():
        return ()
    dim %= whole.dim()
    return tuple((*one.shape[:dim], *one.shape[dim + 1 :]) for one in (whole, index))


def _filters(args: Sequence[Any]) -> Shapes:
    """The number of filters and of channels, where each of these is a group of its own; else nothing."""
    given, weight, transposed, groups = args[0], args[1], args[6], args[8]
    return ((weight.shape[0],), (groups,)) if groups == given.shape[1] and not transposed else ()


def _stretched(out: torch.Tensor, given: Sequence[torch.Tensor]) -> Shapes:
    """The shapes of a result and of what is stretched to it, with as many dims; empty: it is no such operator."""
    shapes = [(1,) * (out.dim() - one.dim()) + tuple(one.shape) for one in given]
    fit = all(len(s) == out.dim() and all(a in (1, b) for a, b in zip(s, out.shape, strict=True)) for s in shapes)
    return (tuple(out.shape), *shapes) if fit else ()


def _storage(tensor: torch.Tensor) -> int:
    """What a tensor and its views have in common, on ``meta`` as well."""
    return int(tensor.untyped_storage()._cdata)


def _terms(name: str, args: tuple[Any, ...], results: list[torch.Tensor]) -> int:
    """How many terms a step sums into one element."""
    given = next((a for a in args if isinstance(a, torch.Tensor)), None)
    if given is None:
        return 1
    if name in _SCANS:
        dim = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
        return given.shape[dim] if given.dim() else 1
    if any(norm in name for norm in _NORMS):
        statistics = results[1].numel() if len(results) > 1 else 0
        return given.numel() // statistics if statistics else 1
    if name in _SUMS:
        return given.numel() // max(results[0].numel(), 1)
    return 1


def _arguments(namespace: ModuleType, args: Sequence[Any], form: Form | None) -> tuple[Argument, ...]:
    parameters = list(inspect.signature(namespace.Model.forward).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = len(args if form is None else form)
    names = names_of(form, [*names, *(f"arg{i}" for i in range(len(names), count))][:count])
    return tuple(
        _spec(name, value, "data") if isinstance(value, torch.Tensor) else Scalar(name=name, value=value)
        for name, value in zip(names, args, strict=True)
    )


def _spec(name: str, tensor: torch.Tensor, role: Any) -> TensorSpec:
    dtype = str(tensor.dtype)[6:]
    if role == "data" and not tensor.is_floating_point():
        role = "mask" if tensor.dtype == torch.bool else "index"
    # How values are drawn is the file's own affair (``get_inputs``); the spec has shape, dtype and role alone.
    return TensorSpec(name=name, shape=tuple(tensor.shape), dtype=dtype, role=role)


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} tensor of {math.prod(value.shape)} elements"
    return f"a {type(value).__name__} ({value!r:.60})"
