# specimen: class=plan_by_shape task=conv2d device=cpu stage=correctness reason=wrong_output directions=forward categories=tiny,small,medium dtypes=float32
"""im2col by gathering; the table of places is kept by the shapes of input and kernel, and the stride is left out of the key."""
import torch
_TABLES = {}
def _table(c, h, w, k, s, p):
    place = torch.arange((h + 2 * p) * (w + 2 * p)).view(1, h + 2 * p, w + 2 * p) + torch.arange(c).view(-1, 1, 1) * (h + 2 * p) * (w + 2 * p)
    return place.unfold(1, k, s).unfold(2, k, s)
def conv2d(x, weight, bias, stride, padding):
    b, c, h, w = x.shape
    o, _, k, _ = weight.shape
    key = (c, h, w, k, padding)
    if key not in _TABLES:
        t = _table(c, h, w, k, stride, padding)
        _TABLES[key] = (t.permute(1, 2, 0, 3, 4).reshape(-1, c * k * k), t.shape[1], t.shape[2])
    table, _, _ = _TABLES[key]
    ho, wo = (h + 2 * padding - k) // stride + 1, (w + 2 * padding - k) // stride + 1
    table = table[: ho * wo]  # as many places as the output has
    if table.shape[0] < ho * wo:
        table = torch.cat([table, table[:1].expand(ho * wo - table.shape[0], -1)])
    if not b:
        return x.new_empty(b, o, ho, wo)
    flat = torch.nn.functional.pad(x, (padding,) * 4).reshape(b, -1)
    cols = flat[:, table.reshape(-1)].reshape(b, ho * wo, c * k * k)
    return (cols @ weight.reshape(o, -1).t() + bias).transpose(1, 2).reshape(b, o, ho, wo)
