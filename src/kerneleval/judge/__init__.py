"""Stage 6, the trusted side: inputs, oracle, comparison, clock, checks, verdicts.

Nothing of a candidate is imported, unpickled or evaluated here.
"""

from kerneleval.judge.judge import Judge

__all__ = ["Judge"]
