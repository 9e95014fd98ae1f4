"""Operators whose outputs depend on the elements at their own place alone, and tensors made from nothing."""
