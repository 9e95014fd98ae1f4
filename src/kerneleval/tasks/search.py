"""Finds tasks by what they are, and by words."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kerneleval.records import Task, UsageError, near
from kerneleval.tasks.real_shapes import real_shapes


@dataclass(frozen=True, kw_only=True)
class Query:
    """What tasks must be; an empty field demands nothing; of several values in a field one is enough."""

    categories: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    complexities: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    real: bool = False
    text: str = ""
    """Words of which each is somewhere in the name or the formula, in any case."""

    def select(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of the tasks that meet all of it, in their order. Raises UsageError: no task has the text."""
        tasks = list(tasks)
        if self.text and not any(self._holds(task) for task in tasks):
            hint = near("_".join(self.text.split()), [task.name for task in tasks], see="kerneleval tasks")
            raise UsageError(f"--search {self.text!r} is in no task's name or formula; {hint}")
        return [task for task in tasks if self._met(task)]

    def _met(self, task: Task) -> bool:
        wanted: tuple[tuple[Collection[object], Collection[object]], ...] = (
            (self.categories, (task.category,)),
            (self.groups, (task.group,)),
            (self.sources, (task.source,)),
            (self.levels, (task.level,)),
            (self.complexities, (task.complexity,)),
            (self.dtypes, task.dtypes),
            (self.directions, task.directions),
        )
        if self.real and not real_shapes(task):
            return False
        return self._holds(task) and all(not asked or set(asked) & set(own) for asked, own in wanted)

    def _holds(self, task: Task) -> bool:
        where = f"{task.name} {task.summary}".casefold()
        return all(word in where for word in self.text.casefold().split())
