"""What of a scenario is measured: `--only KEY=VALUE` and `--attach [ARM=]URL`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.errors import InputError
from bench.model import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEYS = ("arm", "workload", "load", "pair")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is left after `--only`; an empty set of a key leaves all.

    Attributes:
        arms: The arms named, without the baseline that is kept beside them.
    """

    arms: frozenset[str]
    workloads: frozenset[str]
    loads: frozenset[str]
    pairs: frozenset[str]

    def has_arm(self, name: str) -> bool:
        """Whether an arm is measured: the baseline always is, what else would it be for."""
        return not self.arms or name in self.arms or name == BASELINE

    def has_cell(self, *, workload: str, load: str, pair: int) -> bool:
        """Whether a cell is measured, its arm being."""
        return (
            (not self.workloads or workload in self.workloads)
            and (not self.loads or load in self.loads)
            and (not self.pairs or str(pair) in self.pairs)
        )


def select(only: Sequence[str], valid: Mapping[str, Sequence[str]]) -> Selection:
    """Read the `--only` values: any of the values of a key, and all of the keys.

    Args:
        only: `KEY=VALUE` each.
        valid: The values there are, by key.

    Raises:
        InputError: A key or a value that there is not, naming those there are.
    """
    chosen: dict[str, set[str]] = {key: set() for key in KEYS}
    for text in only:
        key, _, value = text.partition("=")
        if key not in chosen:
            raise InputError(
                f"--only {text}: wanted KEY=VALUE with one of the keys {', '.join(KEYS)}.",
                hint=f"Write e.g. --only arm={BASELINE}.",
            )
        if value not in valid[key]:
            raise InputError(
                f"--only {text}: the scenario has no {key} called {value!r}.",
                hint=f"Valid: {', '.join(f'{key}={name}' for name in valid[key])}.",
            )
        chosen[key].add(value)
    return Selection(
        arms=frozenset(chosen["arm"]),
        workloads=frozenset(chosen["workload"]),
        loads=frozenset(chosen["load"]),
        pairs=frozenset(chosen["pair"]),
    )


def attached_urls(
    attach: Mapping[str, str], arms: Sequence[str], selection: Selection
) -> dict[str, str]:
    """The URL of each attached arm; arms without one are not measured.

    A URL without an arm (key "") is the one arm's that `--only` names, else the baseline's.

    Raises:
        InputError: An unknown arm, two URLs for one, a text that is no URL.
    """
    urls: dict[str, str] = {}
    for asked, url in attach.items():
        arm = asked or (next(iter(selection.arms)) if len(selection.arms) == 1 else BASELINE)
        if arm not in arms:
            raise InputError(
                f"--attach {asked}={url}: the scenario has no arm called {asked!r}.",
                hint=f"Valid: {', '.join(arms)}.",
            )
        if arm in urls:
            raise InputError(
                f"--attach: two URLs for the arm {arm}: {urls[arm]} and {url}.",
                hint="Write --attach ARM=URL for each server.",
            )
        urls[arm] = _base_url(url)
    left_out = sorted(selection.arms - set(urls)) if urls else []
    if left_out:
        raise InputError(
            f"--only arm={left_out[0]}: no server is attached for it.",
            hint=f"Add --attach {left_out[0]}=URL.",
        )
    return urls


def url_problem(url: str) -> str | None:
    """Why a text is no base URL of a server, as the rest of a sentence; None: it is one."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return "is no http or https URL"
        if parts.query or parts.fragment or parts.username:
            return "has more than scheme, host, port and path"
        if parts.port == 0:
            return "has the port 0"
    except ValueError as error:
        return f"is no URL: {error}"
    return None


def _base_url(url: str) -> str:
    problem = url_problem(url)
    if problem is not None:
        shown = url.rpartition("@")[2]  # never a user and a password
        raise InputError(f"--attach: {shown!r} {problem}.", hint="Write http://HOST:PORT.")
    return url.rstrip("/")
