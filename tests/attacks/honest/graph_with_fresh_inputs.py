# specimen: class=graph_with_copies task=gelu device=cuda verdict=passed timed=yes
"""Replays a captured graph after copying the new input into its static buffer, and clones what comes out."""

import torch

graphs = {}


def gelu(x):
    if x.numel() == 0:
        return torch.empty_like(x)
    key = x.shape, x.dtype
    if key not in graphs:
        static = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        static.copy_(x)
        torch.nn.functional.gelu(static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.nn.functional.gelu(static)
        graphs[key] = graph, static, out
    graph, static, out = graphs[key]
    static.copy_(x)
    graph.replay()
    return out.clone()
