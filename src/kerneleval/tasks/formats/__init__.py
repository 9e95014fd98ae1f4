"""Readers of peers' task formats, one module a format; each has ``read(path) -> Task``."""
