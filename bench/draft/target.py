"""The target as a draft depends on it: its class, sizes, rope, vocabulary and embedding."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.draft.checkpoint import INDEX, Checkpoint, read_config, weight_files
from bench.draft.config_values import architecture_of, text_of, whole
from bench.draft.headers import read_header
from bench.draft.rope import Rope, rope_of
from bench.draft.sources import open_source, read_json
from bench.errors import InputError
from bench.sglang.arguments import ModelFacts, model_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.draft.headers import Tensor
    from bench.draft.sources import Source

TOKENIZER: Final = "tokenizer.json"
TEMPLATE: Final = "chat_template.jinja"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_MOST_HASHED_BYTES: Final = 64 * 2**20
_EMBEDDINGS: Final = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target model; None is not known.

    Attributes:
        name: What the user called it.
        facts: What the rules of SGLang's arguments ask of it.
        architecture: `architectures[0]`.
        hidden: Width of its hidden states.
        layers: Transformer layers.
        vocab_size: Rows of its embedding, by its config.
        max_positions: `max_position_embeddings`.
        rope: Its rotary positions.
        embedding: Its files with just the embedding's tensor, to be compared with the draft's.
        tokenizer_hashes: SHA-256 of its tokenizer's files, by name.
    """

    name: str
    facts: ModelFacts
    architecture: str | None
    hidden: int | None
    layers: int | None
    vocab_size: int | None
    max_positions: int | None
    rope: Rope
    embedding: tuple[Checkpoint, Tensor] | None = None
    tokenizer_hashes: Mapping[str, str]


def read_target(asked: str) -> Target:
    """A target's config, its embedding's place, and the hashes of its tokenizer's files.

    Raises:
        InputError: It is not there, or its files are damaged.
    """
    source = open_source(asked)
    names = source.names()
    config = read_config(source, names)
    return target_of(
        config,
        name=source.name,
        embedding=_embedding(source, names, config),
        tokenizer_hashes=hashes_of(source, names),
    )


def target_of(
    config: Mapping[str, Any],
    *,
    name: str,
    embedding: tuple[Checkpoint, Tensor] | None = None,
    tokenizer_hashes: Mapping[str, str] | None = None,
) -> Target:
    """A target by its config.json; the text model's own block wins where there is one."""
    text = text_of(config)
    return Target(
        name=name,
        facts=model_facts(config),
        architecture=architecture_of(config),
        hidden=whole(text, "hidden_size"),
        layers=whole(text, "num_hidden_layers"),
        vocab_size=whole(text, "vocab_size"),
        max_positions=whole(text, "max_position_embeddings"),
        rope=rope_of(text),
        embedding=embedding,
        tokenizer_hashes=tokenizer_hashes or {},
    )


def hashes_of(source: Source, names: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of a tokenizer's files, by name; those too long to be one are left out.

    A chat template in tokenizer_config.json, where it was kept before, counts as the file it is in
    now.
    """
    found: dict[str, str] = {}
    for name in (TOKENIZER, TEMPLATE):
        if name in names and (size := source.size_bytes(name)) <= _MOST_HASHED_BYTES:
            found[name] = hashlib.sha256(source.read(name, 0, size)).hexdigest()
    if TEMPLATE not in found and _TOKENIZER_CONFIG in names:
        template = read_json(source, _TOKENIZER_CONFIG).get("chat_template")
        if isinstance(template, str):
            found[TEMPLATE] = hashlib.sha256(template.encode(errors="replace")).hexdigest()
    return found


def _embedding(
    source: Source, names: tuple[str, ...], config: Mapping[str, Any]
) -> tuple[Checkpoint, Tensor] | None:
    """The embedding's tensor: of all the target's files, only the one it is in is opened."""
    try:
        files = weight_files(source, names)
    except InputError:
        return None  # a config alone is enough for all rules but one
    if INDEX in names:
        mapped = read_json(source, INDEX)["weight_map"]
        files = tuple({mapped[name] for name in mapped if _is_embedding(name)})
    for file in files:
        found = {tensor.name: tensor for tensor in read_header(source, file)}
        name = next((name for name in found if _is_embedding(name)), None)
        if name is not None:
            only = {name: found[name]}
            return Checkpoint(source=source, config=config, tensors=only), found[name]
    return None


def _is_embedding(name: str) -> bool:
    return name.endswith(_EMBEDDINGS) and "vision" not in name and ".layers." not in name
