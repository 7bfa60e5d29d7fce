"""The schema of a scenario's `tune:` block: what each key is, its unit and its default."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bench.scenario.fields import MOST_DRAFT_TOKENS

MOST_HOURS: Final = 10_000

Text = Annotated[str, Field(min_length=1)]
PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Block(BaseModel):
    """No unknown keys, no conversions, no change after reading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class Range(_Block):
    """Whole numbers from one to another, both included."""

    from_: Annotated[int, Field(ge=0, alias="from")]
    """The least."""
    to: Annotated[int, Field(ge=0, le=MOST_DRAFT_TOKENS)]
    """The most."""
    step: PositiveInt = 1
    """The distance of neighbours."""

    @property
    def values(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.from_, self.to + 1, self.step))


Numbers = tuple[Annotated[int, Field(ge=0)], ...] | Range


def _word(value: object) -> object:
    """A value of an argument or variable as the command line has it; null: not given."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else None
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value


Word = Annotated[str | None, BeforeValidator(_word)]


class Bundle(_Block):
    """Arguments and variables that belong together: one value of a named axis."""

    arguments: dict[Text, Word] = {}
    """SGLang's options with their values; true is a flag, null leaves an option out."""
    environment: dict[VariableName, Word] = {}
    """Variables with their values; null leaves a variable out."""


class Constraints(_Block):
    """Limits that a configuration must keep to be handed over; those left out are no limits."""

    ttft_p99_ms: PositiveFloat | None = None
    """The 99th percentile of the time to the first token, in every cell."""
    tpot_p99_ms: PositiveFloat | None = None
    """The 99th percentile of the time a token, in every cell."""
    memory_headroom_gib: PositiveFloat | None = None
    """Memory that must stay free on every GPU."""


class Budget(_Block):
    """What the sweep may cost, the final included; the first to be spent ends it."""

    launches: Annotated[int, Field(ge=4, le=10_000)] = 40
    """Starts of a server."""
    hours: Annotated[float, Field(gt=0, le=MOST_HOURS)] | None = None
    """Hours of the clock."""


class Stop(_Block):
    """When searching on is not worth a launch."""

    expected_gain: Annotated[float, Field(ge=0, lt=1)] = 0.0005
    """The final begins when no launch is expected to better the best by this share."""
    least_launches: PositiveInt = 8
    """But not before this many launches."""


class Tune(_Block):
    """What is searched, for what, and how far."""

    algorithm: tuple[Text, ...] = ("EAGLE3",)
    """--speculative-algorithm; no speculation is always among the candidates."""
    num_steps: Numbers = (1, 2, 3, 4, 5, 6, 7, 8)
    """--speculative-num-steps: a list, or {from: 1, to: 8}."""
    eagle_topk: Numbers = (1,)
    """--speculative-eagle-topk: 1 is a chain."""
    num_draft_tokens: Numbers = (4, 8, 16, 32)
    """--speculative-num-draft-tokens of trees; a chain's follows from its steps."""
    arguments: dict[Text, tuple[Word, ...]] = {}
    """Further options of SGLang, each with the values to try; null: as in server.arguments."""
    environment: dict[VariableName, tuple[Word, ...]] = {}
    """Environment variables, each with the values to try; null: as in
    server.environment."""
    bundles: dict[Text, dict[Text, Bundle]] = {}
    """Axes whose values are several arguments and variables at once, e.g. transport: {default:
    {}, wide: {environment: {NCCL_MIN_NCHANNELS: 16}}}. The first is the present setting."""
    workloads: dict[Text, Weight] = {}
    """Weights of the workloads; those left out are not measured. Empty: all alike."""
    loads: dict[Text, Weight] = {}
    """Weights of the loads by label ("8", "rate=4"). Empty: all alike."""
    objective: Literal["tok_per_s", "tok_per_s_per_user", "goodput", "energy"] = "tok_per_s"
    """What counts: tokens a second, those of one user, requests within the slo, tokens a joule."""
    constraints: Constraints = Constraints()
    """Limits to keep."""
    budget: Budget = Budget()
    """What it may cost."""
    stop: Stop = Stop()
    """When to stop earlier."""
    present: Text | None = None
    """The arm that is in use now, if it is not the baseline: it takes part in the final."""
    known_good: tuple[Text, ...] = ()
    """Arms of the scenario to launch first."""
    adaptive: bool = False
    """Whether a server may alternate two step counts within one launch to compare them."""
