"""Built-in operators: a folder a kind, in it a module a family, with a tuple ``TASKS``.

The folder helps a reader to find a family; what counts is each task's own ``category``. ``tasks/__init__.py`` finds
tasks by name.
"""
