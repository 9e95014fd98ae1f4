"""Reductions, scans, sorts, counts and pools."""
