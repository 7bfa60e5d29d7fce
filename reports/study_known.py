"""Sections of a study's page on what is known of the space: surface, axes, predictions, NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports import plots
from reports.blocks import (
    Column,
    Drawing,
    Table,
    Value,
    figure_number,
    text,
    without_empty_columns,
)
from reports.plots.study import MOST_CELLS, MOST_EFFECTS, MOST_PANELS
from reports.study_effects import communications_of, effects_of
from reports.study_predictions import accept_len_predictions, accuracy_of, gain_predictions
from reports.study_wording import Z95, gain_interval, gain_words, points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model.study import Study, StudyConfiguration
    from reports.blocks import Block
    from reports.study_effects import Communication, Effect
    from reports.study_predictions import Prediction

MOST_CONFIGURATIONS = 500
_UNKNOWN = "Nothing is known yet: no launch was measured beside a baseline."


def gain_value(log_ratio: float | None, *, tone: str = "") -> Value:
    """A gain in per cent; the CSV keeps the log ratio."""
    return Value(text=gain_words(log_ratio), raw=log_ratio, tone=tone)


def expected_gain(c: StudyConfiguration) -> Value:
    """A configuration's expected gain with its 95 % interval."""
    if c.gain is None:
        return gain_value(None)
    if c.place == 0:
        return Value(text="the baseline", raw=c.gain)
    spread = ""
    if c.gain_sd is not None:
        spread = gain_interval(c.gain - Z95 * c.gain_sd, c.gain + Z95 * c.gain_sd)
    return Value(text=gain_words(c.gain) + spread, raw=c.gain)


def cell_names(study: Study) -> list[str]:
    """Each cell as `chat-2k · 8`; `load 8` where there is one workload alone."""
    several = len({cell.workload for cell in study.cells}) > 1
    return [
        f"{cell.workload} · {cell.load}" if several else f"load {cell.load}"
        for cell in study.cells
    ]


# --- the surface


def surface_blocks(study: Study) -> list[Block]:
    """Gain by steps, topk and load, and every configuration as a table."""
    known = [c for c in study.configurations if c.gain is not None]
    if not known:
        return [_UNKNOWN]
    blocks: list[Block] = []
    panels = _panels(study)
    figure = plots.draw_surface(panels, cell_names(study), simulated=study.simulated)
    if figure is not None:
        note = (
            "Per cent over the baseline at each workload and load (rows); blue gains, orange "
            "loses. Framed and bold: measured; pale and dashed: predicted from other launches; "
            "×: left out. Of configurations that differ in nothing shown here, the best."
        )
        if len(panels) > MOST_PANELS or len(study.cells) > MOST_CELLS:
            note += " The first ones are drawn; the table has all."
        blocks.append(
            Drawing(
                name="surface",
                title="Gain by draft steps, topk and load",
                note=note,
                figure=figure,
                wide=True,
            )
        )
    else:
        blocks.append("No surface is drawn: no configuration here has draft steps.")
    blocks.append(_configuration_table(study))
    if len(study.configurations) > MOST_CONFIGURATIONS:
        blocks.append(f"The best {MOST_CONFIGURATIONS} of {len(study.configurations):,}.")
    return blocks


def _panels(study: Study) -> list[plots.Panel]:
    best: dict[tuple[str, int], dict[int, StudyConfiguration]] = {}
    for c in study.configurations:
        if c.algorithm is None or c.num_steps is None:
            continue
        there = best.setdefault((c.algorithm, c.eagle_topk or 1), {})
        held = there.get(c.num_steps)
        if held is None or _rank(c) > _rank(held):
            there[c.num_steps] = c
    several = len({algorithm for algorithm, _ in best}) > 1
    return [
        plots.Panel(
            title=(f"{algorithm}, " if several else "")
            + ("chain (topk 1)" if topk == 1 else f"topk {topk}"),
            best=by_steps,
        )
        for (algorithm, topk), by_steps in sorted(best.items())
    ]


def _rank(c: StudyConfiguration) -> tuple[bool, float]:
    """What may run before what may not, then by gain."""
    return c.excluded is None or c.launches > 0, float("-inf") if c.gain is None else c.gain


def _configuration_table(study: Study) -> Table:
    ordered = sorted(
        study.configurations, key=lambda c: float("inf") if c.gain is None else -c.gain
    )
    cells = cell_names(study)
    table = Table(
        name="configurations",
        caption="Every configuration, the highest expected gain first",
        columns=(
            Column(name="configuration", label="configuration", numeric=False),
            Column(name="launches", label="launches"),
            Column(name="ln_gain", label="expected gain [95 %]"),
            *(
                Column(name=f"ln_gain_{at}", label=name if len(cells) > 1 else f"at {name}")
                for at, name in enumerate(cells, start=1)
            ),
            *(
                Column(name=f"accept_len_tok_{at}", label=f"accept length {name}")
                for at, name in enumerate(cells, start=1)
            ),
            Column(name="excluded", label="left out", numeric=False),
        ),
        rows=tuple(_configuration_row(study, c) for c in ordered[:MOST_CONFIGURATIONS]),
    )
    return without_empty_columns(table, ("configuration", "launches", "ln_gain"))


def _configuration_row(study: Study, c: StudyConfiguration) -> tuple[Value, ...]:
    nothing = (None,) * len(study.cells)
    deployed = study.conclusion is not None and study.conclusion.deploy == c.place
    return (
        text(c.label, tone="good" if deployed else ""),
        figure_number(c.launches, 0),
        expected_gain(c),
        *(gain_value(gain) for gain in c.cell_gain or nothing),
        *(figure_number(length, 2) for length in c.accept_len_tok or nothing),
        text(c.excluded),
    )


# --- the axes


def effect_blocks(study: Study) -> list[Block]:
    """What each value of each axis does, averaged over the others."""
    effects = effects_of(study)
    if not any(e.best for e in effects):
        return [_UNKNOWN] if effects else ["Only one setting was searched: there is no axis."]
    blocks: list[Block] = []
    figure = plots.draw_effects(effects, simulated=study.simulated)
    if figure is not None:
        more = (
            f" The first {MOST_EFFECTS}; the table has all." if len(effects) > MOST_EFFECTS else ""
        )
        blocks.append(
            Drawing(
                name="effects",
                title="Gain of each value over its axis's reference",
                note="The mean over configurations that differ in nothing else; hollow: no launch "
                f"had this value. The bars are 95 % intervals at their widest.{more}",
                figure=figure,
            )
        )
    blocks.append(_effect_table(effects))
    return blocks


def _effect_table(effects: Sequence[Effect]) -> Table:
    return Table(
        name="effects",
        caption="Marginal effects: the mean over all else, and the best that has the value",
        columns=(
            Column(name="axis", label="axis", numeric=False),
            Column(name="value", label="value", numeric=False),
            Column(name="reference", label="against", numeric=False),
            Column(name="ln_gain", label="effect [95 %]"),
            Column(name="matched", label="matched pairs"),
            Column(name="launches", label="launches"),
            Column(name="best", label="best with it", numeric=False),
            Column(name="best_ln_gain", label="its expected gain [95 %]"),
        ),
        rows=tuple(
            (
                text(e.axis),
                text(e.value),
                text(e.reference),
                _effect_value(e),
                figure_number(e.matched if e.reference is not None else None, 0),
                figure_number(e.launches, 0),
                text(e.best.label if e.best else None),
                expected_gain(e.best) if e.best else gain_value(None),
            )
            for e in effects
        ),
    )


def _effect_value(e: Effect) -> Value:
    if e.gain is None:
        return Value(text="–" if e.reference else "reference", raw=None)
    spread = ""
    if e.half_width is not None:
        spread = gain_interval(e.gain - e.half_width, e.gain + e.half_width)
    return Value(text=gain_words(e.gain) + spread, raw=e.gain)


# --- predictions


def prediction_blocks(study: Study, numbers: Mapping[str, int]) -> list[Block]:
    """What was expected before each launch beside what came, and how good that was."""
    gains, accept_lens = gain_predictions(study), accept_len_predictions(study)
    figure = plots.draw_predictions(gains, accept_lens, numbers, simulated=study.simulated)
    if figure is None:
        return ["Nothing was predicted yet: that takes a measured launch before another."]
    drawing = Drawing(
        name="predictions",
        title="Predicted before the launch, and measured",
        note="On the dashed line they agree. Bars are the predictions' 95 % intervals; hollow "
        "marks: that configuration had been measured before.",
        figure=figure,
        wide=bool(gains and accept_lens),
    )
    return [drawing, _accuracy_table(gains, accept_lens)]


def _accuracy_table(gains: Sequence[Prediction], accept_lens: Sequence[Prediction]) -> Table:
    groups = [
        ("gain", "all launches", gains),
        ("gain", "first of a configuration", [p for p in gains if p.first]),
        ("gain", "repeats", [p for p in gains if not p.first]),
        ("accept length", "all launches and cells", accept_lens),
        ("accept length", "first of a configuration", [p for p in accept_lens if p.first]),
    ]
    return Table(
        name="prediction_accuracy",
        caption="How good the predictions were: by how much more was measured (gain: than the "
        "predicted speed, in per cent of it; accept length: tokens)",
        columns=(
            Column(name="of", label="of", numeric=False),
            Column(name="over", label="over", numeric=False),
            Column(name="count", label="predictions"),
            Column(name="mean_error", label="mean error"),
            Column(name="mean_absolute_error", label="mean absolute error"),
            Column(name="covered", label="inside the 95 % interval"),
        ),
        rows=tuple(row for of, over, ps in groups if (row := _accuracy_row(of, over, ps))),
    )


def _accuracy_row(of: str, over: str, predictions: Sequence[Prediction]) -> tuple[Value, ...]:
    accuracy = accuracy_of(predictions)
    if accuracy is None:
        return ()
    if of == "gain":
        error = f"{100 * accuracy.error:+.2f} %".replace("-", "−")
        absolute = f"{100 * accuracy.absolute_error:.2f} %"
    else:
        error = f"{accuracy.error:+.3f}".replace("-", "−")
        absolute = f"{accuracy.absolute_error:.3f}"
    covered = accuracy.covered
    inside = "–" if covered is None else f"{100 * covered / accuracy.count:.0f} % ({covered})"
    return (
        text(of),
        text(over),
        figure_number(accuracy.count, 0),
        Value(text=error, raw=accuracy.error),
        Value(text=absolute, raw=accuracy.absolute_error),
        Value(text=inside, raw=None if covered is None else covered / accuracy.count),
    )


# --- communication


def communication_blocks(study: Study) -> list[Block]:
    """Transport and environment by load; nothing at all where they are no axes."""
    rows = communications_of(study)
    if not rows:
        return []
    cells = cell_names(study)
    matrix = Table(
        name="communication",
        caption=f"Over the present setting, all else as in {rows[0].configuration.label}",
        columns=(
            Column(name="setting", label="setting", numeric=False),
            Column(name="launches", label="launches"),
            *(Column(name=f"ln_gain_{at}", label=c) for at, c in enumerate(cells, start=1)),
            Column(name="noise", label="noise ±"),
        ),
        rows=tuple(_communication_row(row) for row in rows),
    )
    winners = Table(
        name="communication_winners",
        caption="The winner at each load; a difference within noise keeps the present setting",
        columns=(
            Column(name="cell", label="cell", numeric=False),
            Column(name="winner", label="winner", numeric=False),
            Column(name="ln_gain", label="best other over the present"),
            Column(name="says", label="how sure", numeric=False),
        ),
        rows=tuple(_winner_row(rows, at, cell) for at, cell in enumerate(cells)),
    )
    return [winners, matrix]


def _communication_row(row: Communication) -> tuple[Value, ...]:
    noise = "–" if row.noise is None else f"{points(row.noise):.1f} %"
    return (
        text(row.label + (" (present)" if row.default else "")),
        figure_number(row.configuration.launches, 0),
        *(gain_value(None if row.default else gain) for gain in row.gains),
        Value(text=noise, raw=row.noise),
    )


def _winner_row(rows: Sequence[Communication], at: int, cell: str) -> tuple[Value, ...]:
    own, *others = rows
    told = [row for row in others if row.gains[at] is not None]
    best = max(told, key=lambda row: row.gains[at] or 0.0, default=None)
    gain = None if best is None else best.gains[at]
    if best is None or gain is None:
        return (text(cell), text(own.label), gain_value(None), text("nothing else is known"))
    if gain <= 0:
        return (text(cell), text(own.label), gain_value(gain), text(f"best other: {best.label}"))
    if best.noise is None:
        says = "predicted, not measured: the present one is kept"
        return (text(cell), text(own.label), gain_value(gain), text(f"{best.label}: {says}"))
    if gain <= best.noise:
        says = f"{best.label} is within noise: the present one is kept"
        return (text(cell), text(own.label), gain_value(gain), text(says))
    return (text(cell), text(best.label, tone="good"), gain_value(gain), text("beyond noise"))
