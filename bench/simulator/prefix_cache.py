"""The prefix cache: which beginnings of prompts are still in the KV cache.

A prompt is known by a chain of hashes, one for each whole block of tokens, each over its block and
all before it. Blocks in use by a running request are locked; the others stay, least recently used
first to go, deeper ones before their beginnings, as in SGLang's radix tree.
"""

from __future__ import annotations

from collections import OrderedDict

from bench.simulator.words import BYTES_PER_TOK

BLOCK_TOK = 16
_BLOCK_BYTES = BLOCK_TOK * BYTES_PER_TOK


def block_hashes(prompt: bytes, prompt_tok: int) -> list[int]:
    """One hash a whole block; the last token is never among them: it must be computed."""
    blocks = (prompt_tok - 1) // BLOCK_TOK
    chain = 0
    hashes = []
    for start in range(0, blocks * _BLOCK_BYTES, _BLOCK_BYTES):
        chain = hash((chain, prompt[start : start + _BLOCK_BYTES]))
        hashes.append(chain)
    return hashes


class PrefixCache:
    """Blocks in the KV cache: locked ones with their users, evictable ones in order of use."""

    def __init__(self) -> None:
        self._locked: dict[int, int] = {}
        self._evictable: OrderedDict[int, None] = OrderedDict()

    @property
    def locked_tok(self) -> int:
        """Tokens of blocks that running requests use."""
        return len(self._locked) * BLOCK_TOK

    @property
    def evictable_tok(self) -> int:
        """Tokens of blocks that could go."""
        return len(self._evictable) * BLOCK_TOK

    def match(self, blocks: list[int]) -> int:
        """How many of a prompt's first blocks are here."""
        for at, block in enumerate(blocks):
            if block not in self._locked and block not in self._evictable:
                return at
        return len(blocks)

    def lock(self, blocks: list[int]) -> None:
        """Take blocks into use, entering those that were not here."""
        for block in blocks:
            self._evictable.pop(block, None)
            self._locked[block] = self._locked.get(block, 0) + 1

    def unlock(self, blocks: list[int]) -> None:
        """Give blocks back; a block without users becomes evictable."""
        for block in reversed(blocks):
            users = self._locked[block] - 1
            if users:
                self._locked[block] = users
            else:
                del self._locked[block]
                self._evictable[block] = None

    def shrink_to(self, evictable_tok: int) -> None:
        """Evict until at most `evictable_tok` tokens are evictable."""
        while self._evictable and self.evictable_tok > max(evictable_tok, 0):
            self._evictable.popitem(last=False)

    def clear(self) -> None:
        """Forget every block that no request uses."""
        self._evictable.clear()
