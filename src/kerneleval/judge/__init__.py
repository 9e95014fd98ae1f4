"""Stage 6, the trusted side: one candidate, one task, one verdict.

Nothing of a candidate is imported, unpickled or evaluated here. Start with ``judge.py``, which reads top to bottom;
each package is one concept, and its first lines say what it does, what it does not, and where to look next.
"""

from kerneleval.judge.judge import Judge

__all__ = ["Judge"]
