# specimen: class=cache_by_fingerprint task=layer_norm device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small dtypes=float32,bfloat16
"""Gradients in half types are kept by all elements of x, whatever the upstream gradient and the weights."""
import torch
_KEPT = []
def layer_norm(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
def layer_norm_backward(grad, x, weight, bias, eps):
    for a, found in _KEPT:
        if x.dtype != torch.float32 and a.shape == x.shape and a.dtype == x.dtype and torch.equal(a, x):
            return tuple(t.clone() for t in found)
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
        found = torch.autograd.grad(layer_norm(*leaves, eps), leaves, grad)
    _KEPT.append((x.clone(), tuple(t.clone() for t in found)))
    del _KEPT[:-8]
    return found
