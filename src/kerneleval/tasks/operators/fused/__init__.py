"""Fusions: chains, layers, mixtures of experts."""
