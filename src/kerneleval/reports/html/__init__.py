"""The report as one HTML file that needs no network: ``docs/report.md``.

>>> document = build(run, scores, results, verdicts, sources)  # doctest: +SKIP
>>> write(document, "report.html")  # doctest: +SKIP
"""

from __future__ import annotations

import os

from kerneleval.records import UsageError
from kerneleval.reports.files import write_text
from kerneleval.reports.html.document import Document, build

__all__ = ["Document", "build", "render", "write"]

_NEEDED = ("jinja2", "markupsafe", "plotly")


def render(document: Document) -> str:
    """The report as the text of one HTML file.

    Raises:
        UsageError: Jinja2 or Plotly is not installed.
    """
    try:
        from kerneleval.reports.html import page

        return page.page(document)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        raise UsageError(f"an HTML report needs {missing}; install it with: pip install jinja2 plotly") from error


def write(document: Document, path: str | os.PathLike[str]) -> None:
    """Render the report into a file, whole or not at all; raises UsageError as :func:`render`, or where the file cannot
    be written.
    """
    write_text(path, render(document))
