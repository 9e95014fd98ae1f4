"""Static analysis: what is looked for in a candidate's sources, and how Python and native sources are read for it.

Nothing is run and nothing decided here: ``checks/code.py`` makes findings of it. Start with ``rules.py``.
"""
