"""Binaries: what compiled candidates use of a processor, and for which other GPUs they compile.

What a candidate may have written is read by confined processes alone. Nothing here decides whether a candidate is
right. Start with ``uses.py`` (a judged candidate) or ``portability.py`` (GPUs that are not here).
"""
