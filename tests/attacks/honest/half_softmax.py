# specimen: class=half_scores task=attention device=any verdict=passed directions=forward,backward categories=small dtypes=bfloat16
"""GPT-2's eager attention: scaled queries, scores and softmax in the input's type (sums inside in fp32); autograd."""
import torch
def attention(q, k, v, scale):
    a = torch.matmul(q, k.transpose(-1, -2)) * scale
    return torch.matmul(torch.softmax(a, -1), v)
