"""Operators that quantise, and products of weights in few bits."""
