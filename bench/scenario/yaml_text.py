"""YAML text to plain data, with the line of every key.

Values of keys that hold text by nature (a revision, an environment variable, a command-line
argument) are taken as they are written, quoted or not; others as `bench.scenario.scalars` says.
Anchors, aliases and merges (`<<`) work, and keys keep the lines where they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import yaml

from bench.scenario.mistakes import Mistake
from bench.scenario.scalars import NULLS, NoScalarError, plain_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

Key: TypeAlias = tuple[str, ...]
_Pairs: TypeAlias = dict[str, tuple[yaml.Node, yaml.Node]]

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_NODES = 10_000

# Keys whose values are text as written; "*" is any one key, and what lies below is text as well.
_TEXT_KEYS: tuple[Key, ...] = (
    ("name",),
    ("question",),
    ("target", "path"),
    ("target", "revision"),
    ("draft", "path"),
    ("draft", "revision"),
    ("server", "arguments"),
    ("server", "environment"),
    ("server", "launcher"),
    ("server", "api_key"),
    ("arms", "*", "arguments"),
    ("arms", "*", "environment"),
    ("arms", "*", "draft", "path"),
    ("arms", "*", "draft", "revision"),
    ("workloads", "*", "dataset_path"),
    ("workloads", "*", "tokenizer_path"),
)


_SURROGATE = re.compile("[\ud800-\udfff]")


class _TextLoader(yaml.SafeLoader):
    """A loader that leaves every scalar a text: what it means is decided by where it stands."""


_TextLoader.yaml_implicit_resolvers = {}


@dataclass(slots=True)
class Reading:
    """What one YAML text held.

    Attributes:
        data: Mappings as dict, lists as tuple, scalars as str, int, float, bool or None.
        positions: Where each key stands, e.g. {("measure", "pairs"): "kimi.yaml:40"}.
        mistakes: What is wrong with the text itself.
    """

    data: object = None
    positions: dict[Key, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)


def read_yaml(text: str, *, label: str, below: Key = (), with_lines: bool = True) -> Reading:
    """Read one YAML document.

    Args:
        text: The document.
        label: What positions begin with: the file's name, or `--set PATH`.
        below: The key that the value belongs to, for one that overrides a part of a scenario.
        with_lines: Whether positions carry a line number.
    """
    reading = Reading()
    reader = _Reader(reading, label, with_lines=with_lines)
    try:
        reader.check_events(text)
        node = yaml.compose(text, Loader=_TextLoader)
        if node is not None:
            reading.data = reader.value(node, below)
    except yaml.YAMLError as error:
        line, what = _syntax_error(error, text)
        reading.mistakes.append(Mistake(position=reader.place(line), text=what))
    except _RefusedError as refused:
        reading.mistakes.append(refused.mistake)
    return reading


class _RefusedError(Exception):
    """The text is refused as a whole; carries the one mistake."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.text)
        self.mistake = mistake


class _Reader:
    """Walks the nodes of one document; `reading` collects what it finds."""

    def __init__(self, reading: Reading, label: str, *, with_lines: bool) -> None:
        self._reading = reading
        self._label = label
        self._with_lines = with_lines
        self._nodes = 0
        self._has_aliases = False
        self._open: set[int] = set()

    def place(self, line: int) -> str:
        return f"{self._label}:{line}" if self._with_lines else self._label

    def mistake(self, node: yaml.Node, key: Key, text: str) -> Mistake:
        return Mistake(position=self.place(_line(node)), key=".".join(key), text=text)

    def note(self, node: yaml.Node, key: Key, text: str) -> None:
        self._reading.mistakes.append(self.mistake(node, key, text))

    def check_events(self, text: str) -> None:
        """Refuse what composing could not take (endless nesting), tags and further documents."""
        depth = 0
        documents = 0
        for event in yaml.parse(text, Loader=_TextLoader):
            self._has_aliases |= isinstance(event, yaml.AliasEvent)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            tag = getattr(event, "tag", None)
            refused = None
            if documents > 1:
                refused = "a second document begins. A scenario is one: remove the `---`"
            elif depth > MAX_DEPTH:
                refused = f"nested deeper than {MAX_DEPTH} levels. No scenario needs more than 8"
            elif tag is not None:
                refused = f"found the YAML tag {tag}. Scenarios use none: remove it"
            elif isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
                refused = "found half a character (an escape from \\uD800 to \\uDFFF). Remove it"
            if refused is not None:
                raise _RefusedError(Mistake(position=self.place(_line(event)), text=refused))

    def value(self, node: yaml.Node, key: Key) -> object:
        """The plain value of a node that stands at `key`."""
        self._count(node, key)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        if id(node) in self._open:
            text = "an alias that contains itself. Write the value out"
            raise _RefusedError(self.mistake(node, key, text))
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return tuple(self._items(node, key))
            assert isinstance(node, yaml.MappingNode)
            return self._mapping(node, key)
        finally:
            self._open.remove(id(node))

    def _count(self, node: yaml.Node, key: Key) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            to_do = "Use fewer aliases" if self._has_aliases else "Split it into several scenarios"
            text = f"has more than {MAX_NODES} values. {to_do}"
            raise _RefusedError(self.mistake(node, key, text))

    def _items(self, node: yaml.SequenceNode, key: Key) -> Iterator[object]:
        for index, item in enumerate(node.value):
            item_key = (*key, str(index))
            self._reading.positions[item_key] = self.place(_line(item))
            yield self.value(item, item_key)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, object]:
        values: dict[str, object] = {}
        for name, (key_node, value_node) in self._pairs(node, key).items():
            name_key = (*key, name)
            self._reading.positions[name_key] = self.place(_line(key_node))
            values[name] = self.value(value_node, name_key)
        return values

    def _pairs(
        self, node: yaml.MappingNode, key: Key, merging: tuple[yaml.Node, ...] = ()
    ) -> _Pairs:
        """The mapping's pairs by name; of a merged key and its own, its own wins."""
        if node in merging:
            text = "a merge (<<) that contains itself. Write the keys out"
            raise _RefusedError(self.mistake(node, key, text))
        own: _Pairs = {}
        merged: _Pairs = {}
        for key_node, value_node in node.value:
            self._count(key_node, key)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "":
                self.note(key_node, key, "a key must be a text. Write NAME: VALUE")
            elif key_node.value in own:
                first = _line(own[key_node.value][0])
                at = f"first in line {first}" if self._with_lines else "in one mapping"
                self.note(key_node, (*key, key_node.value), f"given twice, {at}. Remove one")
            else:
                own[key_node.value] = (key_node, value_node)
                if key_node.value == "<<":
                    merged = self._merged(value_node, key, (*merging, node))
        own.pop("<<", None)
        return merged | own

    def _merged(self, node: yaml.Node, key: Key, merging: tuple[yaml.Node, ...]) -> _Pairs:
        sources = list(node.value) if isinstance(node, yaml.SequenceNode) else [node]
        merged: _Pairs = {}
        for source in reversed(sources):  # of several, the first that has a key wins
            if isinstance(source, yaml.MappingNode):
                merged |= self._pairs(source, key, merging)
            else:
                text = "merges what is no mapping. Write `<<: *NAME` of an anchored mapping"
                self.note(source, (*key, "<<"), text)
        return merged

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> object:
        text = str(node.value)
        if node.style is not None or (_is_text(key) and text not in NULLS):
            return text
        try:
            return plain_scalar(text)
        except NoScalarError as error:
            self.note(node, key, str(error))
            return None


def _line(marked: yaml.Node | yaml.Event) -> int:
    """The 1-based line where a node or an event begins."""
    return marked.start_mark.line + 1 if marked.start_mark is not None else 1


def _is_text(key: Key) -> bool:
    return any(
        len(key) >= len(pattern)
        and all(want in ("*", have) for want, have in zip(pattern, key, strict=False))
        for pattern in _TEXT_KEYS
    )


_ADVICE = {
    r"'\t'": "A tab: YAML indents with spaces only",
    "mapping values are not allowed": 'Check the indentation; quote a text that holds ": "',
    "undefined alias": "Define the anchor (&NAME) above its use",
    "'%'": "Put the text in quotes",
    "'@'": "Put the text in quotes",
    "'`'": "Put the text in quotes",
}


def _syntax_error(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """The line of a text that is no YAML, and what to say of it."""
    if isinstance(error, yaml.reader.ReaderError):
        character = error.character
        code = character if isinstance(character, int) else ord(str(character)[:1] or "\0")
        line = text.count("\n", 0, error.position) + 1
        return line, f"found the control character U+{code:04X}. Remove it"
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    advice = "Check indentation, brackets and quotes there and just above"
    for part, known in _ADVICE.items():
        if part in problem:
            advice = known
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return 1, f"not YAML: {problem}. {advice}"
    return mark.line + 1, f"not YAML, column {mark.column + 1}: {problem}. {advice}"
