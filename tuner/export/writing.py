"""The files of an export: made, held against the rules as they stand, then put in place."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from bench.errors import BenchError, DiskError, InputError, StoreError
from bench.plan import make_plan
from bench.plan.servers import planned_arm
from bench.provenance import redact_argv
from bench.scenario import load_scenario
from bench.store.disk import flush_folder, replace_file, writing
from bench.store.manifest import json_bytes, read_json
from tuner.export.accepting import MEANING, accept_lengths
from tuner.export.adaptive import ADAPTIVE, CONFIG, choose, config_json
from tuner.export.adaptive_checks import refusal
from tuner.export.arms import arms_of, config_file, form_arm
from tuner.export.command import (
    SIMULATED,
    answer_sentence,
    environment_of,
    launch_script,
    shell_command,
)
from tuner.export.ground import ground_of
from tuner.export.scenario_text import SUFFIX, scenario_text, tuned_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.model.study import Study
    from tuner.export.adaptive import Adaptive
    from tuner.export.ground import Ground

LAUNCH: Final = "launch.sh"
ACCEPT_LENGTHS: Final = "accept-lengths.json"
INDEX: Final = "export.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written, and what is said of it.

    Attributes:
        folder: Where.
        study_id: Of the study.
        simulated: Whether its servers were.
        answer: What the study says to do, in a sentence.
        label: The configuration handed over.
        environment: Its variables, secrets redacted.
        command: Its launch command as a shell takes it, secrets redacted.
        adaptive_reason: Why no adaptive configuration is written; None: both are.
        adaptive_steps: Of the pinned form: (from which batch size on, step count).
        adaptive_use: How the forms are tried, in a sentence; None without them.
        notes: What else is worth knowing, in sentences.
        scenario: The scenario's file.
        files: All files, by name: what each is.
    """

    folder: Path
    study_id: str
    simulated: bool
    answer: str
    label: str
    environment: Mapping[str, str]
    command: str
    adaptive_reason: str | None
    adaptive_steps: tuple[tuple[int, int], ...]
    adaptive_use: str | None
    notes: tuple[str, ...]
    scenario: str
    files: Mapping[str, str]


def default_folder(study: Study) -> Path:
    """Where an export goes unless a folder is named: `<scenario>-tuned` in the present one."""
    return Path(f"{study.scenario.removesuffix(SUFFIX)}{SUFFIX}")


def export_study(folder: Path, study: Study, out: Path) -> Exported:
    """Write what a study hands over.

    Files of an earlier export of the same study are replaced; nothing else is.

    Args:
        folder: Of the study's run.
        study: From `bench.store.study.read_study`.
        out: The folder to write to; made where there is none.

    Raises:
        InputError: The study has no conclusion, its scenario is not good any more, or `out` holds
            files that are not of this study.
        DiskError: They cannot be written.
    """
    ground = ground_of(folder, study)
    adaptive = choose(ground)
    files = _files(ground, adaptive)
    reason = _wrong(ground, adaptive, files)
    if reason is not None and adaptive.forms:
        adaptive = replace(adaptive, base=None, pinned=(), responsive=(), reason=reason, notes=())
        files = _files(ground, adaptive)
        reason = _wrong(ground, adaptive, files)
    if reason is not None:
        raise InputError(
            f"the scenario made of study {study.study_id} cannot be run: {reason}",
            hint="The study's scenario has to be good on this machine: put back the files that it "
            "names.",
        )
    _publish(study, out, files)
    return Exported(
        folder=out,
        study_id=study.study_id,
        simulated=study.simulated,
        answer=answer_sentence(ground),
        label=ground.deployed.label,
        environment=environment_of(ground),
        command=shell_command(redact_argv(ground.argv)),
        adaptive_reason=adaptive.reason,
        adaptive_steps=tuple((tier.batch, tier.steps[0]) for tier in adaptive.pinned),
        adaptive_use=_use(ground, adaptive, out),
        notes=adaptive.notes,
        scenario=_scenario_file(study),
        files={name: _ABOUT.get(name, _SCENARIO_ABOUT) for name in (*files, INDEX)},
    )


_SCENARIO_ABOUT: Final = "the winner as an arm, for `bench run` and nightly runs"
_ABOUT: Final = {
    LAUNCH: "starts the server",
    ACCEPT_LENGTHS: "accept lengths for capacity planners",
    config_file("pinned"): "one step count a batch size, for --speculative-adaptive-config",
    config_file("responsive"): "several, between which SGLang chooses",
    INDEX: "what was written, and of which study",
}


# --------------------------------------------------------------------------------------- the files


def _use(ground: Ground, adaptive: Adaptive, out: Path) -> str | None:
    if not adaptive.forms:
        return None
    arms = " and ".join(map(form_arm, adaptive.forms))
    told = f"The scenario's arms {arms} measure them."
    if adaptive.base is ground.deployed and adaptive.initial_steps == ground.deployed.num_steps:
        words = shlex.join([ADAPTIVE, CONFIG, str(out / config_file("pinned"))])
        told += f" By hand: add {words} to the command."
    return told


def _scenario_file(study: Study) -> str:
    return f"{tuned_name(study.scenario)}.yaml"


def _made_by(ground: Ground) -> dict[str, Any]:
    study = ground.study
    told = {"study": study.study_id, "scenario": study.scenario, "simulated": study.simulated}
    if study.simulated:
        told["warning"] = SIMULATED
    return {**told, "engine_version": study.engine_version, "answer": answer_sentence(ground)}


def _heading(ground: Ground, first: str) -> list[str]:
    study = ground.study
    return [
        first,
        *([SIMULATED] if study.simulated else []),
        f"From study {study.study_id} of scenario {study.scenario}.",
        answer_sentence(ground),
    ]


def _files(ground: Ground, adaptive: Adaptive) -> dict[str, bytes]:
    """All files but the index, by name."""
    made_by = _made_by(ground)
    lengths = {"made_by": made_by, "meaning": MEANING}
    files = {
        LAUNCH: launch_script(
            ground, _heading(ground, f"Starts {ground.deployed.label}.")
        ).encode(),
        ACCEPT_LENGTHS: json_bytes({**lengths, "configurations": accept_lengths(ground.study)}),
    }
    for form, tiers in adaptive.forms.items():
        files[config_file(form)] = json_bytes(config_json(tiers, {**made_by, "form": form}))
    heading = _heading(ground, "What a tuning study hands over, to be measured again.")
    text = scenario_text(ground, adaptive, arms_of(ground, adaptive), heading)
    files[_scenario_file(ground.study)] = text.encode()
    return files


def _wrong(ground: Ground, adaptive: Adaptive, files: Mapping[str, bytes]) -> str | None:
    """Why the scenario, or an adaptive form that it names, is not good; None: all is."""
    with TemporaryDirectory(prefix="tuner-export-") as name:
        folder = Path(name)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        try:
            loaded = load_scenario(folder / _scenario_file(ground.study))
            words = {
                form: planned_arm(loaded, form_arm(form), sim_hardware=None).server.arguments
                for form in adaptive.forms
            }
            reason = refusal(ground, adaptive, words)
            if reason is None:
                make_plan(loaded, simulated=ground.study.simulated)
        except BenchError as error:
            return str(error).replace(f"{folder}/", "")
    return reason


# -------------------------------------------------------------------------------- putting in place


def _publish(study: Study, out: Path, files: Mapping[str, bytes]) -> None:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    index = {"study": study.study_id, "scenario": study.scenario, "simulated": study.simulated}
    try:
        with writing("the export", out):
            written = _written_before(study, out, files)
            out.mkdir(parents=True, exist_ok=True)
            for name, data in {**files, INDEX: json_bytes({**index, "files": hashes})}.items():
                replace_file(out / name, methodcaller("write", data))
            for name in written - set(files):
                (out / name).unlink(missing_ok=True)
            flush_folder(out)
    except DiskError as error:  # which is of runs: nothing is resumed here
        error.hint = (
            "Make room, or name a folder that can be written to with --to; then export again. "
            "The study is as it was."
        )
        raise


def _written_before(study: Study, out: Path, files: Mapping[str, bytes]) -> set[str]:
    """Files of an earlier export of this study, as it left them.

    Raises:
        InputError: A file that would be replaced is not one of these.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file.", hint="Name a folder to export to.")
    before = _index(out)
    if before and before.get("study") != study.study_id:
        raise InputError(
            f"{out} holds the export of study {before.get('study')}; asked was that of "
            f"{study.study_id}.",
            hint="Name another folder, or move that one away.",
        )
    hashes = before.get("files")
    known = hashes if isinstance(hashes, dict) else {}
    for name, data in files.items():
        found = _bytes(out / name)
        if found is None or found == data or _sha256(found) == known.get(name):
            continue
        raise InputError(
            f"{out / name} is there and is not, or not any more, what an export wrote.",
            hint="Move it away, or name another folder.",
        )
    return {
        name
        for name, sha256 in known.items()
        if Path(name).name == name
        if (found := _bytes(out / name)) is not None and _sha256(found) == sha256
    }


def _index(out: Path) -> dict[str, Any]:
    if not (out / INDEX).exists():
        return {}
    try:
        index = read_json(out / INDEX)
    except StoreError:
        index = None
    if not isinstance(index, dict) or "study" not in index:
        raise InputError(
            f"{out / INDEX} is there and is no export's.",
            hint="Move it away, or name another folder.",
        )
    return index


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
