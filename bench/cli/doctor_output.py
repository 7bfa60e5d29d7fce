"""What `bench doctor` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.output import Printer, many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.doctor.probing import Probe
    from bench.doctor.wiring import WiringReport
    from bench.draft import DraftFinding, Examination

_STYLES = {"fault": "bold red", "suspect": "bold yellow", "note": "bold"}
_TOLD = (
    *("algorithm", "draft_model_path", "num_steps", "eagle_topk", "num_draft_tokens"),
    *("adaptive", "draft_window_size", "draft_model_quantization"),
)


def print_examination(examined: Examination) -> None:
    """The drawing, what becomes of the weights, and what was found."""
    draft, printer = examined.case.draft, Printer()
    printer.print_text(f"{draft.name}: {draft.architecture or 'no architecture'} ({draft.form})")
    printer.print("")
    for line in examined.flow:
        printer.print_text(f"    {line}")
    loaded = examined.case.loaded
    if loaded is not None and draft.form != "speculators":
        printer.print_text(
            f"    weights: {len(loaded.filled)} of {many(len(loaded.wanted), 'parameter')} loaded "
            f"from {many(len(draft.checkpoint.tensors), 'tensor')}, "
            f"{len(loaded.renamed)} renamed, {len(loaded.dropped)} dropped"
        )
    printer.print("")
    print_findings(examined.findings, printer)
    if examined.case.target is None:
        printer.print_text(
            "No target was given: which layers it is fed, and whether the sizes fit, was not "
            "checked (--target)."
        )


def print_findings(findings: Sequence[DraftFinding], printer: Printer) -> None:
    """Each finding: what, by what it was seen, what it does, what to do."""
    if not findings:
        printer.print_text("Clean: nothing was found.")
    for finding in findings:
        printer.print_text(
            f"{finding.level.upper()} {finding.rule}: {finding.what}", style=_STYLES[finding.level]
        )
        for line in finding.evidence:
            printer.print_text(f"    seen: {line}")
        printer.print_text(f"    does: {finding.consequence}")
        printer.print_text(f"    fix:  {finding.fix}")


def print_probe(found: Probe) -> None:
    """What runs, acceptance by group of prompts, and the pattern."""
    printer = Printer()
    if found.effective.simulated:
        printer.print_text("SIMULATED: the figures below come from a simulated server.")
    told = {k: v for k, v in found.effective.speculative if v is not None and k in _TOLD}
    printer.print_text("runs: " + ", ".join(f"{key} {told[key]}" for key in _TOLD if key in told))
    for different in found.differences:
        printer.print_text(
            f"    not as asked: {different.name} was {different.asked}, is {different.effective}"
        )
    printer.print_text(f"{'prompts':<14} {'n':>3} {'steps':>6}  accept length   P(≥1), P(≥2), …")
    for group in found.groups:
        error = group.standard_error_tok
        spread = "" if error is None else f" ± {error:.2f}"
        shares = ", ".join(f"{share:.2f}" for share in group.at_position)
        printer.print_text(
            f"{group.group:<14} {group.requests:>3} {group.verify_ct:>6}  "
            f"{group.accept_len_tok:.2f}{spread:<9}  {shares}"
        )
    if found.expected_tok is not None:
        printer.print_text(f"training promises an accept length of {found.expected_tok:.2f}")
    if found.failed_ct:
        printer.print_text(f"{many(found.failed_ct, 'request')} failed and count nothing")
    printer.print("")
    for named in found.patterns:
        printer.print_text(f"{named.pattern.upper()}: {named.evidence}", style="bold")
        printer.print_text(f"    {named.meaning}")
        printer.print_text(f"    next: {named.next_step}")
    if found.files:
        printer.print_text("The draft's files:")
        print_findings(found.files, printer)


def print_wiring(report: WiringReport) -> None:
    """The captured slots, the best wirings, and what they suggest."""
    from bench.doctor.wiring import differences_of

    printer, ranking = Printer(), report.ranking
    for slot in report.slots:
        what = "no state that the server gave" if slot.state is None else f"state {slot.state}"
        printer.print_text(
            f"captured slot {slot.place}: {what} (cosine {slot.cosine:.3f}, next "
            f"{slot.runner_up:.3f})"
            + (f", of token i {slot.shift:+d} at row i" if slot.shift else "")
        )
    if report.side:
        printer.print_text(report.side.text, style="bold")
    printer.print_text(
        f"{ranking.tried} wirings tried on {ranking.rows_ct:,} tokens; accept length and top-1 by "
        "step:"
    )
    served = ranking.served
    for name, scored in (("served", served), *(("", each) for each in ranking.ranked[:5])):
        told = differences_of(scored.wiring, served.wiring, report.numbers)
        top1 = ", ".join(f"{share:.2f}" for share in scored.top1)
        what = "as served" if not told else "; ".join(told)
        printer.print_text(f"    {scored.accept_len_tok:5.2f}  {top1}  {name or what}")
    printer.print_text(
        f"the first is {ranking.margin_tok:.2f} above the next ({ranking.margin_errors:.1f} "
        "standard errors)"
    )
    printer.print_text(report.hypothesis, style="bold")
    if report.fix:
        printer.print_text(f"    fix:  {report.fix}")
