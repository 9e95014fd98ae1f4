"""Measurements, each a script: nothing here is a test, and no test times anything."""
