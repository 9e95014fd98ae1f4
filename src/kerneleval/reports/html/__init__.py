"""The report as one HTML file that needs no network: ``docs/report.md``.

>>> document = build(run, scores, results, verdicts, sources)  # doctest: +SKIP
>>> write(document, "report.html")  # doctest: +SKIP
"""

from __future__ import annotations

import os

from kerneleval.records.errors import optional
from kerneleval.reports.files import write_text
from kerneleval.reports.html.document import Document, build

__all__ = ["Document", "build", "render", "write"]


def render(document: Document) -> str:
    """The report as the text of one HTML file; raises UsageError where Jinja2 or Plotly is not installed."""
    with optional("an HTML report needs"):
        from kerneleval.reports.html import page

        return page.page(document)


def write(document: Document, path: str | os.PathLike[str]) -> None:
    """Render the report into a file, whole or not at all; raises UsageError as :func:`render`, or where the file cannot
    be written.
    """
    write_text(path, render(document))
