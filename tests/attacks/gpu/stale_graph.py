# specimen: class=stale_graph task=gelu device=cuda stage=correctness reason=wrong_output
"""Captures a graph at the first call of a shape and replays it on the buffers of that call."""

import torch

graphs = {}


def gelu(x):
    if x.numel() == 0:
        return torch.empty_like(x)
    if x.shape not in graphs:
        static = x.clone()
        torch.nn.functional.gelu(static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.nn.functional.gelu(static)
        graphs[x.shape] = graph, out, static
    graph, out, _ = graphs[x.shape]
    graph.replay()
    return out.clone()
