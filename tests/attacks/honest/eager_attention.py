# specimen: class=half_scores task=grouped_query_attention device=any verdict=passed directions=forward,backward categories=small
"""Hugging Face's eager_attention_forward: repeat_kv, matmul * scaling, softmax in fp32, cast back, matmul."""
import torch


def repeat_kv(x, n):
    b, g, s, d = x.shape
    return x if n == 1 else x[:, :, None].expand(b, g, n, s, d).reshape(b, g * n, s, d)


def grouped_query_attention(q, k, v, scale):
    n = q.shape[1] // k.shape[1]
    k, v = repeat_kv(k, n), repeat_kv(v, n)
    w = torch.matmul(q, k.transpose(2, 3)) * scale
    w = torch.nn.functional.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(w, v)
