"""Operators that draw, and sampling from logits."""
