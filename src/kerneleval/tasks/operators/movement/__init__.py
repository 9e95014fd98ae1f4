"""Operators that move, pick, join, pad or resize what they are given."""
