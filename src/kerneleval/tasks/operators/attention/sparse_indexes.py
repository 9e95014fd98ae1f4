"""What sparse attention is to visit: blocks of keys and single columns, as lists that its kernels walk through."""

from __future__ import annotations

import torch

from kerneleval.tasks.define import fixed, operator, plain, size, whole
from kerneleval.tasks.relations import resampling

Tensor = torch.Tensor


def _listed(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many are chosen, and these in ascending order with -1 behind them."""
    most = torch.iinfo(values.dtype).max
    found = torch.where(chosen, values, most).sort(-1).values
    return chosen.sum(-1, dtype=values.dtype), torch.where(found == most, -1, found)


def _vertical_slash(vertical: Tensor, slash: Tensor, blocks: int, block: int) -> tuple[Tensor, ...]:
    numbers = torch.arange(blocks, dtype=slash.dtype, device=slash.device)
    first = numbers[:, None] * block - slash[..., None, :]
    crossed = torch.zeros((*slash.shape[:-1], blocks, blocks + 1), dtype=torch.bool, device=slash.device)
    for end in (first, first + block - 1):
        place = end.div(block, rounding_mode="floor")
        crossed.scatter_(-1, torch.where(place < 0, blocks, place).long(), True)
    crossed = crossed[..., :-1]
    columns = vertical[..., None, :].expand(*vertical.shape[:-1], blocks, -1)
    inside = crossed.gather(-1, columns.div(block, rounding_mode="floor").long())
    alone = ~inside & (columns < (numbers[:, None] + 1) * block)
    return (*_listed(numbers.expand(crossed.shape), crossed), *_listed(columns, alone))


TASKS = (
    operator(
        "convert_vertical_slash_indexes",
        "elementwise",
        "out0, out1 = how many blocks of keys the diagonals query - key = slash[k] cross in block m of queries, and "
        "which, then -1; out2, out3 = how many of vertical are seen there beside these, and which, then -1",
        dims=(
            fixed("B", high=4),
            fixed("H", high=8),
            size("M", low=2, high=128),
            size("V", high=512),
            size("K", high=128),
            fixed("S", low=2, high=16),
        ),
        args=(
            whole("vertical", "B H V", 0, "M * S"),
            whole("slash", "B H K", 0, "M * S"),
            plain("blocks", formula="M"),
            plain("block", formula="S"),
        ),
        out=("B H M", "B H M M", "B H M", "B H M V"),
        reference=_vertical_slash,
        flops="4 * B * H * M * (K + V + M)",
        exact=True,
        dtypes=("int64", "int32"),
        no_backward="whole numbers have no gradient",
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, dict.fromkeys(range(4), 0)),),
        source="vllm",
        group="Index",
        complexity=2,
    ),
)
