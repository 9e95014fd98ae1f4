"""Stage 8b, beyond scores: what changed between candidates, what success depends on (``docs/analysis.md``)."""
