"""What languages share: the protocol ``Language``, compilers, loading and reading of sources."""
