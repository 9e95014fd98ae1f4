"""What other libraries than PyTorch compute for a candidate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kerneleval.worker.libraries import _COMPUTES, _SETTINGS, Followed, Libraries


@pytest.fixture(scope="module")
def libraries() -> Libraries:
    return Libraries()


def _seen(libraries: Libraries, compute: Callable[[torch.Tensor], object]) -> set[str]:
    seen: dict[str, int] = {}
    with libraries.followed(seen):
        compute(torch.arange(9.0).view(3, 3))
    assert not isinstance(torch.zeros(2).numpy(), Followed) and "numpy" not in vars(torch.Tensor)
    return set(seen)


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda x: x.numpy() @ x.numpy(), "numpy.matmul"),
        (lambda x: np.asarray(x) + 1.0, "numpy.add"),
        (lambda x: np.ascontiguousarray(x.numpy().T).dot(np.ones((3, 3))), "numpy.ndarray.dot"),
        (lambda x: np.einsum("ij,jk->ik", np.array(x), x.numpy()), "numpy.einsum"),
        (lambda x: x.numpy().sum(), "numpy.add"),
        (lambda x: np.linalg.solve(x.numpy() + np.eye(3), x.numpy()), "numpy.solve"),
        (lambda x: np.exp(x.numpy(), out=np.empty((3, 3), np.float32)), "numpy.exp"),
        (lambda x: np.sort(x.numpy().astype(np.float64).reshape(-1)[::-1]), "numpy.sort"),
        (lambda x: np.fft.rfft(x.numpy()), "numpy.rfft"),
    ],
)
def test_what_numpy_computes_is_counted(
    libraries: Libraries, compute: Callable[[torch.Tensor], object], name: str
) -> None:
    assert name in _seen(libraries, compute)


def test_views_and_copies_are_no_work(libraries: Libraries) -> None:
    def plumbing(x: torch.Tensor) -> None:
        y = np.empty_like(np.ascontiguousarray(x.numpy().T))
        y[...] = x.numpy().reshape(3, 3)
        np.copyto(y, np.concatenate([x.numpy()[:1], np.zeros_like(y)[1:]]))
        torch.from_numpy(y)

    assert _seen(libraries, plumbing) == set()


def test_the_values_and_types_are_numpys(libraries: Libraries) -> None:
    x = torch.arange(6.0).view(2, 3)
    with libraries.followed({}):
        y = x.numpy()
        quotient, rest = np.divmod(y, 2)
        assert torch.from_numpy(y).data_ptr() == x.data_ptr()
        y *= 2
        total = y.sum()
    assert total == 30 and x.sum() == 30 and isinstance(total, np.float32)
    assert quotient.tolist() == [[0, 0, 1], [1, 2, 2]] and rest.tolist() == [[0, 1, 0], [1, 0, 1]]


def test_own_ufuncs_are_no_library(libraries: Libraries) -> None:
    own = np.frompyfunc(lambda v: v * 2, 1, 1)
    assert _seen(libraries, lambda x: own(x.numpy())) == set()


@pytest.mark.parametrize(
    "name", ["sgemm_", "cblas_dgemm", "cublasSgemm_v2", "cudnnConvolutionForward", "vsExp", "dgetrf_"]
)
def test_functions_of_libraries_are_known_by_their_names(name: str) -> None:
    assert _COMPUTES.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["strlen", "strtod", "system", "malloc", "cuLaunchKernel", "nvrtcCompileProgram", "sin"]
)
def test_others_are_not(name: str) -> None:
    assert not _COMPUTES.fullmatch(name)


def test_settings_are_no_work() -> None:
    assert _SETTINGS.search("openblas_get_num_threads") and _SETTINGS.search("mkl_set_num_threads")
