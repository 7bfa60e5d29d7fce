"""What `tuner sweep --dry-run` prints: the space, what is left out and why, the hours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.cli.output import Printer, duration, many, print_json
from tuner.confirm.final import FEWEST

if TYPE_CHECKING:
    from tuner.sweep.beginning import Prepared

_SHOWN = 40


def few_launches(launches: int) -> str:
    """That so few launches say what is best, but prove nothing."""
    return (
        f"{many(launches, 'launch')} give a best guess and no verdict: that takes at least "
        f"{FEWEST}."
    )


def print_space(prepared: Prepared, *, as_json: bool) -> None:
    """Print what a sweep would search, and what it would take."""
    candidates = prepared.candidates
    space, ground = candidates.space, candidates.ground
    if as_json:
        print_json(_space_json(prepared))
        return
    printer = Printer()
    counts = prepared.candidates.counts
    least = "" if counts.is_whole else "at least "
    printer.print_text(
        f"{ground.loaded.scenario.name}: {many(counts.raw, 'raw point')}, {least}{counts.legal} "
        f"legal, {least}{many(counts.distinct, 'distinct configuration')}."
    )
    if candidates.large is not None:
        _print_large(printer, prepared)
    for rule, count, reason in space.illegal:
        printer.print_text(f"  {count} not legal ({rule}): {reason}")
    for why, count in space.aliases:
        rule = f"rule {why} of docs/arguments.md" if re.fullmatch(r"C\d+", why) else why
        printer.print_text(f"  {count} the same as another ({rule})")
    printer.print_text("Configurations:")
    labels = [c.label for c in space.configurations]
    for place, label in enumerate(labels[:_SHOWN]):
        printer.print_text(f"  {label}{_mark(prepared, place)}")
    if len(labels) > _SHOWN:
        printer.print_text(f"  and {len(labels) - _SHOWN} more")
    printer.print_text("Every launch measures:")
    for point, weight in zip(ground.points, candidates.weights, strict=True):
        printer.print_text(
            f"  {point.workload.name} load {point.load.label}, weight {weight:.2f}, "
            f"{many(point.work.requests, 'request')}"
        )
    total = duration(prepared.launch_s * prepared.launches)
    hours = "" if prepared.hours is None else f", or {prepared.hours:g} h if that is less"
    printer.print_text(
        f"At most {many(prepared.launches, 'launch')} of about {duration(prepared.launch_s)}: "
        f"{total}{hours}."
    )
    if prepared.launches < FEWEST:
        printer.print_text(few_launches(prepared.launches))
    if ground.simulated:
        printer.print_text("The servers would be SIMULATED.")


def _print_large(printer: Printer, prepared: Prepared) -> None:
    """Print how a space is searched that is not held as a whole."""
    candidates, counts = prepared.candidates, prepared.candidates.counts
    assert candidates.large is not None
    if not counts.is_whole:
        printer.print_text(
            f"Not all points were looked at, but {counts.looked_at} of your own setting and of "
            "those that change one axis of it."
        )
    axes = ", ".join(f"{axis.name} ({len(axis.values)})" for axis in candidates.large.axes)
    held = many(len(candidates.searched), "configuration")
    printer.print_text(
        f"These are too many to be weighed against one another: {held} at your own setting are "
        f"held, and further ones at each setting that is tried, of {axes}. At your own setting:"
    )


def _mark(prepared: Prepared, place: int) -> str:
    candidates = prepared.candidates
    if place == 0:
        return "   <- the baseline"
    if place == candidates.adaptive:
        return "   <- for comparison, if a launch is left"
    if place == candidates.present:
        return "   <- in use now"
    return "   <- known good" if place in candidates.known_good else ""


def _space_json(prepared: Prepared) -> dict[str, object]:
    candidates = prepared.candidates
    space, counts = candidates.space, prepared.candidates.counts
    return {
        "scenario": candidates.ground.loaded.scenario.name,
        "simulated": candidates.ground.simulated,
        "raw": counts.raw,
        "legal": counts.legal,
        "distinct": counts.distinct,
        "looked_at": counts.looked_at,
        "held": len(candidates.searched),
        "illegal": [
            {"rule": rule, "count": count, "reason": reason}
            for rule, count, reason in space.illegal
        ],
        "aliases": [{"why": why, "count": count} for why, count in space.aliases],
        "configurations": [
            {"arm": arm, "label": c.label}
            for arm, c in zip(candidates.arms, candidates.searched, strict=False)
        ],
        "for_comparison": [c.label for c in space.configurations[len(candidates.searched) :]],
        "cells": [
            {"workload": p.workload.name, "load": p.load.label, "weight": weight}
            for p, weight in zip(candidates.ground.points, candidates.weights, strict=True)
        ],
        "launches": prepared.launches,
        "launch_s": prepared.launch_s,
        "hours": prepared.launch_s * prepared.launches / 3600,
        "hours_limit": prepared.hours,
    }
