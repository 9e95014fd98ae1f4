"""Stage 4, the sandbox: what holds untrusted processes.

Users, namespaces, seccomp, Landlock, limits, and the end of every process. It knows nothing of candidates, tasks or
verdicts. Start with ``lifecycle.py`` (a worker's sandbox) or ``jail.py`` (a coding agent's).
"""
