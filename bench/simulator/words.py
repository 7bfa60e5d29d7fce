"""What the simulated model says: seeded, varied words, a function of the prompt and not of speed.

One token is one piece of four characters (a space and a syllable), so that 4 bytes a token holds
for answers as it does for prompts. The answer depends on the prompt, and on the sampling seed when
the temperature is above 0; on nothing else: every arm and every launch gets the same text.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

BYTES_PER_TOK = 4
FIRST_TOKEN_ID = 1000
PIECES = tuple(
    f" {start}{vowel}{end}"
    for start in "bcdfghjklmnprstvwz"
    for vowel in "aeiou"
    for end in "bdfgklmnprstvxz"
)
THINK_END = "</think>"
THINK_END_ID = 163607

# Lengths of answers: lognormal, so that nearly all (97 %) are longer than a cap of 256 tokens.
_MEDIAN_LENGTH_TOK = 1200
_LENGTH_SIGMA = 0.8
_MEDIAN_THINKING_TOK = 600


@dataclass(slots=True, kw_only=True)
class Answer:
    """One answer: its length is fixed, its tokens are made as far as they are asked for.

    Attributes:
        length_tok: All its tokens, thinking and end-of-text token included.
        thinking_tok: How many at its beginning are thinking; the last of these ends it.
        natural: Whether it ends of itself (its last token is end-of-text) and not at the cap.
        eos_token_id: The end-of-text token.
        rng: Draws its words.
        vocabulary: What it draws from; of one word it is a loop.
        fixed_id: The number of every token after the first; None: each has that of its word.
    """

    length_tok: int
    thinking_tok: int
    natural: bool
    eos_token_id: int
    rng: random.Random
    vocabulary: range = range(len(PIECES))
    fixed_id: int | None = None
    _words: list[int] = field(default_factory=list)

    def token_ids(self, start: int, end: int) -> list[int]:
        """Tokens `start` to `end` (exclusive)."""
        ids = [FIRST_TOKEN_ID + word for word in self._made(end)[start:end]]
        if self.fixed_id is not None:
            return [*ids[: max(0, 1 - start)], *(self.fixed_id for _ in range(max(start, 1), end))]
        if start < self.thinking_tok <= end:
            ids[self.thinking_tok - 1 - start] = THINK_END_ID
        if self.natural and end == self.length_tok > start:
            ids[-1] = self.eos_token_id
        return ids

    def text(self, start: int, end: int) -> str:
        """The text of tokens `start` to `end`; the tokens that end thinking and text have none."""
        words = self._made(end)
        if self.fixed_id is not None:
            words = [*words[:1], *(0 for _ in range(1, end))]
        silent = {self.thinking_tok - 1}
        if self.natural:
            silent.add(self.length_tok - 1)
        return "".join([PIECES[words[at]] for at in range(start, end) if at not in silent])

    def _made(self, end: int) -> list[int]:
        words = self._words
        if len(words) < end:
            words += self.rng.choices(self.vocabulary, k=max(64, end - len(words)))
        return words


def prompt_seed(prompt: bytes, sampling_seed: int | None) -> int:
    """A stable 64-bit number of a prompt and a sampling seed."""
    salt = b"" if sampling_seed is None else sampling_seed.to_bytes(16, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(prompt, digest_size=8, salt=salt).digest(), "little")


def make_answer(  # what an answer depends on, and nothing else
    seed: int,
    *,
    cap_tok: int,
    ignore_eos: bool,
    thinking: bool,
    eos_token_id: int,
    fixed_id: int | None = None,
) -> Answer:
    """The answer of a request.

    Args:
        seed: Of `prompt_seed`.
        cap_tok: The most tokens allowed.
        ignore_eos: Whether generation runs to the cap.
        thinking: Whether it begins with thinking.
        eos_token_id: The end-of-text token.
        fixed_id: As of `Answer`; such an answer never ends of itself.
    """
    rng = random.Random(seed)  # noqa: S311  # a simulation
    wanted = 1 + round(rng.lognormvariate(0.0, _LENGTH_SIGMA) * _MEDIAN_LENGTH_TOK)
    thinking_tok = 0
    if thinking:
        thinking_tok = 2 + round(rng.lognormvariate(0.0, _LENGTH_SIGMA) * _MEDIAN_THINKING_TOK)
        wanted += thinking_tok
    natural = not ignore_eos and fixed_id is None and wanted <= cap_tok
    return Answer(
        length_tok=wanted if natural else cap_tok,
        thinking_tok=thinking_tok,
        natural=natural,
        eos_token_id=eos_token_id,
        rng=rng,
        fixed_id=fixed_id,
    )
