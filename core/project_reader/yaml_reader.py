"""YAML mappings with the line of each key; an invalid value is reported as a Problem and replaced by a default."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from core.model.problems import Problem, Severity, Where
from core.text.wording import did_you_mean

_TAG = "tag:yaml.org,2002:"
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it; otherwise the Python loader, which is ten times slower."""

_COUNT = re.compile(r"(?P<digits>0*[1-9][0-9_]{0,17})(?P<unit>[kMG]?)\Z")
_TIMES = {"k": 10**3, "M": 10**6, "G": 10**9}
_QUOTES = ("'", '"')
"""The styles of quoted scalars, which are strings and no numbers."""

_ONE_DOCUMENT = "expected a single document in the stream"
"""Context of PyYAML's error about a second document (6.0)."""

_DEEPEST, _MOST_VALUES = 20, 1_000_000
"""Limits on the depth and size of a value, because an alias may contain itself or expand to millions of values."""


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A YAML value as written: a scalar, a list, or the pairs of a mapping in order.

    For null, `text`, `items` and `pairs` are all None.
    """

    line: int
    """The line on which the value starts, counted from 1."""
    text: str | None = None
    items: "tuple[YamlValue, ...] | None" = None
    pairs: "tuple[tuple[YamlValue, YamlValue], ...] | None" = None


@dataclass(frozen=True, slots=True)
class YamlSection:
    """A mapping in a YAML file; its methods report an invalid value in `problems` and return a default."""

    path: str
    name: str
    """Dotted path of the section in the file; empty for the top level."""
    line: int
    nodes: dict[str, yaml.Node]
    lines: dict[str, int]
    """The line of each key, counted from 1."""
    problems: list[Problem]

    def text(self, key: str, default: str) -> str:
        """Read the string under a key; return the default if it is missing, empty or not a string."""
        node = self._scalar(key)
        if node is None:
            return default
        if node.tag != f"{_TAG}str":
            self.wrong(key, "a string", f'put it in quotes: {key}: "{node.value}"')
            return default
        return str(node.value)

    def flag(self, key: str, default: bool) -> bool:
        """Read the Boolean under a key; return the default if it is missing or invalid."""
        node = self._scalar(key)
        if node is None:
            return default
        if node.tag != f"{_TAG}bool":
            self.wrong(key, "true or false", f"write {key}: true or {key}: false")
            return default
        return bool(node.value.lower() in ("true", "yes", "on"))

    def number(self, key: str, default: float, *, most: float) -> float:
        """Read a number above zero and at most `most`; return the default if it is missing or invalid."""
        node = self._scalar(key)
        if node is None:
            return default
        try:
            value = float(node.value) if node.tag in (f"{_TAG}int", f"{_TAG}float") else 0.0
        except ValueError:
            value = 0.0
        if not 0 < value <= most:
            apart = "quotes" if node.style in _QUOTES else "a unit"
            self.wrong(
                key,
                f"a number above 0, at most {most:.0f}",
                f"write it without {apart}, for example {key}: {default:g}",
            )
            return default
        return value

    def bound(self, key: str, *, most: float, example: str) -> float | None:
        """Read a number above zero and at most `most`; None if it is missing.

        An invalid value is reported, with `example` as the suggested value, and replaced by `example`.
        """
        return self.number(key, float(example), most=most) if self._scalar(key) is not None else None

    def count(self, key: str, *, example: str) -> int | None:
        """Read a positive integer, optionally with k, M or G (10³, 10⁶ or 10⁹); None if it is missing or invalid."""
        node = self._scalar(key)
        if node is None:
            return None
        found, quoted = _COUNT.match(node.value), node.style in _QUOTES
        if not found or quoted:
            remedy = f"{'write it without quotes, ' if quoted else ''}for example {key}: {example}"
            self.wrong(key, "a whole number above 0, optionally with k, M or G", remedy)
            return None
        return int(found["digits"].replace("_", "")) * _TIMES.get(found["unit"], 1)

    def entries(self, key: str) -> tuple[tuple[str, int], ...]:
        """Read the list under a key as (value, line) pairs; a single value counts as a list."""
        node = self.nodes.get(key)
        if node is None or node.tag == f"{_TAG}null":
            return ()
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(item, yaml.ScalarNode) and item.tag != f"{_TAG}null" for item in items):
            self.wrong(key, "a list of values", f"write {key}: [one, two]")
            return ()
        return tuple((str(item.value), item.start_mark.line + 1) for item in items)

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Read a list of strings, or a single string as a list; return the default if the key is missing."""
        node = self.nodes.get(key)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"):
            return default
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(item, yaml.ScalarNode) and item.tag == f"{_TAG}str" for item in items):
            self.wrong(key, "a list of strings", f"write {key}: [one, two]")
            return default
        return tuple(str(item.value) for item in items)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Read the mapping under a key as (name, value) pairs of strings, sorted by name; values must be scalars."""
        inner = self.section(key)
        if inner is None:
            return ()
        found = []
        for name, node in sorted(inner.nodes.items()):
            if isinstance(node, yaml.ScalarNode):
                found.append((name, str(node.value)))
            else:
                inner.wrong(name, "one value", "write a string, a number, or true or false")
        return tuple(found)

    def value(self, key: str) -> YamlValue | None:
        """Read the value under a key as written; None if it is missing, too large or too deeply nested."""
        node = self.nodes.get(key)
        if node is None:
            return None
        try:
            return _value(node, _DEEPEST, iter(range(_MOST_VALUES)))
        except (RecursionError, StopIteration):
            self.wrong(key, "a value of bounded size", "write it without aliases that contain themselves")
            return None

    def section(self, key: str) -> "YamlSection | None":
        """Return the section under a key; None if it is missing, null or not a mapping."""
        node = self.nodes.get(key)
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"):
            return None
        if not isinstance(node, yaml.MappingNode):
            self.wrong(key, "a mapping", f"indent keys below {key}:")
            return None
        return _section(node, self.path, f"{self.name}.{key}" if self.name else key, self.problems)

    def sections(self, key: str, form: str) -> "Iterator[YamlSection]":
        """Yield the sections in the list under a key, which must not be empty; `form` is how an entry is written."""
        node = self.nodes.get(key)
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.wrong(key, "a list", f"write {key}: and below it {form}")
            return
        for entry in node.value:
            if isinstance(entry, yaml.MappingNode):
                yield _section(entry, self.path, self._named(key), self.problems)
            else:
                where = Where(self.path, entry.start_mark.line + 1)
                summary = f"each of {self._named(key)} must be a mapping"
                self.problems.append(Problem(summary, f"write {form}", where, key))

    def only(
        self,
        known: Iterable[str],
        *,
        later: Sequence[str] = (),
        moved: Mapping[str, str] = MappingProxyType({}),
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Report keys that are not in `known`, and warn about keys that only later versions will support.

        `moved` maps each key of earlier versions to the key that has replaced it, relative to this section, and
        `elsewhere` maps keys of other sections to those sections.
        """
        known = tuple(known)
        for key in self.nodes:
            if key in moved:
                place = self._named(moved[key])
                self.problems.append(
                    Problem(f"{self._named(key)} is now {place}", f"move its value to {place}", self.at(key), key)
                )
            elif key in later:
                self.problems.append(
                    Problem(
                        f"{self._named(key)} is not supported by this version yet",
                        "remove it",
                        self.at(key),
                        key,
                        severity=Severity.WARNING,
                    )
                )
            elif key not in known:
                remedy = did_you_mean(key, (*known, *later)) or f"known keys: {', '.join(known)}"
                self.problems.append(
                    Problem(
                        f"{self._named(key)} is not a known key",
                        f"move it to {elsewhere[key]}" if key in elsewhere else remedy,
                        self.at(key),
                        key,
                    )
                )

    def wrong(self, key: str, expected: str, remedy: str) -> None:
        """Report a Problem with the value of a key, which must be `expected`."""
        self.problems.append(Problem(f"{self._named(key)} must be {expected}", remedy, self.at(key), key))

    def at(self, key: str = "") -> Where:
        """Return the location of a key, or of the section if the key is missing."""
        return Where(self.path, self.lines.get(key, self.line))

    def _named(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _scalar(self, key: str) -> yaml.ScalarNode | None:
        node = self.nodes.get(key)
        if node is None or node.tag == f"{_TAG}null":
            return None
        if not isinstance(node, yaml.ScalarNode):
            self.wrong(key, "one value", f"write one value after {key}:")
            return None
        return node


def read_yaml(text: str, path: str, problems: list[Problem]) -> YamlSection | None:
    """Parse a YAML mapping; an empty string gives an empty section. For invalid YAML, add a Problem and return None."""
    try:
        node = yaml.compose(text.removeprefix("\ufeff"), Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "".join(text.splitlines()[mark.line : mark.line + 1]) if mark is not None else ""
        remedy = "check indentation, quotes and colons at this line"
        why = error.problem or error.context
        if isinstance(error, yaml.composer.ComposerError) and error.context == _ONE_DOCUMENT:
            why, remedy = "it contains a second document", "put what follows this line into a file of its own"
        elif "\t" in line[: len(line) - len(line.lstrip())]:
            remedy = "indent with spaces: YAML allows no tabs there"
        elif "${" in line:
            remedy = 'write "${…}" in quotes inside of brackets and braces'
        place = Where(path, mark.line + 1, mark.column + 1) if mark else Where(path)
        problems.append(Problem(f"this file is not valid YAML: {why}", remedy, place))
        return None
    except yaml.YAMLError as error:
        problems.append(
            Problem(
                f"this file is not valid YAML: {str(error).splitlines()[0]}", "save the file as UTF-8 text", Where(path)
            )
        )
        return None
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"):
        return YamlSection(path, "", 1, nodes={}, lines={}, problems=problems)
    if not isinstance(node, yaml.MappingNode):
        problems.append(
            Problem("this file must be a mapping of keys to values", "write key: value lines", Where(path, 1))
        )
        return None
    return _section(node, path, "", problems)


def read_value(text: str) -> YamlValue | None:
    """Parse a single YAML value, such as `[1, 2]`; None if it is empty, invalid, too large or too deeply nested."""
    try:
        node = yaml.compose(text, Loader=_LOADER)
        return None if node is None else _value(node, _DEEPEST, iter(range(_MOST_VALUES)))
    except (yaml.YAMLError, RecursionError, StopIteration):
        return None


def _value(node: yaml.Node, depth: int, left: Iterator[int]) -> YamlValue:
    if depth == 0:
        raise RecursionError
    next(left)
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        items = []
        for item in node.value:
            items.append(_value(item, depth - 1, left))
        return YamlValue(line, items=tuple(items))
    if isinstance(node, yaml.MappingNode):
        pairs = []
        for key, value in node.value:
            pairs.append((_value(key, depth - 1, left), _value(value, depth - 1, left)))
        return YamlValue(line, pairs=tuple(pairs))
    null = node.tag == f"{_TAG}null"
    return YamlValue(line, None if null else str(node.value))


def _section(node: yaml.MappingNode, path: str, name: str, problems: list[Problem]) -> YamlSection:
    nodes: dict[str, yaml.Node] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append(
                Problem(
                    f"{name or 'this file'} has a list or a mapping as a key",
                    "write a single word before the colon, without ? or brackets",
                    Where(path, line, key.start_mark.column + 1),
                )
            )
            continue
        word = str(key.value)
        if word in nodes:
            both = lines[word] == line
            twice = f"{word} appears twice on line {line}" if both else f"{word} appears twice"
            remedy = "keep one of them" if both else f"keep one of lines {lines[word]} and {line}"
            problems.append(Problem(twice, remedy, Where(path, line), word))
            continue
        nodes[word], lines[word] = value, line
    return YamlSection(path, name, node.start_mark.line + 1, nodes=nodes, lines=lines, problems=problems)
