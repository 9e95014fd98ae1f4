"""Convolutions and transposed convolutions."""
