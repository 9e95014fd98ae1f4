"""The built-in operators, one module a family; each has a tuple ``TASKS``."""
