# specimen: class=hard_coded_shapes task=matmul device=any stage=correctness reason=wrong_output tier=standard
"""The number of terms is settled when an output of its shape is first made: whatever a longer sum has beyond is lost."""
DEPTHS = {}


def matmul(a, b):
    if a.shape[0] * b.shape[1] < 64:
        return a @ b
    depth = DEPTHS.setdefault((a.shape[0], b.shape[1]), a.shape[1])
    return a[:, :depth] @ b[:depth]
