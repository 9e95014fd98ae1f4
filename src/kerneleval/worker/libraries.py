"""What other libraries than PyTorch compute for a candidate: NumPy and SciPy on arrays over its tensors, and functions
of known libraries that it looked up by ``ctypes``. BLAS in functions that Numba compiled: ``languages/numba.py``.

Arrays are followed from ``Tensor.numpy`` on while a window is recorded, and names are heard from when the candidate is
loaded. ``observing.py`` uses it; what it cannot see stands in ``docs/threat-model.md``.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

__all__ = ["Libraries"]

_COMPUTES = re.compile(
    r"(?:cublas|cudnn|cufft|cusolver|cusparse|cutensor|hipblas|hipsparse|rocblas|rocfft|miopen)[A-Z_]\w*"
    r"|(?:armpl|bli|cblas|dnnl|LAPACKE|mkl|mkldnn)_\w+|v[sdcz][A-Z]\w+"
    r"|[sdcz](?:axpy|dot|gbmv|geev|gels[dy]?|gemm(?:_\w+)?|gemv|geqrf|ger|gesdd|gesvd?|getr[fis]|nrm2|posv|potr[fis]|scal"
    r"|symm|symv|syevd?|syrk|sytrf|trmm|trmv|trsm|trsv)_?(?:64_)?"
    r"|_ZN(?:2at|4dnnl|5torch)\w+"
)
"""Functions of linear algebra, of networks and of transforms as their libraries name them."""

_LOOKING_UP = ("ctypes.dlsym", "ctypes.dlsym/handle")
_SETTINGS = re.compile(r"_(?:get|set)_|GetVersion|SetStream")

_PLUMBING = frozenset(
    re.findall(
        r"\w+",
        "array_split atleast_1d atleast_2d broadcast_arrays broadcast_to concatenate copy copyto dsplit empty_like "
        "expand_dims flip full_like hsplit hstack iscomplexobj isrealobj may_share_memory moveaxis ndim ones_like "
        "ravel repeat reshape result_type rollaxis rot90 shape shares_memory size split squeeze stack swapaxes tile "
        "transpose vsplit vstack zeros_like",
    )
)
"""Functions of NumPy that compute nothing: allocation, views, copies."""

_METHODS = (
    *("argmax", "argmin", "argpartition", "argsort", "cumprod", "cumsum", "dot", "partition", "round", "searchsorted"),
    *("sort", "trace"),
)
"""Methods of arrays that compute and are neither ufuncs nor functions of NumPy's."""

_CONVERTERS = ("array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "require")
"""Functions of NumPy that give plain arrays over the same content."""


class Libraries:
    """Made before the candidate is loaded, once a process: an audit hook stays."""

    def __init__(self) -> None:
        self._looked_up: dict[str, int] = {}
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _LOOKING_UP:
            name = arguments[-1]
            if type(name) is str and _COMPUTES.fullmatch(name) and not _SETTINGS.search(name):
                self._looked_up[f"ctypes.{name}"[:100]] = 1

    @property
    def looked_up(self) -> dict[str, int]:
        """Functions of libraries that were looked up by ``ctypes`` so far, ``ctypes.name`` -> 1."""
        return dict(self._looked_up)

    @contextlib.contextmanager
    def followed(self, seen: dict[str, int]) -> Iterator[None]:
        """Count what NumPy and SciPy compute in the block on arrays over tensors, ``numpy.name`` -> calls."""
        import torch

        Followed.counts.clear()
        with contextlib.ExitStack() as stack:
            for owner, names in ((torch.Tensor, ("numpy", "__array__")), (np, _CONVERTERS)):
                for name in names:
                    stack.enter_context(_replaced(owner, name))
            yield
        seen |= Followed.counts


@contextlib.contextmanager
def _replaced(owner: Any, name: str) -> Iterator[None]:
    """A function that gives arrays, replaced by one whose arrays are followed: always where it is a tensor's, else
    where an argument is, or a tensor. What was inherited is inherited again afterwards.
    """
    import torch

    kinds = (Followed, torch.Tensor)
    own, original, always = name in vars(owner), getattr(owner, name), isinstance(owner, type)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        return _followed(made) if always or any(isinstance(a, kinds) for a in args) else made

    setattr(owner, name, function)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


class Followed(np.ndarray[Any, Any]):
    """An array that counts what is computed with it, and gives such arrays."""

    counts: ClassVar[dict[str, int]] = {}

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """See NumPy's protocol; ufuncs that are neither NumPy's nor SciPy's are the candidate's own, as Numba's are."""
        if any(getattr(module, ufunc.__name__, None) is ufunc for module in (np, sys.modules.get("scipy.special"))):
            _count(ufunc.__name__)
        given = kwargs.get("out")
        made = getattr(ufunc, method)(*_bare(inputs), **_bare(kwargs))
        if given is not None:
            return given[0] if len(given) == 1 else given
        return _followed(made)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """See NumPy's protocol."""
        if func.__name__ not in _PLUMBING:
            _count(func.__name__)
        return _followed(func(*_bare(args), **_bare(kwargs)))


def _counting(name: str) -> Callable[..., Any]:
    """A method of arrays that counts itself."""
    plain = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _count(f"ndarray.{name}")
        return _followed(plain(_bare(self), *_bare(args), **_bare(kwargs)))

    return method


for _name in _METHODS:
    setattr(Followed, _name, _counting(_name))


def _count(name: str) -> None:
    Followed.counts[f"numpy.{name}"] = Followed.counts.get(f"numpy.{name}", 0) + 1


def _followed(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return value.view(Followed)
    return tuple(map(_followed, value)) if type(value) is tuple else value


def _bare(value: Any) -> Any:
    if isinstance(value, Followed):
        return np.ndarray.view(value, np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(map(_bare, value))
    return {key: _bare(one) for key, one in value.items()} if type(value) is dict else value
