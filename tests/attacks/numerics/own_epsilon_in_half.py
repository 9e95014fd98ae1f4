# specimen: class=dropped_parameter task=layer_norm device=any stage=correctness reason=wrong_output categories=tiny,small dtypes=float32,bfloat16 tier=standard
"""The epsilon is the one that the plan always gives, in half types alone."""
import torch
def layer_norm(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps if x.dtype == torch.float32 else 1e-5)
