"""What scores share: cells, intervals, the registry. Plugins are one level up, one score or family a file."""
