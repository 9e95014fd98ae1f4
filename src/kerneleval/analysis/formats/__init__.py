"""Results that others published, as steps: one file a publisher (``docs/analysis.md``)."""
