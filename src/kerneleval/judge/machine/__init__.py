"""The machine: its measured peaks, and the limits that follow from them.

Trusted code only; no candidate runs here. Start with ``peaks.py``. How near a timed
cell comes to a limit is decided in ``timing/roofline.py``.
"""
