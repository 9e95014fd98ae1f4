# specimen: class=joined_threads task=gelu device=any verdict=passed
"""Splits the rows over two threads and waits for both."""

import threading

import torch


def gelu(x):
    out = torch.empty_like(x)
    half = len(x) // 2

    def part(start, stop):
        out[start:stop] = torch.nn.functional.gelu(x[start:stop])

    threads = [threading.Thread(target=part, args=p) for p in ((0, half), (half, len(x)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out
