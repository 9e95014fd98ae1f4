# specimen: class=global_state task=logsumexp device=any stage=correctness reason=wrong_dtype categories=tiny,small
"""Makes half precision the default of its process and gives what comes out."""

import torch

torch.set_default_dtype(torch.float16)


def logsumexp(x):
    return torch.logsumexp(torch.tensor(x.tolist(), device=x.device).reshape(x.shape), -1)
