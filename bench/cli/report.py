"""`bench report` and `bench compare`: pages from stored runs (docs/reports.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.output import RESULTS, printing, shown_path
from bench.errors import BenchError, InputError

if TYPE_CHECKING:
    from bench.store import StoredRun
    from reports.blocks import Page

REPORT = "report.html"
"""Name of a run's page in its folder."""

PageFile = Annotated[
    Path | None,
    typer.Option("--page", metavar="FILE", help="Where the page goes.", show_default=False),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="DIR",
        help="Also write every figure, as SVG and PNG.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Also write every table, as CSV.", show_default=False
    ),
]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", help="Print the answer as Markdown, for a pull request, instead."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The results folder.")]


def report(
    run_names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Runs: ids, the beginning or end of one, folders, or `latest`.",
            show_default="latest",
        ),
    ] = None,
    page: PageFile = None,
    figures: Figures = None,
    data: Data = None,
    markdown: Markdown = False,
    out: Out = RESULTS,
) -> None:
    """Write a run's page: one HTML file that needs nothing else.

    It goes into the run's folder as report.html; a part-run's goes into the folder you are in.
    With several runs, --page, --figures and --data name folders in which each run has its own.
    """
    from bench import runner
    from bench.store import find_run, load_run
    from reports import run_page

    names = run_names or ["latest"]
    for name in names:
        stored = runner.answer_so_far(load_run(find_run(out, name)))
        own = stored.run_id if len(names) > 1 else None
        made = run_page(stored)
        file = _file(stored, page, own)
        _write(made, file, _below(figures, own), _below(data, own), markdown=markdown)


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="The run before.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The run after.")],
    page: PageFile = None,
    figures: Figures = None,
    data: Data = None,
    markdown: Markdown = False,
    out: Out = RESULTS,
) -> None:
    """Compare two runs of the same work: what changed, by which factor, and what else changed.

    Runs that were not asked the same are refused, and the keys that differ are named. The page
    goes into the folder you are in.
    """
    from bench import runner
    from bench.store import find_run, load_run
    from reports import SIMULATED, compare_page

    a, b = (runner.answer_so_far(load_run(find_run(out, name))) for name in (before, after))
    if a.run_id == b.run_id:
        raise InputError(
            f"{a.run_id} against itself: there is nothing to compare.",
            hint="Name two runs of one scenario; `bench list` shows them.",
        )
    file = page or Path(f"compare-{a.run_id}-{b.run_id}.html")
    made = compare_page(a, b)
    with printing():
        if not markdown:
            print("\n".join((*([SIMULATED] if made.simulated else []), *made.answer)))
    _write(made, file, figures, data, markdown=markdown)


def write_report(stored: StoredRun, *, quiet: bool) -> None:
    """Write a run's page at its end; a page that fails is told, and changes nothing else.

    Args:
        stored: The published run.
        quiet: Whether stdout belongs to somebody else (`--json`).
    """
    from reports import run_page, write_page

    try:
        file = write_page(run_page(stored), stored.folder / REPORT)
    except Exception as error:  # noqa: BLE001  # the run is stored and answered: no page may spoil that
        reason = str(error) if isinstance(error, BenchError) else repr(error)
        print(
            f"bench: no page could be made of this run: {reason}\n"
            f"       `bench report {stored.run_id}` tries again.",
            file=sys.stderr,
        )
    else:
        if not quiet:
            print(f"Page:    {shown_path(file)}")


def _file(stored: StoredRun, page: Path | None, own: str | None) -> Path:
    if page is not None:
        return page / f"{own}.html" if own else page
    return stored.folder / REPORT if stored.published else Path(f"{stored.run_id}.html")


def _below(folder: Path | None, own: str | None) -> Path | None:
    return folder / own if folder is not None and own else folder


def _write(
    page: Page, file: Path, figures: Path | None, data: Path | None, *, markdown: bool
) -> None:
    from reports import page_markdown, write_data, write_figures, write_page

    with printing():
        if markdown:
            print(page_markdown(page), end="")
        else:
            print(shown_path(write_page(page, file).absolute()))
        for folder, write in ((figures, write_figures), (data, write_data)):
            if folder is not None:
                told = f"{len(write(page, folder))} files in {shown_path(folder.absolute())}"
                print(told, file=sys.stderr if markdown else sys.stdout)
