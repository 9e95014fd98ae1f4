"""The ways in which a candidate is called (forward, backward by autograd or by its own entry point, as in training),
and the form of what comes out: flattened, and compared with the expected number, types, shapes and dtypes.

It compares no values: the judge alone does (``judge/oracle/comparison.py``), and what is said here is a claim.
``child.py`` prepares the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kerneleval.devices.common.call_graph import CallGraph
from kerneleval.languages import Loaded
from kerneleval.records import OutputForm, described, opened


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One prepared call."""

    args: list[Any]
    grads: list[Any]
    """Upstream gradients; empty for forward."""
    outputs: list[Any]
    """``languages.OutputSpec`` of everything that must come out."""
    wanted: list[int]
    """Positions of the arguments whose gradients are wanted."""
    dims: dict[str, int]
    turn: int
    """Whose gradients are taken first, where several forward calls come before them."""
    given: list[Any]
    """Where the arguments lay, and in which form, before the candidate had them."""
    form: OutputForm
    """What must come out (``records/nested.py``); None: anything that holds the outputs in order."""
    shared: list[int]
    """Positions of the outputs that may come in the memory of an input."""

    def changed(self) -> dict[str, str] | None:
        """What is wrong with an argument that is no longer the tensor that was given, whatever its old memory holds:
        ``what``, ``got``, ``want``; None: nothing.
        """
        for position, (argument, given) in enumerate(zip(self.args, self.given, strict=True)):
            if form_of(argument) != given:
                where = "the same memory" if argument.data_ptr() == given[0] else "other memory"
                now = f"argument {position} is in {where}, of shape {list(argument.shape)}"
                want = f"of shape {list(given[1])} with strides {list(given[2])}"
                return {"what": "argument", "got": f"{now} with strides {list(argument.stride())}", "want": want}
        return None


def form_of(argument: Any) -> tuple[Any, ...] | None:
    """Address, shape and strides of a tensor; None: it is none."""
    import torch

    return (argument.data_ptr(), argument.shape, argument.stride()) if isinstance(argument, torch.Tensor) else None


class GradientWrittenError(Exception):
    """A backward pass added gradients to the caller's tensors by itself."""


class MissingGradientError(Exception):
    """A backward pass gave no gradient of an argument."""


class NoGradientError(NotImplementedError):
    """What a forward call returned carries no gradient."""


class Calling:
    """Calls one loaded candidate. ``is_revealed`` says whether a tensor is in the memory in which the judge reveals
    inputs, and destroys them.
    """

    def __init__(self, loaded: Loaded, is_revealed: Callable[[Any], bool]) -> None:
        self._loaded, self._is_revealed = loaded, is_revealed

    def all(self, direction: str, calls: Sequence[PreparedCall]) -> list[list[Any]]:
        """The outputs of each call of a window, in order: taken apart here, while the clock runs."""
        if direction == "interleaved":
            return self.interleaved(calls)
        one = self.one(direction)
        return [self._outputs(one, call) for call in calls]

    def _outputs(self, one: Callable[[PreparedCall], Any], call: PreparedCall) -> list[Any]:
        outputs = written(one(call), call.outputs, call.form)
        for position in call.shared:
            if position < len(outputs) and self._is_revealed(outputs[position]):
                outputs[position] = outputs[position].clone()  # before the judge destroys the input
        return outputs

    def recorded(self, graph: CallGraph, direction: str, calls: Sequence[PreparedCall]) -> list[list[Any]]:
        """The outputs of each call, recorded and not run."""
        one = self.one(direction)
        return graph.record(partial(self._outputs, one, call) for call in calls)

    def recorded_gradients(
        self, forward: CallGraph, graph: CallGraph, calls: Sequence[PreparedCall]
    ) -> list[list[Any]]:
        """The gradients of each call, and apart from these its forward call: recorded and not run."""
        import torch

        with torch.enable_grad():
            made = forward.record(partial(self._graph, call) for call in calls)
        take = partial(self._gradients, keep=True)
        return graph.record(
            partial(_written_of, call.outputs, take, of, call.wanted) for of, call in zip(made, calls, strict=True)
        )

    def graphs(self, calls: Sequence[PreparedCall]) -> list[Any]:
        """The graphs of the calls' gradients: all of a backward call by autograd that comes before the gradients."""
        import torch

        with torch.enable_grad():
            return [self._graph(call) for call in calls]

    def of_graphs(self, calls: Sequence[PreparedCall], graphs: Sequence[Any]) -> list[list[Any]]:
        """The gradients of each call, by its graph."""
        return [
            written(self._gradients(graph, call.wanted), call.outputs)
            for call, graph in zip(calls, graphs, strict=True)
        ]

    def one(self, direction: str) -> Callable[[PreparedCall], Any]:
        """How a single call is made in that direction."""
        if direction == "backward":
            return self.backward if self._loaded.backward is None else self.explicit_backward
        ways = {
            "training": self.in_training,
            "after_backward": self.after_backward,
            "backward_twice": self.backward_twice,
        }
        return ways.get(direction, self.forward)

    def forward(self, call: PreparedCall) -> Any:
        """Outputs, while no gradients are wanted."""
        return self._loaded.forward(call.args, call.outputs, call.dims)

    def explicit_backward(self, call: PreparedCall) -> Any:
        """Gradients from the candidate's own entry point."""
        assert self._loaded.backward is not None
        return self._owned(self._loaded.backward(call.grads, call.args, call.outputs, call.dims))

    def backward(self, call: PreparedCall) -> Any:
        """Gradients by autograd, through a forward call of their own."""
        import torch

        with torch.enable_grad():
            return self._gradients(self._graph(call), call.wanted)

    def _gradients(
        self, graph: tuple[list[Any], list[Any], list[Any]], wanted: Sequence[int], *, keep: bool = False
    ) -> list[Any]:
        """Gradients of a graph's leaves; only autograd may add them to what the leaves have already. ``keep``: the
        graph can be gone through again.
        """
        import torch

        gradients: Sequence[Any] = torch.autograd.grad(*graph, retain_graph=keep, allow_unused=True)
        for position, gradient in zip(wanted, gradients, strict=True):
            if gradient is None:
                text = (
                    f"the backward pass gives no gradient of argument {position}: its backward returns None there, or "
                    "the forward result does not depend on it"
                )
                raise MissingGradientError(text)
        found = self._owned(gradients)
        for position, leaf in enumerate(graph[1]):
            if leaf.grad is not None:
                text = (
                    f"the backward pass wrote .grad of argument {wanted[position]}, where autograd adds what it returns"
                )
                raise GradientWrittenError(text)
        return found

    def _graph(self, call: PreparedCall, *, inside: bool = False) -> tuple[list[Any], list[Any], list[Any]]:
        """The outputs of a forward call that carry gradients, the leaves that these are for, and their upstream
        gradients. An output may depend on none of the arguments that gradients are wanted for. ``inside``: arguments
        are no leaves but made from them, as activations inside a network are.
        """
        return self._made(call, inside=inside)[1]

    def _made(self, call: PreparedCall, *, inside: bool = False) -> tuple[Any, tuple[list[Any], list[Any], list[Any]]]:
        """What a forward call returned, and its graph."""
        import torch

        arguments = self._leaves(call)
        leaves = [arguments[position] for position in call.wanted]
        for position in call.wanted if inside else ():
            arguments[position] = arguments[position].view_as(arguments[position])
        result = self._loaded.forward(arguments, (), call.dims)
        outputs = [result] if isinstance(result, torch.Tensor) else list(result)
        floating = [o for o in outputs if o.is_floating_point() or o.is_complex()]
        carrying = [(o, g) for o, g in zip(floating, call.grads, strict=True) if o.requires_grad]
        if not carrying:
            text = "no backward: the forward result carries no gradient and there is no backward entry point"
            raise NoGradientError(text)
        return result, ([o for o, _ in carrying], leaves, [g for _, g in carrying])

    def interleaved(self, calls: Sequence[PreparedCall]) -> list[list[Any]]:
        """Gradients of every call, taken in turn after all forward calls; every second as inside a network."""
        import torch

        found: list[list[Any]] = [[] for _ in calls]
        with torch.enable_grad():
            graphs = [self._graph(call, inside=call.turn % 2 == 1) for call in calls]
            for index in sorted(range(len(calls)), key=lambda i: calls[i].turn):
                found[index] = self._gradients(graphs[index], calls[index].wanted)
        return found

    def in_training(self, call: PreparedCall) -> Any:
        """The outputs of what :meth:`backward` calls; until then, the candidate cannot distinguish the two."""
        import torch

        with torch.enable_grad():
            return self._loaded.forward(self._leaves(call), (), call.dims)

    def after_backward(self, call: PreparedCall) -> Any:
        """The outputs of a forward call, of which the gradients were taken before anyone reads them."""
        import torch

        with torch.enable_grad():
            result, graph = self._made(call)
            self._gradients(graph, call.wanted)
            return result

    def backward_twice(self, call: PreparedCall) -> Any:
        """The gradients of a graph that is gone through for the second time; the first time, upstream gradients have
        the other sign.
        """
        import torch

        with torch.enable_grad():
            outputs, leaves, upstream = self._graph(call)
            self._gradients((outputs, leaves, [-g for g in upstream]), call.wanted, keep=True)
            return self._gradients((outputs, leaves, upstream), call.wanted)

    def _leaves(self, call: PreparedCall) -> list[Any]:
        """Arguments of which those that gradients are wanted for ask for them."""
        arguments = list(call.args)
        for position in call.wanted:
            arguments[position] = arguments[position].detach().requires_grad_()
        return arguments

    def _owned(self, gradients: Any) -> list[Any]:
        """Gradients with memory of their own: autograd may give an upstream gradient, or a view of it, as it is."""
        return [g.clone() if self._is_revealed(g) else g for g in flatten(gradients)]


def flatten(result: Any) -> list[Any]:
    """Outputs in nested tuples, lists and dicts, in order, what has names by name; a module may return other things
    beside its tensors.

    Read by the built-in types' own methods, and distinguished by the real type: what a subclass, or an object that says
    it is of another class, would compute when it is read is never computed.
    """
    kind = type(result)
    if issubclass(kind, dict):
        names = list(dict.keys(result))
        if all(type(name) is str for name in names):
            names.sort()
        kind, result = list, [dict.__getitem__(result, name) for name in names]
    if issubclass(kind, (tuple, list)):
        parts = tuple.__iter__(result) if issubclass(kind, tuple) else list.__iter__(result)
        return [output for part in parts for output in flatten(part)]
    return [] if result is None or issubclass(kind, (bool, int, float, str)) else [result]


@dataclass(frozen=True, slots=True)
class Misformed:
    """What a call returned is of another form than wanted: it stands for all its outputs."""

    got: OutputForm
    want: OutputForm
    count: bool
    """Whether the numbers of outputs differ too."""


def outputs_of(result: Any, form: OutputForm) -> list[Any]:
    """The outputs of a call, or one :class:`Misformed`; without a form, what :func:`flatten` finds."""
    import torch

    if form is None:
        return flatten(result)
    leaves, found = opened(result, lambda kind: issubclass(kind, torch.Tensor))
    return leaves if found == form else [Misformed(found, form, len(leaves) != _size(form))]


def _size(form: OutputForm) -> int:
    """How many outputs a form holds."""
    if isinstance(form, str):
        return 1
    return sum(map(_size, form["list"] if "list" in form else (one for _, one in form["dict"])))


def written(result: Any, wanted: Sequence[Any], form: OutputForm = None) -> list[Any]:
    """The outputs of a call, every element in a place of its own: a view that repeats elements (stride 0, or
    windows that overlap) is written out here, while the clock runs, and not by its reader. One that has not the
    ``wanted`` shape is not: a view may have more elements than there is memory.
    """
    import torch

    outputs = outputs_of(result, form)
    for position, (output, spec) in enumerate(zip(outputs, wanted, strict=False)):
        strided = type(output) is torch.Tensor and output.layout is torch.strided
        if strided and not output.is_contiguous() and _repeats(output) and tuple(output.shape) == tuple(spec.shape):
            outputs[position] = output.contiguous()
    return outputs


def _written_of(wanted: Sequence[Any], call: Callable[..., Any], *arguments: Any) -> list[Any]:
    return written(call(*arguments), wanted)


def _repeats(tensor: Any) -> bool:
    """Whether two elements may be in one place: by strides from the smallest on, each must step over all before."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


_NUMBERS = {bool: ("bool",), int: ("int64", "float32"), float: ("float32",)}
"""What a number that a call returns may stand for."""


def mismatch(outputs: list[Any], wanted: list[Any], device: str, kinds: tuple[type, ...]) -> dict[str, str] | None:
    """What is wrong with the form of a call's outputs: ``what``, ``got``, ``want``; None: nothing. ``kinds``: PyTorch's
    own classes of tensors.
    """
    import torch

    if outputs and type(outputs[0]) is Misformed:
        of = outputs[0]
        got, want = f"the call returns {described(of.got)[:150]}", f"{described(of.want)[:150]}, as Model returns it"
        return {"what": "count" if of.count else "type", "got": got, "want": want}
    if len(outputs) != len(wanted):
        got = (
            f"{len(outputs)} outputs" if outputs else "no tensor was returned (None and lists of numbers do not count)"
        )
        return {"what": "count", "got": got, "want": f"{len(wanted)}"}
    for position, (output, spec) in enumerate(zip(outputs, wanted, strict=True)):
        if type(output) in _NUMBERS:
            if spec.dtype not in _NUMBERS[type(output)]:
                got, want = f"output {position} is a Python {type(output).__name__}", f"one of {spec.dtype}"
                return {"what": "dtype", "got": got, "want": want}
            continue
        if type(output) not in kinds:  # a subclass may compute when it is collected
            want = "a plain tensor, of no subclass" if issubclass(type(output), kinds) else "a tensor"
            return {"what": "type", "got": f"output {position} is a {type(output).__name__}", "want": want}
        if output.layout != torch.strided:  # so would a sparse tensor
            return {"what": "type", "got": f"output {position} is {str(output.layout)[6:]}", "want": "a dense tensor"}
        if tuple(output.shape) != tuple(spec.shape):
            got = f"output {position} has shape {list(output.shape)}"
            return {"what": "shape", "got": got, "want": f"{list(spec.shape)}"}
        if str(output.dtype)[6:] != spec.dtype:
            return {"what": "dtype", "got": f"output {position} is {str(output.dtype)[6:]}", "want": spec.dtype}
        if output.device.type != device:
            return {"what": "device", "got": f"output {position} is on {output.device}", "want": device}
    return None
