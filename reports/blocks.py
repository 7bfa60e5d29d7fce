"""What every kind of page is made of: sections of text, figures and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        name: Of the CSV's header: the field's name with its unit.
        label: What the page says.
        numeric: Whether it holds numbers: aligned right, sorted by value.
    """

    name: str
    label: str
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a table.

    Attributes:
        text: As shown.
        raw: As in the CSV, and what the column is sorted by; None: absent.
        tone: `good`, `bad`, `warn` or empty.
    """

    text: str
    raw: float | str | None
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: File name of its CSV, without ending.
        caption: What it shows.
        columns: Shape (columns,).
        rows: Shape (rows, columns).
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure with its words.

    Attributes:
        name: File name of its export, without ending; unique in the page.
        title: Above it.
        note: Below it: how to read it.
        figure: The drawing.
        wide: Whether it takes the page's whole width.
    """

    name: str
    title: str
    note: str
    figure: Figure
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A finding, or something of the kind.

    Attributes:
        tone: `bad`, `warn` or `note`.
        title: What it is.
        text: What was found, with figures.
        advice: What to do.
        where: Where; empty: everywhere.
    """

    tone: str
    title: str
    text: str
    advice: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Text to copy.

    Attributes:
        title: What it does.
        text: Verbatim.
    """

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A file beside the page.

    Attributes:
        href: Relative.
        text: What it is.
    """

    href: str
    text: str


Block = Table | Drawing | Remark | Command | Link | str
"""A `str` is a paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page.

    Attributes:
        anchor: Its id.
        title: Its heading.
        blocks: What it holds; without any it is left out.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, before it is HTML.

    Attributes:
        kind: `run`, `comparison`, `study` or `nightly`.
        title: Its heading and the browser's title.
        subtitle: Below it: which run, when.
        answer: The answer, sentence by sentence.
        warnings: What must be read before any figure: simulated, cells missing.
        series: (name, series number) of what the figures tell apart, for the legend.
        sections: In order.
        simulated: Whether simulated servers were measured.
    """

    kind: str
    title: str
    subtitle: str
    answer: tuple[str, ...]
    warnings: tuple[str, ...]
    series: tuple[tuple[str, int], ...]
    sections: tuple[Section, ...]
    simulated: bool


def text(value: object, *, tone: str = "") -> Value:
    """A value that is shown as it is."""
    shown = "–" if value is None else str(value)
    return Value(text=shown, raw=None if value is None else str(value), tone=tone)


def figure_number(value: float | None, digits: int, *, tone: str = "") -> Value:
    """A number with so many decimals; `–` where it is absent."""
    shown = "–" if value is None else f"{value:,.{digits}f}"
    return Value(text=shown, raw=value, tone=tone)


def share(value: float | None, digits: int = 0) -> Value:
    """A share as per cent; the CSV keeps the ratio."""
    shown = "–" if value is None else f"{100 * value:.{digits}f} %"
    return Value(text=shown, raw=value)


def without_empty_columns(table: Table, kept: Sequence[str]) -> Table:
    """The table without columns that say nothing.

    Numbers that are absent everywhere, and words (a workload) that are the same everywhere.

    Args:
        table: Any.
        kept: Names of columns that stay in any case.
    """

    def says(place: int, column: Column) -> bool:
        values = {row[place].raw for row in table.rows}
        if column.name in kept:
            return True
        return values != {None} if column.numeric else len(values) > 1

    shown = [place for place, column in enumerate(table.columns) if says(place, column)]
    return Table(
        name=table.name,
        caption=table.caption,
        columns=tuple(table.columns[place] for place in shown),
        rows=tuple(tuple(row[place] for place in shown) for row in table.rows),
    )
