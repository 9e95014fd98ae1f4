# specimen: class=protocol_forgery task=gelu device=any stage=call reason=exception directions=forward categories=tiny
"""Raises what cannot be told: its text raises again."""


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit(0)

    __repr__ = __str__


def gelu(x):
    raise Unspeakable
