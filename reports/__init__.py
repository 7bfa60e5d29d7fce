"""Pages from stored results: one self-contained HTML file each, and the same as Markdown or files.

Reads results only, never a live server; called by the two command lines. matplotlib and jinja2 are
loaded when a page is made.
"""

from __future__ import annotations

from reports.compare_page import changes_of, compare_page
from reports.nightly_page import nightly_page
from reports.render import (
    SIMULATED,
    page_html,
    page_markdown,
    write_data,
    write_figures,
    write_page,
)
from reports.run_page import run_page
from reports.study_page import STUDY_PAGE, study_page, write_study_page

__all__ = [
    "SIMULATED",
    "STUDY_PAGE",
    "changes_of",
    "compare_page",
    "nightly_page",
    "page_html",
    "page_markdown",
    "run_page",
    "study_page",
    "write_data",
    "write_figures",
    "write_page",
    "write_study_page",
]
