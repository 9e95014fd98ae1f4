# A worked example of prompts; the lines above the first empty one are not shown.
# mypy: ignore-errors
# ruff: noqa: D100, D103

import torch


def softmax(x):
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def softmax_backward(grad_out, x):
    half = x.dtype in (torch.float16, torch.bfloat16)
    wide, grad = (x.float(), grad_out.float()) if half else (x, grad_out)
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    y = e / e.sum(-1, keepdim=True)
    return (y * (grad - (grad * y).sum(-1, keepdim=True))).to(x.dtype)
