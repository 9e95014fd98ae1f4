# specimen: class=crash task=gelu device=any stage=call reason=exception
"""Raises SystemExit(0)."""
import sys


def gelu(x):
    sys.exit(0)
