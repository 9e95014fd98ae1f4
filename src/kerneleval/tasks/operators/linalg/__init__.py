"""Factorisations, solvers and spectra of matrices."""
