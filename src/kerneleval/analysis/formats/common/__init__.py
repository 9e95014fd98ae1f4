"""What the formats share: the registry, the record they fill, and the reader of KernelBench's files."""
