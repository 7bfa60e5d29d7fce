"""A configuration: everything that one launch has otherwise than another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.model.study import StudyConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One server configuration of the space, in its effective form.

    Attributes:
        algorithm: Speculative algorithm; None: no speculation, and then the next three are None.
        num_steps: Draft steps a cycle.
        eagle_topk: Branches a draft step.
        num_draft_tokens: Tokens verified a cycle, the root counted.
        arguments: Further arguments as (option, value), sorted; a flag has the value "true".
        environment: Variables as (name, value), sorted.
    """

    algorithm: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def draft(self) -> tuple[str | None, int, int, int]:
        """(algorithm, steps, topk, draft tokens): what acceptance depends on."""
        return (
            self.algorithm,
            self.num_steps or 0,
            self.eagle_topk or 0,
            self.num_draft_tokens or 0,
        )

    @property
    def setting(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """All but the draft: arguments and environment."""
        return (self.arguments, self.environment)

    @property
    def is_tree(self) -> bool:
        """Whether drafts branch."""
        return (self.eagle_topk or 0) > 1

    @property
    def label(self) -> str:
        """`EAGLE3 3-1-4 attention-backend=fa3 NCCL_ALGO=Ring`, `NGRAM 8`, `off`."""
        if self.algorithm is None:
            words = ["off"]
        else:
            numbers = (self.num_steps, self.eagle_topk, self.num_draft_tokens)
            words = [self.algorithm, "-".join(str(n) for n in numbers if n is not None)]
        words += [f"{name}={value}" for name, value in (*self.arguments, *self.environment)]
        return " ".join(words)


def configuration_in(study: StudyConfiguration) -> Configuration:
    """A configuration as a study has stored it."""
    return Configuration(
        algorithm=study.algorithm,
        num_steps=study.num_steps,
        eagle_topk=study.eagle_topk,
        num_draft_tokens=study.num_draft_tokens,
        arguments=study.arguments,
        environment=study.environment,
    )
