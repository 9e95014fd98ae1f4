"""Attention, its caches and positions, and what models use in its place (state spaces, linear attention)."""
