"""A `Page` as one HTML file that needs nothing else, as Markdown, as figures and as data."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import DiskError
from reports.blocks import Command, Drawing, Remark, Table
from reports.plots.style import DARK, SERIES, VARIABLES, inline_svg, svg_file_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

    from reports.blocks import Block, Page, Value

SIMULATED = "SIMULATED: these figures come from a simulated server, not from hardware."
_TEMPLATES = Path(__file__).parent / "templates"


def page_html(page: Page) -> str:
    """The page as one self-contained HTML document; everything a user named is escaped."""
    import jinja2  # noqa: PLC0415  # loads only when a page is made

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.globals["svg_of"] = _svg_of
    light = {variable: colour for colour, variable in VARIABLES.items()}
    return environment.get_template("page.html.j2").render(
        page=page,
        simulated=SIMULATED,
        light=light,
        dark=DARK,
        palette=len(SERIES),
        css=(_TEMPLATES / "page.css").read_text(),
        script=(_TEMPLATES / "page.js").read_text(),
    )


def _svg_of(drawing: Drawing) -> object:
    from markupsafe import Markup  # noqa: PLC0415  # comes with jinja2

    svg = inline_svg(
        svg_file_text(drawing.figure), name=drawing.name, label=escape(drawing.title, quote=True)
    )
    return Markup(svg)  # noqa: S704  # matplotlib escapes the text that it writes into SVG


def page_markdown(page: Page) -> str:
    """The answer, what weakens it, the first table and what to copy, for a pull request."""
    lines = [f"### {_plain(page.title)}", ""]
    if page.simulated:
        lines.append(f"> **{SIMULATED}**")
    lines += [f"> **{_plain(warning)}**" for warning in page.warnings]
    lines += ["", *(_plain(sentence) for sentence in page.answer), ""]
    for section in page.sections[:2]:
        for block in section.blocks:
            if isinstance(block, Remark) and block.tone != "note":
                where = f" ({_plain(block.where)})" if block.where else ""
                lines.append(f"- **{_plain(block.title)}**{where}: {_plain(block.text)}")
            if isinstance(block, Table):
                lines += ["", *_markdown_table(block), ""]
            if isinstance(block, Command):
                code = [f"    {line}" for line in block.text.splitlines()]
                lines += ["", f"{_plain(block.title)}:", "", *code, ""]
    lines += ["", f"<sub>{_plain(page.subtitle)}</sub>", ""]
    return "\n".join(lines)


def _markdown_table(table: Table) -> list[str]:
    head = " | ".join(_plain(column.label) for column in table.columns)
    rule = " | ".join("---:" if column.numeric else "---" for column in table.columns)
    rows = [" | ".join(_plain(value.text) for value in row) for row in table.rows]
    return [f"| {line} |" for line in (head, rule, *rows)]


def _plain(value: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    flat = escape(" ".join(value.split()), quote=False)
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>|#" else c for c in flat)


def table_csv(table: Table) -> str:
    """The raw values; absent ones are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows([["" if v.raw is None else _inert(v) for v in row] for row in table.rows])
    return out.getvalue()


def _inert(value: Value) -> float | str:
    """A value that no spreadsheet takes for a formula."""
    raw = value.raw
    if isinstance(raw, str) and raw[:1] in "=+-@\t\r":
        return f"'{raw}"
    return "" if raw is None else raw


def blocks_of(page: Page) -> Iterator[Block]:
    """Every block of a page, in order."""
    for section in page.sections:
        yield from section.blocks


def write_page(page: Page, file: Path) -> Path:
    """Write the HTML: whole, or not at all.

    Raises:
        DiskError: It cannot be written.
    """
    return _write(file, page_html(page).encode())


def write_figures(page: Page, folder: Path) -> list[Path]:
    """Every figure as SVG and PNG.

    Raises:
        DiskError: They cannot be written.
    """
    written = []
    for block in blocks_of(page):
        if isinstance(block, Drawing):
            svg = svg_file_text(block.figure)
            written.append(_write(folder / f"{block.name}.svg", svg.encode()))
            written.append(_write(folder / f"{block.name}.png", _png(block.figure)))
    return written


def write_data(page: Page, folder: Path) -> list[Path]:
    """Every table as CSV.

    Raises:
        DiskError: They cannot be written.
    """
    return [
        _write(folder / f"{block.name}.csv", table_csv(block).encode())
        for block in blocks_of(page)
        if isinstance(block, Table)
    ]


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def _write(file: Path, content: bytes) -> Path:
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(content)
        new.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise DiskError(
            f"{file} cannot be written: {error.strerror}",
            hint="Free some space, or choose another place for it.",
        ) from error
    return file
