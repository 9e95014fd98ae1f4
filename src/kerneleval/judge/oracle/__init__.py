"""The oracle: what must come out of a call, how far an output may be from it, and what a wrong output looks like.

It runs trusted references only, in fp64 beside the native type, and never talks to a worker. Start with
``reference.py`` (expectations), then ``comparison.py`` (the rule); every constant of the rule is in ``expectation.py``.
"""
