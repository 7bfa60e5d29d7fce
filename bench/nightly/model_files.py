"""What a model's files are, by content: a draft that was trained again has the name it had."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLED_BLOCKS: Final = 16
_BLOCK_BYTES: Final = 65536
_HASH_CHARS: Final = 16
_SMALL: Final = {
    "config": ("config.json",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "tiktoken.model", "tokenizer_config.json"),
    "chat_template": ("chat_template.jinja", "chat_template.json"),
}


def model_facts(path: str, revision: str | None) -> dict[str, str]:
    """Hashes of a model's files, where this machine has them; else nothing.

    Args:
        path: A folder, or a repository (owner/name) that is looked up in Hugging Face's cache.
        revision: Its branch, tag or commit.

    Returns:
        `commit` where it is known, `config`, `tokenizer`, `chat_template`, and `weights`: the hash
        of their names, sizes and 16 blocks of 64 KiB of each, for reading a terabyte every night
        costs more than it tells.
    """
    folder = Path(path)
    facts: dict[str, str] = {}
    try:
        if not folder.is_dir():
            found = _cached(path, revision)
            if found is None:
                return {}
            facts["commit"], folder = found
        for name, files in _SMALL.items():
            present = [folder / file for file in files if (folder / file).is_file()]
            if present:
                facts[name] = _short(b"".join(file.read_bytes() for file in present))
        weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
        if weights:
            facts["weights"] = _short(b"".join(part for file in weights for part in _sample(file)))
    except OSError:
        return facts  # what cannot be read is not recorded
    return facts


def _cached(repository: str, revision: str | None) -> tuple[str, Path] | None:
    """(commit, folder) of a repository in Hugging Face's cache."""
    home = os.environ.get("HF_HOME")
    default = Path(home) / "hub" if home else Path.home() / ".cache/huggingface/hub"
    cache = Path(os.environ.get("HF_HUB_CACHE") or default)
    model = cache / f"models--{repository.replace('/', '--')}"
    named = revision if revision and revision != "None" else "main"
    ref = model / "refs" / named
    commit = ref.read_text().strip() if ref.is_file() else named
    folder = model / "snapshots" / commit
    return (commit, folder) if folder.is_dir() else None


def _sample(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    yield f"{file.name} {size}\n".encode()
    with file.open("rb") as opened:
        last = max(size - _BLOCK_BYTES, 0)
        for block in range(SAMPLED_BLOCKS):
            opened.seek(last * block // (SAMPLED_BLOCKS - 1))
            yield hashlib.sha256(opened.read(_BLOCK_BYTES)).digest()


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HASH_CHARS]
