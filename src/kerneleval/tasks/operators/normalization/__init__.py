"""Normalisations and softmaxes."""
