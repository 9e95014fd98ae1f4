"""Fourier and Hadamard transforms, and what is composed of them."""
