# specimen: class=hang task=gelu device=any stage=call reason=timeout,protocol
"""It computes nothing, and says for its worker, over and over, that something is being compiled."""
import contextlib
import os
import socket
import stat
import time


def _channels():
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                yield socket.socket(fileno=os.dup(number))
        except OSError:
            pass


def gelu(x):
    channels = list(_channels())
    said = b'{"op":"compiling"}'
    while True:
        for channel in channels:
            with contextlib.suppress(OSError):  # not every socket of a process has another end
                channel.send(len(said).to_bytes(4, "little") + said)
        time.sleep(0.01)
