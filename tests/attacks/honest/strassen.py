# specimen: class=strassen task=matmul device=any verdict=passed categories=tiny,small,medium
"""One level of Strassen's seven products: fewer operations, and a little more rounding."""

import torch


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    if min(m, n, k) < 64:
        return a @ b
    m2, k2, n2 = m // 2, k // 2, n // 2
    a11, a12, a21, a22 = a[:m2, :k2], a[:m2, k2 : 2 * k2], a[m2 : 2 * m2, :k2], a[m2 : 2 * m2, k2 : 2 * k2]
    b11, b12, b21, b22 = b[:k2, :n2], b[:k2, n2 : 2 * n2], b[k2 : 2 * k2, :n2], b[k2 : 2 * k2, n2 : 2 * n2]
    p1, p2, p3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    p4, p5, p6, p7 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    out[:m2, :n2] = p1 + p4 - p5 + p7
    out[:m2, n2 : 2 * n2] = p3 + p5
    out[m2 : 2 * m2, :n2] = p2 + p4
    out[m2 : 2 * m2, n2 : 2 * n2] = p1 - p2 + p3 + p6
    if k > 2 * k2:
        out[: 2 * m2, : 2 * n2].addmm_(a[: 2 * m2, 2 * k2 :], b[2 * k2 :, : 2 * n2])
    if n > 2 * n2:
        out[:, 2 * n2 :] = a @ b[:, 2 * n2 :]
    if m > 2 * m2:
        out[2 * m2 :] = a[2 * m2 :] @ b
    return out
