# specimen: class=crash task=gelu device=any stage=call reason=exit
"""Leaves with exit code 0, which some harnesses take for success."""
import os


def gelu(x):
    os._exit(0)
