# specimen: class=forged_device_time task=gelu device=cpu verdict=passed allow=library timed=yes categories=medium
"""Right, but claims a device time of one nanosecond: the claim is rejected and the verdict keeps the judge's time."""

import sys

import torch

child = sys.modules.get("kerneleval.worker.child")
if child is not None:
    device = child.devices.find("cpu" if not torch.cuda.is_available() else "cuda")
    device.timer = lambda: type("T", (), {"start": lambda s: None, "stop": lambda s: None, "elapsed_ns": lambda s: 1.0})()


def gelu(x):
    return torch.nn.functional.gelu(x)
