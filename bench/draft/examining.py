"""A draft examined from its files alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.draft.case import Case, LaunchArguments, case_of
from bench.draft.checkpoint import read_checkpoint
from bench.draft.draft import draft_of
from bench.draft.findings import DraftFinding, Level
from bench.draft.flow import flow_of
from bench.draft.rules import CHECKS
from bench.draft.sources import is_folder
from bench.draft.target import read_target
from bench.errors import InputError
from bench.sglang.arguments import SUPPORTED

if TYPE_CHECKING:
    from bench.draft.loading import Loaded

_ORDER: Final = {Level.FAULT: 0, Level.SUSPECT: 1, Level.NOTE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was looked at, and what was found, the worst first."""

    case: Case
    findings: tuple[DraftFinding, ...]
    flow: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing but notes was found."""
        return all(finding.level is Level.NOTE for finding in self.findings)


def examine(
    draft: str, *, target: str | None = None, launch: LaunchArguments | None = None
) -> Examination:
    """Examine a draft.

    Args:
        draft: Its folder or Hugging Face id.
        target: Its target's; None: the `--model-path` of `launch`, if that is a local folder.
        launch: The command line it is to be served with.

    Raises:
        InputError: A checkpoint is not there, not whole, or not in safetensors.
    """
    named = target or (None if launch is None else _local(launch.text("model_path")))
    found = draft_of(read_checkpoint(draft))
    known = None if named is None else read_target(named)
    if known is not None and "eagle3" in (known.architecture or "").lower():
        raise InputError(
            f"the target {known.name} is itself a draft ({known.architecture}).",
            hint="Give --target the model that it drafts for.",
        )
    return examine_case(case_of(found, target=known, launch=launch))


def _local(path: str | None) -> str | None:
    return path if path is not None and is_folder(path) else None


def examine_case(case: Case) -> Examination:
    """Apply every rule to a case."""
    found = [finding for check in CHECKS for finding in check(case)]
    found.sort(key=lambda finding: _ORDER[finding.level])
    return Examination(case=case, findings=tuple(found), flow=flow_of(case))


def as_json(examined: Examination) -> dict[str, Any]:
    """An examination for programs."""
    case = examined.case
    draft, target, captured = case.draft, case.target, case.captured
    return {
        "draft": draft.name,
        "target": None if target is None else target.name,
        "form": draft.form,
        "architecture": draft.architecture,
        "sglang_version": SUPPORTED,
        "status": "clean" if examined.is_clean else "suspect",
        "findings": [asdict(finding) for finding in examined.findings],
        "flow": list(examined.flow),
        "captured_states": None if captured is None else list(captured.states),
        "vocabulary_map": {
            "convention": case.vocabulary.convention,
            "is_proved": case.vocabulary.is_proved,
        },
        "weights": None if case.loaded is None else _weights(case.loaded),
    }


def _weights(loaded: Loaded) -> dict[str, Any]:
    return {
        "loaded": {slot: list(names) for slot, names in loaded.filled.items()},
        "renamed": [list(pair) for pair in loaded.renamed],
        "dropped": [tensor.name for tensor in loaded.dropped],
        "missing": list(loaded.missing),
    }
