"""Shapes of models in public use, as tables: rows and products, attention, experts, images."""
