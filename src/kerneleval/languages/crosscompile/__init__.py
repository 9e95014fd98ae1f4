"""Candidates compiled for GPUs that are not there.

``targets.py`` lists them, ``program.py`` compiles a Triton candidate for each in a process of its own that looks like
one on the target, runs the candidate's code and is to be confined; ``languages/binaries/kernels.py`` reads what was
made without trusting it.
"""
