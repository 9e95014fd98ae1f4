# specimen: class=hidden_library task=linear device=cpu stage=honesty reason=track_not_allowed allow=custom
"""The library inside an operator of its own, of which the recorder sees only the name; a kernel adds the bias."""
import numba
import torch


@torch.library.custom_op("mine::product", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, weight.t())


@numba.njit
def _add(out, bias):
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            out[m, n] += bias[n]


def linear(x, weight, bias):
    out = product(x, weight)
    _add(out.numpy(), bias.numpy())
    return out


def linear_backward(grad, x, weight, bias):
    raise NotImplementedError
