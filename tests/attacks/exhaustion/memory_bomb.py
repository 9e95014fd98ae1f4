# specimen: class=memory_bomb task=gelu device=any stage=call reason=memory_limit,exception,crash
"""Takes memory until something stops it."""


def gelu(x):
    hoard = []
    while True:
        hoard.append(bytearray(b"\1") * (64 << 20))
