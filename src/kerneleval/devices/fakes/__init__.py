"""Fakes of what vendors' devices are driven through, beside the real ones: ``docs/hardware.md`` says what they cover.

A fake stands in for the functions that a device file calls, not for the hardware: tensors are the CPU's. Each of its
functions takes what the real one takes; whatever a device file calls that the fake does not have, or with arguments
that the real function would not take, is an error.
"""

from __future__ import annotations

from kerneleval.devices.fakes.devices import FAKES, Fake, FakeMetal, FakeRocm, FakeXpu
from kerneleval.devices.fakes.hip import Hip
from kerneleval.devices.fakes.namespace import Namespace

__all__ = ["FAKES", "Fake", "FakeMetal", "FakeRocm", "FakeXpu", "Hip", "Namespace"]
