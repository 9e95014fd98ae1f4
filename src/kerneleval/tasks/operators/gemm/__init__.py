"""Matrix products, BLAS, and what is composed of products."""
