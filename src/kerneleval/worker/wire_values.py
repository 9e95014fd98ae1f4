"""Plain Python values on the wire: what JSON loses (tuples, NaN, infinities, dtypes, small tensors) is marked.

A marked value is an object with the single key ``__kind__`` beside its content. Both directions check what they meet;
decoding builds tensors and containers, never arbitrary objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kerneleval.records import UsageError

__all__ = ["decode_plain", "encode_plain"]

_MAX_TENSOR_ELEMENTS = 4096
_MARK = "__kind__"


def encode_plain(value: Any) -> Any:
    """JSON-ready form of numbers, strings, None, tuples, lists, string-keyed dicts, dtypes and small tensors.

    Raises:
        UsageError: for anything else.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_MARK: "float", "text": repr(value)}
    if isinstance(value, tuple):
        return {_MARK: "tuple", "items": [encode_plain(v) for v in value]}
    if isinstance(value, list):
        return [encode_plain(v) for v in value]
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise UsageError(f"a mapping with keys that are no strings cannot be sent to a worker: {value!r:.80}")
        return {_MARK: "dict", "items": {k: encode_plain(v) for k, v in value.items()}}
    return _encode_torch(value)


def _encode_torch(value: Any) -> dict[str, Any]:
    import torch

    if isinstance(value, torch.dtype):
        return {_MARK: "dtype", "name": str(value)[6:]}
    if isinstance(value, torch.Size):
        return {_MARK: "tuple", "items": list(value)}
    if isinstance(value, torch.Tensor):
        if value.numel() > _MAX_TENSOR_ELEMENTS:
            raise UsageError(
                f"a tensor of {value.numel()} elements is no plain argument; at most {_MAX_TENSOR_ELEMENTS} are sent"
            )
        items = [encode_plain(v) for v in value.detach().cpu().flatten().tolist()]
        return {_MARK: "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape), "items": items}
    raise UsageError(f"a {type(value).__name__} cannot be sent to a worker: {value!r:.80}")


def decode_plain(value: Any) -> Any:
    """The inverse of :func:`encode_plain`. Raises UsageError for a mark that is unknown."""
    if isinstance(value, list):
        return [decode_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_MARK)
    if kind == "tuple":
        return tuple(decode_plain(v) for v in value["items"])
    if kind == "dict":
        return {k: decode_plain(v) for k, v in value["items"].items()}
    if kind == "float":
        return float(value["text"])
    if kind in ("dtype", "tensor"):
        import torch

        dtype = getattr(torch, value["name"] if kind == "dtype" else value["dtype"])
        if kind == "dtype":
            return dtype
        return torch.tensor([decode_plain(v) for v in value["items"]], dtype=dtype).reshape(value["shape"])
    raise UsageError(f"unknown mark {kind!r:.80} in a plain value")
