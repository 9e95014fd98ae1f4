"""Stage 5, the candidate's side: zygote, worker process, and the wire between worker and judge.

Everything a worker says is a claim. Nothing here knows inputs, seeds, references or verdicts; the sandbox around a
worker is in ``sandbox``. Start with ``host.py`` (the trusted end of the wire), then ``child.py`` (the worker).
"""
