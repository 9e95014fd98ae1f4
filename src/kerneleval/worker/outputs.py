"""Outputs of a candidate's call: flattened, and compared with the expected number, types, shapes and dtypes.

Values are compared by the judge alone (``judge/oracle/comparison.py``); what is said here is a claim.
"""

from __future__ import annotations

from typing import Any

__all__ = ["flatten", "mismatch", "written"]


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


def written(result: Any) -> list[Any]:
    """The outputs of a call, every element in a place of its own: a view that repeats elements (stride 0, or
    windows that overlap) is written out here, while the clock runs, and not by its reader.
    """
    import torch

    outputs = flatten(result)
    for position, output in enumerate(outputs):
        strided = type(output) is torch.Tensor and output.layout is torch.strided
        if strided and not output.is_contiguous() and _repeats(output):
            outputs[position] = output.contiguous()
    return outputs


def _repeats(tensor: Any) -> bool:
    """Whether two elements may lie in one place: by strides from the smallest on, each must step over all before."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def mismatch(outputs: list[Any], wanted: list[Any], device: str) -> dict[str, str] | None:
    """What is wrong with the form of a call's outputs: ``what``, ``got``, ``want``; None: nothing."""
    import torch

    if len(outputs) != len(wanted):
        return {"what": "count", "got": f"{len(outputs)} outputs", "want": f"{len(wanted)}"}
    for position, (output, spec) in enumerate(zip(outputs, wanted, strict=True)):
        if type(output) not in (torch.Tensor, torch.nn.Parameter):  # a subclass may compute when it is collected
            return {"what": "type", "got": f"output {position} is a {type(output).__name__}", "want": "a tensor"}
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
