"""What scores share: cells, intervals, the registry. Plugins stand one level up, one score or family a file."""
