# specimen: class=lazy_output task=gelu device=any categories=tiny,small stage=correctness reason=wrong_type
"""A subclass of Tensor whose work is done when it is collected."""

import torch


class Lazy(torch.Tensor):
    def detach(self):
        return torch.nn.functional.gelu(self.as_subclass(torch.Tensor).detach())


def gelu(x):
    return x.clone().as_subclass(Lazy)
