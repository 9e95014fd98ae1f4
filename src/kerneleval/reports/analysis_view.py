"""Analyses for people: attribution, difficulty, hardware, sources, rubric. Each takes the plain data of its record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.analysis.difficulty import PROXIES
from kerneleval.analysis.rubric import AXES, LEVELS
from kerneleval.reports.tables import grid, show
from kerneleval.reports.text import MISSING, count, figure, number, plural, safe, share, span
from kerneleval.scores.common.cells import by_key

Plain = Mapping[str, Any]

_SHOWN = 20
"""Rows of a long table; the JSON document has all."""

_REASONS = 4
"""Reasons for having no level that are shown of each axis."""

_NAME = 60
"""Characters of a name that comes from a file."""


def _named(name: Any) -> Text:
    return Text(safe(str(name), _NAME).replace("\n", " "))


def _dim(text: str) -> Text:
    return Text(safe(text), style="dim")


def _p(value: Any) -> str:
    p = number(value)
    return MISSING if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _reasons(said: Iterable[tuple[str, str]], console: Console, *, of: int = 0, who: str = "") -> None:
    """(note, what it is of) pairs, each note once; what it is of is left out where that is everything."""
    for note, whats in by_key(filter(lambda one: one[0], said)).items():
        console.print(_dim(f"  {who}{note}" + (f" ({', '.join(whats)})" if len(whats) != of else "")))


def _more(shown: int, total: int, noun: str, console: Console) -> None:
    if total > shown:
        console.print(_dim(f"  and {plural(total - shown, noun)} more: --json has all"))


def render_analyses(found: Plain, console: Console) -> None:
    """Print what :func:`kerneleval.pipeline.analyse` gives."""
    for one in found["attribution"]:
        render_attribution(one, console)
    render_difficulty(found["difficulty"], console)
    render_sources(found["sources"], console)
    render_compiled(found["compiled"], console)
    render_rubric(found["rubric"], console)
    render_hardware(found["hardware"], console)


# -- Attribution ------------------------------------------------------------------------------------------------------


def render_attribution(found: Plain, console: Console) -> None:
    """Print a :class:`kerneleval.analysis.attribution.Attribution`, given as plain data."""
    words = {"category": f"{found['taxonomy']} of the operator", "method": "method (generator)", "both": "both"}

    def build(narrow: bool) -> Table:
        title = "What correctness follows: logistic models"
        wide = ["McFadden's pseudo-R²", "adjusted", "parameters", "p of chi-squared", "p of permutation"]
        table = grid(title, "Known of a pair", ["R²", "adj.", "df", "p", "p perm."] if narrow else wide, narrow=narrow)
        for name, said in words.items():
            model = found[name]
            table.add_row(
                Text(said),
                figure(number(model["pseudo_r2"])),
                figure(number(model["adjusted_r2"])),
                str(model["parameters"]) if model["levels"] else MISSING,
                _p(model["against_null"]["p"]),
                _p(model["p_permuted"]),
            )
        return table

    show(console, build)
    right = found["right"]
    line = Text.assemble("  right: ", share(right), _dim(f" of {plural(right['n'], 'pair')}"))
    if not math.isnan(ratio := number(found["ratio"])):
        line.append(f"; {safe(found['taxonomy'], _NAME)} explains {figure(ratio)} times as much as method")
    console.print(line)
    for name, said in (
        ("category_beyond_method", "what category adds to method"),
        ("method_beyond_category", "what method adds to category"),
    ):
        test = found[name]
        chi2 = f"χ²({test['df']}) = {figure(number(test['statistic']))}, p {_p(test['p'])}"
        console.print(_dim(f"  {said}: {test['note'] or chi2}"))
    for name, said in words.items():
        if found[name]["note"]:
            console.print(_dim(f"  {said}: {found[name]['note']}"))
    if found["note"]:
        console.print(_dim(f"  {found['note']}"))
    console.print()
    for name in ("category", "method"):
        _levels(name, found, console)


def _levels(name: str, found: Plain, console: Console) -> None:
    """Each level with its share, and its coefficient in the model on both."""
    both = {level["level"]: level for level in found["both"]["levels"] if level["factor"] == name}
    own = [level for level in found[name]["levels"] if level["factor"] == name]
    if not own:
        return
    title = "By " + (found["taxonomy"] if name == "category" else "method")
    columns = ["right", "pairs", "log odds (of both)", "error"]
    table = grid(f"{title}, the most often right first", "", columns, overflow="fold")
    ordered = sorted(own, key=lambda level: -level["right"] / level["n"])
    for level in ordered[:_SHOWN]:
        model = both.get(level["level"], {"coefficient": "nan", "error": "nan", "note": ""})
        value, error = number(model["coefficient"]), number(model["error"])
        table.add_row(
            _named(level["level"]),
            f"{100 * level['right'] / level['n']:.0f} %",
            str(level["n"]),
            Text(model["note"], style="dim") if model["note"] else figure(value),
            figure(error),
        )
    console.print(table)
    _more(_SHOWN, len(ordered), "level", console)
    console.print()


# -- Difficulty -------------------------------------------------------------------------------------------------------


def render_difficulty(found: Plain, console: Console) -> None:
    """Print a :class:`kerneleval.analysis.difficulty.Difficulty`, given as plain data."""

    def build(narrow: bool) -> Table:
        title = "What goes with failure: rank correlations over tasks"
        table = grid(title, "Proxy", ["Spearman's ρ", "tasks", "p", "adjusted p"], narrow=narrow)
        for one in found["correlations"]:
            rho = span(one["rho"], narrow=narrow)
            if number(one["p_adjusted"]) < 0.05:
                rho.stylize("bold")
            table.add_row(PROXIES[one["proxy"]], rho, str(one["rho"]["n"]), _p(one["p"]), _p(one["p_adjusted"]))
        return table

    show(console, build)
    _reasons(((one["rho"]["note"], PROXIES[one["proxy"]]) for one in found["correlations"]), console)
    console.print(_dim("  above 0: tasks with more of it fail more often; bold: significant at 5 %"))
    if found["note"]:
        console.print(_dim(f"  {found['note']}"))
    console.print()
    tasks = found["tasks"]

    def hardest(narrow: bool) -> Table:
        names = {"complexity": "K", "arguments": "arguments", "output_rank": "rank", "flop_per_byte": "FLOP/byte"}
        names |= {"reference_lines": "lines", "reference_nodes": "nodes"}
        if narrow:
            names = {"complexity": "K", "flop_per_byte": "FLOP/byte", "reference_lines": "lines"}
        table = grid("Tasks, the hardest first", "Task", ["right", "of", *names.values()], narrow=narrow)
        for task in tasks[:_SHOWN]:
            figures = [_plain(task["proxies"][name]) for name in names]
            right = f"{100 * number(task['right']):.0f} %"
            table.add_row(_named(task["task"]), right, str(task["attempts"]), *figures)
        return table

    show(console, hardest)
    _more(_SHOWN, len(tasks), "task", console)
    console.print()


def _plain(value: Any) -> str:
    """Whole numbers without decimals."""
    of = number(value)
    return f"{of:.0f}" if of == round(of, 0) else figure(of) if not math.isnan(of) else MISSING


# -- Hardware ---------------------------------------------------------------------------------------------------------


def render_hardware(found: Plain, console: Console) -> None:
    """Print a :class:`kerneleval.analysis.hardware.Hardware`, given as plain data."""
    _render_spreads(found, console)
    cv = found["cv"]
    if math.isnan(number(cv["value"])):
        console.print(Text(f"Speedup over machines: not evaluated: {safe(cv['note'])}"))
        console.print()
        return
    machines = list(found["machines"].values())
    kernels = [one for one in found["kernels"] if not math.isnan(number(one["cv"]))]

    def build(narrow: bool) -> Table:
        columns: list[str | Text] = ["kernel", *(_named(m) for m in machines), "best / worst", "CV", "cells"]
        table = grid("Speedup over machines, the most variable first", "Task", columns, narrow=narrow)
        for one in kernels[:_SHOWN]:
            ratio = span(one["ratio"], "x", narrow=narrow)
            if one["beyond_noise"]:
                ratio.stylize("bold")
            speeds = [figure(number(one["speedups"].get(machine)), "x") for machine in machines]
            spread = figure(number(one["cv"])), str(one["cells"])
            table.add_row(_named(one["task"]), _named(one["candidate"][:8]), *speeds, ratio, *spread)
        return table

    show(console, build)
    _more(_SHOWN, len(kernels), "kernel", console)
    console.print(Text.assemble("  median CV: ", span(cv), _dim(f" of {plural(cv['n'], 'kernel')}")))
    console.print(_dim("  bold: best and worst differ beyond noise"))
    alone = len(found["kernels"]) - len(kernels)
    if alone:
        console.print(_dim(f"  {plural(alone, 'kernel')} with no cell on two machines"))
    for one in found["agreements"]:
        said = one["note"] or f"Kendall's τ-b = {figure(number(one['tau']))}, p = {_p(one['p'])}"
        console.print(_dim(f"  {one['first']} and {one['second']}, {plural(one['kernels'], 'kernel')}: {said}"))
    console.print()


def _render_spreads(found: Plain, console: Console) -> None:
    """Print how far each generator's speedup at a task varies over machines, where there are several."""
    machines = list(found["machines"].values())
    spreads = [one for one in found["spreads"] if not math.isnan(number(one["variance"]))]
    if len(machines) < 2:
        return

    def build(narrow: bool) -> Table:
        columns: list[str | Text] = ["generator", *(_named(m) for m in machines), "best / worst", "variance", "CV", ""]
        table = grid("Speedup of a task over machines, the largest variance first", "Task", columns, narrow=narrow)
        for one in spreads[:_SHOWN]:
            speeds = [figure(number(one["speedups"].get(machine)), "x") for machine in machines]
            spread = (figure(number(one["ratio"]), "x"), figure(number(one["variance"])), figure(number(one["cv"])))
            mark = "" if one["same_cells"] else "*"
            table.add_row(_named(one["task"]), _named(one["generator"]), *speeds, *spread, mark)
        return table

    if spreads:
        show(console, build)
        _more(_SHOWN, len(spreads), "task", console)
        if not all(one["same_cells"] for one in spreads):
            console.print(_dim("  * no cell in common: computed from each machine's own cells"))
    alone = ((str(one["note"]), f"{one['generator']} at {one['task']}") for one in found["spreads"] if one["note"])
    for note, of in by_key(alone).items():
        more = f" and {len(of) - _REASONS} more" if len(of) > _REASONS else ""
        console.print(_dim(f"  {note}: {', '.join(of[:_REASONS])}{more}"))
    console.print()


# -- Sources ----------------------------------------------------------------------------------------------------------

_METRICS = {
    "maintainability": "maintainability index (0 to 100)",
    "complexity_sum": "cyclomatic complexity, sum",
    "complexity_mean": "mean of a function",
    "complexity_max": "of the most complex function",
    "logical_lines": "logical lines",
    "functions": "functions",
    "kernels": "kernels",
}


def render_sources(found: Mapping[str, Plain], console: Console) -> None:
    """Print what :func:`kerneleval.analysis.sources.by_generators` gives, as plain data."""
    if not found:
        console.print("No sources.")
        return
    _medians("Sources, medians over attempts", found, _METRICS, console)


_COMPILED = {
    "instructions": "instructions",
    "matrix_instructions": "of matrix units",
    "pipeline_instructions": "asynchronous copies, barriers",
    "frontier_instructions": "newest features",
    "vector_instructions": "of vector units (CPUs)",
    "spill_instructions": "spills to local memory",
    "widest_bytes": "widest access, bytes",
    "vectorised": "share of wide accesses",
    "registers": "registers a thread",
    "local_bytes": "local memory a thread, bytes",
    "shared_bytes": "shared memory a block, bytes",
}


def render_compiled(found: Mapping[str, Plain], console: Console) -> None:
    """Print what :func:`kerneleval.analysis.compiled.by_generators` gives, as plain data, without what is known for no
    generator.
    """
    present = {name: words for name, words in _COMPILED.items() if any(of[name]["n"] for of in found.values())}
    if not present:
        console.print("Compiled code: no verdict of this run has any.")
        console.print()
        return
    _medians("Compiled code, medians over attempts", found, present, console)


def _medians(title: str, found: Mapping[str, Plain], metrics: Mapping[str, str], console: Console) -> None:
    """A row for each metric, a column for each generator."""

    def build(narrow: bool) -> Table:
        table = grid(title, "", [_named(name) for name in found], narrow=narrow)
        for metric, words in metrics.items():
            table.add_row(words, *(span(of.get(metric), narrow=narrow) for of in found.values()))
        return table

    show(console, build)
    for name, of in found.items():
        notes = ((of[metric]["note"], words) for metric, words in metrics.items() if metric in of)
        _reasons(notes, console, of=len(of), who=f"{name}: ")
    console.print()


# -- Rubric -----------------------------------------------------------------------------------------------------------


def render_rubric(found: Sequence[Plain], console: Console) -> None:
    """Print what :func:`kerneleval.analysis.rubric.profiles` gives, as plain data."""
    for generator in dict.fromkeys(one["generator"] for one in found):
        own = [one for one in found if one["generator"] == generator]

        def build(narrow: bool, own: Sequence[Plain] = own, generator: str = generator) -> Table:
            title = f"Standard Kernel Rubric, attempts on each level: {safe(generator, _NAME)}"
            columns = ["1", "2", "3", "4", "median", "none"]
            table = grid(title, "Axis", columns if narrow else [*columns, "most often"], narrow=narrow)
            for one in own:
                axis = one["axis"]
                counts = {level: int(one["counts"][str(level)]) for level in (1, 2, 3, 4)}
                most = max(counts, key=counts.__getitem__)
                cells = [Text(str(n), style="bold" if n and level == most else "dim") for level, n in counts.items()]
                none = count(sum(one["not_evaluated"].values()))
                name = [] if narrow else [Text(LEVELS[axis][most - 1] if counts[most] else MISSING, style="dim")]
                table.add_row(f"{axis} {AXES[axis]}", *cells, span(one["median"], narrow=narrow), none, *name)
            return table

        show(console, build)
        none = [
            (f"{plural(int(n), 'attempt')}: {safe(why, 200)}", one["axis"])
            for one in own
            for why, n in list(one["not_evaluated"].items())[:_REASONS]  # the most frequent
        ]
        _reasons(none, console)
        console.print()
