"""Timing: how fast right cells are, against the baseline, with an interval and a claim.

Only cells that passed come here. Whether the outputs of timed windows are right is decided by ``pair.py``; the
limits of the machine come from ``machine``. Start with ``timer.py``, then ``clock.py`` (blocks) and ``statistics.py``.
"""
