"""Self-tests of tasks: whether a task passes what is right and notices what is wrong.

No worker and no candidate: references and planted bugs only. Start with ``task_selftest.py``;
``planting.py`` plants the bugs, ``mutants.py`` says which of them must be rejected.
"""
