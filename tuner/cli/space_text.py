"""What `tuner sweep --dry-run` prints: the space, what is left out and why, the hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.output import Printer, duration, many, print_json

if TYPE_CHECKING:
    from tuner.sweep.beginning import Prepared

_SHOWN = 40


def print_space(prepared: Prepared, *, as_json: bool) -> None:
    """Print what a sweep would search, and what it would take."""
    candidates = prepared.candidates
    space, ground = candidates.space, candidates.ground
    if as_json:
        print_json(_space_json(prepared))
        return
    printer = Printer()
    raw, legal, distinct = space.raw, space.legal, len(space.configurations)
    printer.print_text(
        f"{ground.loaded.scenario.name}: {raw} raw points, {legal} legal, {distinct} distinct "
        "configurations."
    )
    for rule, count, reason in space.illegal:
        printer.print_text(f"  {count} not legal ({rule}): {reason}")
    for why, count in space.aliases:
        printer.print_text(f"  {count} the same as another ({why})")
    printer.print_text("Configurations:")
    labels = [c.label for c in space.configurations]
    for place, label in enumerate(labels[:_SHOWN]):
        printer.print_text(f"  {label}{_mark(prepared, place)}")
    if distinct > _SHOWN:
        printer.print_text(f"  and {distinct - _SHOWN} more")
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
    if ground.simulated:
        printer.print_text("The servers would be SIMULATED.")


def _mark(prepared: Prepared, place: int) -> str:
    candidates = prepared.candidates
    if place == 0:
        return "   <- the baseline"
    if place == candidates.present:
        return "   <- in use now"
    return "   <- known good" if place in candidates.known_good else ""


def _space_json(prepared: Prepared) -> dict[str, object]:
    candidates = prepared.candidates
    space = candidates.space
    return {
        "scenario": candidates.ground.loaded.scenario.name,
        "simulated": candidates.ground.simulated,
        "raw": space.raw,
        "legal": space.legal,
        "distinct": len(space.configurations),
        "illegal": [
            {"rule": rule, "count": count, "reason": reason}
            for rule, count, reason in space.illegal
        ],
        "aliases": [{"why": why, "count": count} for why, count in space.aliases],
        "configurations": [
            {"arm": arm, "label": c.label}
            for arm, c in zip(candidates.arms, space.configurations, strict=True)
        ],
        "cells": [
            {"workload": p.workload.name, "load": p.load.label, "weight": weight}
            for p, weight in zip(candidates.ground.points, candidates.weights, strict=True)
        ],
        "launches": prepared.launches,
        "launch_s": prepared.launch_s,
        "hours": prepared.launch_s * prepared.launches / 3600,
        "hours_limit": prepared.hours,
    }
