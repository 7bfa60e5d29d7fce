"""How every figure looks: one palette, distinct markers and dashes, SVG that takes a page's theme.

Figures are drawn with the colours of the light palette, each of which occurs once in it. In a page
each becomes a CSS variable with that colour as its fallback, so that the same drawing is legible
in light and dark; an exported file keeps the colours.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from reports.view import load_order, load_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

INK = "#1b1f24"
MUTED = "#57606a"
GRID = "#d0d7de"
SURFACE = "#ffffff"
BASELINE_COLOUR = "#5a636e"
GOOD = "#1a7f4b"
BAD = "#b3261e"
WARN = "#8a5a00"
SERIES = ("#0072b2", "#c2500a", "#007a59", "#a0408e", "#8a6d00", "#4b5bd1", "#b4304a", "#2f7d8c")

_MOST_LOAD_LABELS = 14  # beside each other on an axis

VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    SURFACE: "surface",
    BASELINE_COLOUR: "baseline",
    GOOD: "good",
    BAD: "bad",
    WARN: "warn",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)},
}
"""CSS variable (without `--`) of each colour; their dark values are in templates/page.css."""

DARK = {
    "ink": "#e6edf3",
    "muted": "#9da7b3",
    "grid": "#30363d",
    "surface": "#0f1419",
    "baseline": "#a8b3bf",
    "good": "#4cc38a",
    "bad": "#ff8f87",
    "warn": "#e3b341",
    "series-1": "#58b4ee",
    "series-2": "#ff9a57",
    "series-3": "#3ccf9f",
    "series-4": "#e58fd3",
    "series-5": "#e0bf3c",
    "series-6": "#9aa6ff",
    "series-7": "#ff8ba0",
    "series-8": "#6fd0e0",
}
"""The same variables in the dark."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: tuple[tuple[int, tuple[float, ...]], ...] = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
)
_RC: dict[str, Any] = {
    "text.parse_math": False,  # a name with dollar signs is a name
    "svg.fonttype": "none",
    "svg.hashsalt": "specdyno",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": SURFACE,
    "axes.facecolor": SURFACE,
    "savefig.facecolor": SURFACE,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStyle:
    """How one series is told from the others, by more than its colour.

    Attributes:
        colour: Hex, of the light palette.
        marker: Matplotlib's name of the marker.
        dashes: Matplotlib's (offset, on-off lengths).
    """

    colour: str
    marker: str
    dashes: tuple[int, tuple[float, ...]]


def series_style(number: int) -> SeriesStyle:
    """The style of a series; 0 is the baseline."""
    if number == 0:
        return SeriesStyle(colour=BASELINE_COLOUR, marker="o", dashes=(0, (3, 1.5)))
    return SeriesStyle(
        colour=SERIES[(number - 1) % len(SERIES)],
        marker=_MARKERS[(number - 1) % len(_MARKERS)],
        dashes=_DASHES[((number - 1) // len(SERIES)) % len(_DASHES)],
    )


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with the product's style, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)  # type: ignore[arg-type]  # its stubs want literal keys
        yield


def new_figure(width_in: float, height_in: float, *, simulated: bool) -> Figure:
    """A figure; one of simulated results says so inside the drawing, wherever it is copied to."""
    figure = Figure(figsize=(width_in, height_in))
    if simulated:
        figure.suptitle(
            "SIMULATED – not measured on hardware",
            fontsize=8.5,
            color=WARN,
            fontweight="bold",
            x=0.99,
            ha="right",
        )
    return figure


def svg_file_text(figure: Figure) -> str:
    """The figure as a stand-alone SVG document."""
    buffer = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specdyno"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def inline_svg(svg: str, *, name: str, label: str) -> str:
    """A stand-alone SVG made ready to stand in a page.

    Its ids get the figure's name in front (several figures share a page), its colours become the
    page's variables, groups called `series-…` become classes, and it gets a role and a label.

    Args:
        svg: From `svg_file_text`.
        name: Unique in the page: letters, digits and `-`.
        label: What a screen reader says; plain text.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="(series-\d+)(?:-\d+)?">', r'<g class="series \1">', body)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var(--{variable},{colour})")
    body = re.sub(r"'?DejaVu Sans'?[^;\"]*", "var(--figure-font, sans-serif)", body)
    body = re.sub(r"\n\s*", "\n", body)
    head = re.search(r'viewBox="([^"]+)"', body)
    box = head.group(1) if head else "0 0 1 1"
    rest = body[body.index(">") + 1 :]
    # A figure is never blown up much: its text would outgrow the page's.
    widest_px = 1.5 * float(box.split()[2])
    return (
        f'<svg class="figure" role="img" aria-label="{label}" viewBox="{box}" '
        f'style="max-width: {widest_px:.0f}px" '
        f'xmlns="http://www.w3.org/2000/svg">{rest}'
    )


def load_axis(axes: Axes, loads: Sequence[str]) -> dict[str, float]:
    """Give a panel the loads as its x axis: logarithmic where all are numbers, else one by one.

    Returns:
        The position of each load.
    """
    values = [load_value(load) for load in loads]
    if all(values):
        axes.set_xscale("log", base=2)
        position = {load: float(v or 0) for load, v in zip(loads, values, strict=True)}
    else:
        position = {load: float(place) for place, load in enumerate(loads)}
    axes.set_xticks(list(position.values()), _thinned(position, logarithmic=all(values)))
    axes.minorticks_off()
    rates = all(load.startswith("rate=") for load in loads)
    closed = all(load_order(load)[0] == 0 for load in loads)
    axes.set_xlabel("requests at once" if closed else "arrivals" if rates else "load")
    if len(loads) == 1:
        only = position[loads[0]]
        axes.set_xlim((only / 2, only * 2) if all(values) else (only - 1, only + 1))
    return position


def _thinned(position: Mapping[str, float], *, logarithmic: bool) -> list[str]:
    """The labels of an axis in order; those that would run into another are empty."""
    at = [math.log2(x) if logarithmic else x for x in position.values()]
    nearest = (max(at) - min(at)) / _MOST_LOAD_LABELS if at else 0.0
    shown: list[str] = []
    last = -math.inf
    for x, load in zip(at, position, strict=True):
        shown.append(load if x - last >= nearest else "")
        last = x if shown[-1] else last
    return shown


def short(text: str, most: int = 28) -> str:
    """A name that fits into a figure."""
    return text if len(text) <= most else text[: most - 1] + "…"
