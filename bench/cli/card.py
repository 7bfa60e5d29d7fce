"""`bench card`: cards of one's own models and machines (docs/physics.md)."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.output import RESULTS, many, printing
from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.physics.fitting import Fit, MeasuredStep
    from bench.store import StoredRun

app = typer.Typer(
    help="Write a card for the simulator and the limit: of your model, of your machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(short_help="Print a target's card, made from its config.json.")
def target(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.json", help="The model's Hugging Face config.json.")
    ],
    draft: Annotated[
        Path | None,
        typer.Option(
            "--draft",
            metavar="CONFIG.json",
            help="The draft's config.json; else an EAGLE-3 draft of the usual shape is assumed.",
        ),
    ] = None,
) -> None:
    """Print a target's card as YAML: bench card target CONFIG.json > my.yaml.

    Give the file's path wherever the name of a target card is taken.
    """
    from bench.physics.card_text import card_yaml
    from bench.physics.model_config import draft_from_config, target_from_config

    name = _name_of(config)
    own = None
    if draft is not None:
        with _of_file(draft):
            own = draft_from_config(
                _read_json(draft), name=f"{name}-draft", source=f"Made from {_name_of(draft)}."
            )
    with _of_file(config):
        card = target_from_config(
            _read_json(config), name=name, draft=own, source=f"Made from {config.name} of {name}."
        )
    comment = (
        f"{card.architecture}: {card.total_parameters / 1e9:.1f} B parameters, "
        f"{card.active_parameters / 1e9:.1f} B active a token. "
        "Check these against what the model's makers say."
    )
    with printing():
        sys.stdout.write(card_yaml(card, comment=comment))


@app.command(short_help="Print a target's card with its overheads fitted to a stored run.")
def fit(
    run_name: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run: its id, the beginning or end of that, its folder, or `latest`.",
        ),
    ],
    target_name: Annotated[
        str, typer.Option("--target", metavar="CARD", help="Name or path of the target's card.")
    ],
    hardware_name: Annotated[
        str,
        typer.Option("--hardware", metavar="CARD", help="Name or path of the hardware's card."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of all results.")
    ] = RESULTS,
) -> None:
    """Print a target's card with its two overhead constants fitted to a stored run.

    They are fixed_ms, the time of a forward beyond bytes, operations and all-reduces, and
    cycle_fixed_ms, what a draft-and-verify cycle adds once. How well they fit is said on stderr.
    """
    from bench.cli.card_steps import measured_steps, require_same_model
    from bench.physics import load_hardware, load_target
    from bench.physics.card_text import card_yaml
    from bench.physics.fitting import fit_overheads
    from bench.store import find_run, load_run

    hardware, card = load_hardware(hardware_name), load_target(target_name)
    stored = load_run(find_run(out, run_name))
    require_same_model(stored, card)
    steps = measured_steps(stored)
    tp = _tensor_parallel_size(stored, hardware.gpus, hardware.name)
    fitted = fit_overheads(hardware, card, steps, tp=tp)
    what = "a SIMULATED run" if stored.simulated else "run"
    comment = (
        f"Overheads fitted to {what} {stored.run_id} on {hardware.name}, TP {tp}: "
        f"{many(len(steps), 'cell')}, {_spread(fitted)}."
    )
    _say(steps, fitted, simulated=stored.simulated)
    with printing():
        sys.stdout.write(card_yaml(fitted.target, comment=comment))


def _say(steps: list[MeasuredStep], fitted: Fit, *, simulated: bool) -> None:
    if simulated:
        print("SIMULATED: the run measured the simulator, not a server.", file=sys.stderr)
    for step, error in zip(steps, fitted.errors, strict=True):
        print(f"{step.label}: {step.step_ms:.2f} ms a step, card {error:+.1%}", file=sys.stderr)
    if fitted.far:
        cells = "; ".join(steps[at].label for at in fitted.far)
        print(
            f"DOUBTFUL: the card does not meet {cells} (more than 25 % off). Was the run "
            "disturbed, or is the target or the hardware another?",
            file=sys.stderr,
        )
    if fitted.target.cycle_fixed_ms is None:
        print(
            "cycle_fixed_ms is not fitted: it takes cells with and without speculation.",
            file=sys.stderr,
        )


def _spread(fitted: Fit) -> str:
    errors = sorted(abs(error) for error in fitted.errors)
    return f"median error {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}"


def _tensor_parallel_size(stored: StoredRun, gpus: int, hardware: str) -> int:
    from bench.cli.card_steps import tensor_parallel_sizes

    sizes = tensor_parallel_sizes(stored) or {1}
    if len(sizes) > 1 or max(sizes) > gpus:
        raise InputError(
            f"{stored.run_id}: tensor-parallel size {', '.join(map(str, sorted(sizes)))}; wanted "
            f"one, of at most the {gpus} of {hardware}",
            hint="Fit to a run whose arms share one size, with the card of its machine.",
        )
    return sizes.pop()


@contextmanager
def _of_file(path: Path) -> Iterator[None]:
    """Have what is wrong with a file begin with its path."""
    try:
        yield
    except InputError as error:
        told = str(error)
        if told.startswith(str(path)):
            raise
        raise InputError(f"{path}: {told}", hint=error.hint) from None


def _name_of(config: Path) -> str:
    """A card's name: the model's folder, or the file's own name."""
    is_plain = config.stem == "config" and config.absolute().parent.name
    return config.absolute().parent.name if is_plain else config.stem


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(
            f"{path}: {reason}", hint="Give the path of the model's config.json."
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path} is no JSON: {error}", hint="Give the path of the model's config.json."
        ) from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{path}: a number of too many digits, or nested too deeply",
            hint="Give the path of the model's config.json.",
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            f"{path}: wanted the fields of a model's config.json, found {type(found).__name__}",
            hint="Give the path of the model's config.json.",
        )
    return found
