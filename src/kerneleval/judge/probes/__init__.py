"""Probes: one case of a task, judged in windows, and the adversarial repeats around it.

They decide whether a candidate is right at one case. They time nothing and look for no cheating beyond the case:
``timing`` and ``checks`` do. Start with ``cells.py``, which judges a case and calls the others.
"""
