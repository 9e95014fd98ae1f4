"""Self-tests of tasks: whether a task passes what is right and notices what is wrong.

No worker and no candidate: references and planted bugs only. Start with ``task_selftest.py``;
``mutants.py`` plants the bugs and says which of them must be rejected.
"""
