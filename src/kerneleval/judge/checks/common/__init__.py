"""What the checks share: their registry."""
