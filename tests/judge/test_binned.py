"""Elements at edges of bins, at the ends, in one bin or in few, or all of them counted: kernels that only such rows
find wrong, and honest ones.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.judge.conftest import called, drawn, planned

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.judge.windows import inputs
from kerneleval.records import BINNED, Case, TensorSpec
from kerneleval.tasks import find
from kerneleval.tasks.shapes import Budget

Tensor = torch.Tensor
CPU = Budget(memory_bytes=4 << 20, flops=150_000_000)
"""Of one case on two cores."""


def binned(name: str, dtype: str = "", distribution: str = "binned") -> list[Case]:
    """The quick tier's cases of a task under ``binned`` in its first dtype or another."""
    task = find(name)
    options: dict[str, Any] = {"tier": "quick", "dtypes": (dtype or task.dtypes[0],), "directions": ("forward",)}
    return [c for c in planned(task, CPU, **options) if c.distribution == distribution]


def passes(case: Case, candidate: Callable[..., Any]) -> bool:
    task = find(case.task)
    args, _ = drawn(task, case, 1)
    return isinstance(compare(called(candidate, args), reference.expect(task, case, args)), Match)


def rows_of(spec: TensorSpec, seed: int = 5) -> Tensor:
    case = dataclasses.replace(binned("bucketize")[0], distribution="binned")
    (x,) = inputs.draw((spec,), case, seed, "cpu")
    return x


def test_seven_rows_have_seven_structures() -> None:
    spec = TensorSpec(name="x", shape=(7, 512), dtype="float32", along=(1,), edges=(-2.0, 2.0, 0.5))
    x = rows_of(spec)
    alike = [float(row[0]) for row in x if len(row.unique()) == 1]
    assert len(alike) == 3 and {-2.0, 2.0} <= set(alike)
    kinds = [set(row.tolist()) for row in x]
    assert {-2.0, 2.0} in kinds
    assert sum(1 < len(kind) <= 3 for kind in kinds) == 2, "both ends, and few bins"
    edges = torch.arange(-2, 2.5, 0.5)
    near = next(row for row in x if len(row.unique()) > 15)
    distance = (near[:, None] - edges).abs().amin(1)
    assert int((distance == 0).sum()) > 100 and int((distance > 0).sum()) > 200 and float(distance.max()) < 1e-6
    assert any(len(row.unique()) > 5 and bool((row.diff() >= 0).all()) for row in x)
    whole = dataclasses.replace(spec, values="integers", low=0, high=9, edges=(0.0, 8.0, 4.0), dtype="int32")
    assert rows_of(whole).aminmax() == (0, 8)


@pytest.mark.parametrize("name", ["bincount", "histc", "histogram_rows", "bucketize", "count_greater", "count_below"])
def test_every_structure_comes_in_every_dtype(name: str) -> None:
    """Of a vector each case has one: there are as many cases."""
    task = find(name)
    for dtype in task.dtypes:
        cases = binned(name, dtype)
        met = set()
        for case in cases:
            spec = next(s for s in task.arguments(case.dims_map, dtype) if isinstance(s, TensorSpec))
            rows = spec.numel // math.prod(spec.shape[dim] for dim in spec.along)
            met |= {(row + sum(spec.shape)) % BINNED for row in range(rows)}
        assert met == set(range(BINNED))


def _last_edge_dropped(x: Tensor, bins: int, high: int) -> Tensor:
    return torch.histc(x[x < high], bins, 0, high)


def _narrow_counters(x: Tensor, bins: int, high: int) -> Tensor:
    return torch.histc(x, bins, 0, high) % 65536


def _bytes(x: Tensor, bins: int) -> Tensor:
    """Counts in eight bits for every 256 elements, as blocks keep them in shared memory."""
    parts = [_histogram(part, bins) % 256 for part in x.split(256, 1)]
    return torch.stack(parts).sum(0)


def _histogram(x: Tensor, bins: int) -> Tensor:
    counts = torch.zeros(len(x), bins, dtype=torch.int64)
    return counts.scatter_add_(1, x.long(), torch.ones_like(x, dtype=torch.int64))


def _right(x: Tensor, bounds: int) -> Tensor:
    boundaries = (torch.arange(bounds) - bounds // 2).to(x.dtype) / 4
    return torch.bucketize(x, boundaries, right=True)


def _not_below(x: Tensor, y: Tensor) -> Tensor:
    return torch.searchsorted(x.sort().values, y, right=True)


def _last_run_lost(x: Tensor, bins: int) -> Tensor:
    """Adds a run of equal elements up when the next one begins, and the last one only where it is short."""
    starts = torch.cat((torch.tensor([0]), (x.diff() != 0).nonzero()[:, 0] + 1, torch.tensor([len(x)])))
    lengths = starts.diff()
    lengths[-1] = min(int(lengths[-1]), 64)
    return torch.bincount(x[starts[:-1]], lengths.double(), bins).long()


@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("histc", _last_edge_dropped),
        ("histc", _narrow_counters),
        ("histogram_rows", _bytes),
        ("bucketize", _right),
        ("count_greater", lambda x, value: (x >= value).sum(-1)),
        ("count_below", _not_below),
        ("bincount", _last_run_lost),
    ],
)
def test_what_only_binned_rows_find(name: str, candidate: Callable[..., Any]) -> None:
    cases = binned(name)
    if candidate is not _last_edge_dropped:  # uniform data has the last edge once in a while
        assert passes(dataclasses.replace(cases[0], distribution="standard"), candidate), "it is wrong everywhere"
    assert not all(passes(case, candidate) for case in cases)


def _scaled(x: Tensor, bins: int, high: int) -> Tensor:
    place = (x[(x >= 0) & (x <= high)] * bins / high).long().clamp(max=bins - 1)
    return torch.bincount(place, minlength=bins).to(x.dtype)


def _one_place_more(x: Tensor, bins: int, high: int) -> Tensor:
    """What lies outside is counted in a bin of its own, which is left out."""
    place = torch.floor(x * (bins / high)).int().clamp(-1, bins)
    place = torch.where(x == high, bins - 1, place)
    return torch.bincount(place.long() + 1, minlength=bins + 2)[1:-1].to(x.dtype)


def _search(x: Tensor, bounds: int) -> Tensor:
    low, high = torch.zeros_like(x, dtype=torch.int64), torch.full_like(x, bounds, dtype=torch.int64)
    while bool((low < high).any()):
        middle = (low + high) // 2
        below = (middle - bounds // 2).to(x.dtype) / 4 < x
        below |= x.isnan()
        low, high = torch.where(below & (low < high), middle + 1, low), torch.where(below, high, middle)
    return low


@pytest.mark.parametrize(
    ("name", "candidate"),
    [
        ("histc", _scaled),
        ("histc", _one_place_more),
        ("histogram_rows", lambda x, bins: torch.stack([torch.bincount(row.long(), minlength=bins) for row in x])),
        ("bucketize", _search),
        ("count_greater", lambda x, value: (x.double() - value > 0).sum(-1)),
        ("count_below", lambda x, y: (x[:, :, None] < y[:, None]).sum(1)),
        ("bincount", lambda x, bins: torch.stack([(x == k).sum() for k in range(bins)])),
    ],
)
def test_other_right_ways_pass(name: str, candidate: Callable[..., Any]) -> None:
    for dtype in find(name).dtypes:
        assert all(passes(case, candidate) for case in binned(name, dtype)), dtype


# -- Numbers outside all bins ----------------------------------------------------------------------------------------


def _counted(place: Tensor, bins: int) -> Tensor:
    return torch.bincount(place[(place >= 0) & (place < bins)].long(), minlength=bins)


_OUTSIDE: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "above": lambda x, bins, high: _counted((x * bins / high).floor().clamp(max=bins - 1), bins).to(x.dtype),
    "below": lambda x, bins, high: torch.histc(x.clamp(min=0), bins, 0, high),
    "cut": lambda x, bins, high: _counted((x[x <= high] * bins / high).long().clamp(max=bins - 1), bins).to(x.dtype),
}


@pytest.mark.parametrize("kind", _OUTSIDE)
def test_numbers_outside_all_bins_are_in_none(kind: str) -> None:
    """Taken into the last or the first bin, or cut to 0 where their bin would be the one below it."""
    for dtype in find("histc").dtypes:
        case = binned("histc", dtype)[0]
        assert not passes(dataclasses.replace(case, distribution="standard"), _OUTSIDE[kind])


def test_a_mirrored_histogram_is_the_same() -> None:
    """Numbers outside stay outside, and the last edge is in the last bin."""
    (relation,) = [one for one in find("histc").relations if one.name == "reflection"]
    x = torch.arange(-9.0, 18).repeat_interleave(torch.arange(1, 28))
    mirrored, *_ = relation.transform((x, 2, 8), torch.Generator())
    assert torch.histc(mirrored, 2, 0, 8).equal(torch.histc(x, 2, 0, 8).flip(0))


# -- Counters that wrap ----------------------------------------------------------------------------------------------


def _masked_mean(x: Tensor, keep: Tensor, most: int) -> Tensor:
    count = keep.sum(-1) % most
    return torch.where(count > 0, x.masked_fill(~keep, 0).float().sum(-1) / count.clamp(min=1), 0).to(x.dtype)


def _nanmean(x: Tensor, most: int) -> Tensor:
    return (x.float().nansum(-1) / ((~x.isnan()).sum(-1) % most)).to(x.dtype)


_COUNTERS: dict[str, Callable[..., Tensor]] = {
    "masked_mean": _masked_mean,
    "nanmean": _nanmean,
    "count_nonzero": lambda x, most: (x != 0).sum(-1) % most,
    "count_greater": lambda x, value, most: (x > value).sum(-1) % most,
    "histogram_rows": lambda x, bins, most: _histogram(x, bins) % most,
    "bincount": lambda x, bins, most: torch.bincount(x, minlength=bins) % most,
    "cumsum_flags": lambda x, most: x.cumsum(-1) % most,
    "hamming_distance": lambda x, y, most: (x != y).sum(-1) % most,
}


@pytest.mark.parametrize("name", _COUNTERS)
def test_counters_that_wrap_are_found(name: str) -> None:
    for dtype in find(name).dtypes:
        if (name, dtype) == ("hamming_distance", "int64"):
            continue  # two such arguments do not fit
        (case,) = binned(name, dtype, "full")
        for bits in (12, 15) if dtype == "float16" else (12, 15, 16):
            assert not passes(case, functools.partial(_COUNTERS[name], most=1 << bits)), (dtype, bits)
        assert passes(case, functools.partial(_COUNTERS[name], most=1 << 32)), dtype


def test_rows_are_counted_whole() -> None:
    spec = TensorSpec(name="x", shape=(2, 512), dtype="int32", values="integers", low=-2, high=3)
    case = dataclasses.replace(binned("bucketize")[0], distribution="full")
    for seed in range(20):
        (x,) = inputs.draw((spec,), case, seed, "cpu")
        assert len(x.unique()) == 1 and bool((x != 0).all())
        (kept,) = inputs.draw((dataclasses.replace(spec, values="bool", dtype="bool"),), case, seed, "cpu")
        assert bool(kept.all())
