"""Conversion between `--observed` documents and planner input; all mistakes are reported at once."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import yaml

from core.model.errors import InvalidProject, UsageError
from core.model.names import TableName
from core.model.problems import Problem, Where
from core.observed.cluster_manager import word_from_json
from core.observed.document_entries import (
    EntryReader,
    cut,
    entry_as_json,
    known_fields,
    plain_value,
    read_answers,
    read_entry,
    read_headroom,
    read_name,
    read_policy,
)
from core.observed.planner_input import ObservedDeployment, ObservedPool, PlannerInput, Seconds
from core.policy.roles_and_rules import policy_as_json
from core.text.wording import counted, did_you_mean

OBSERVED_FORMAT = "headgate.observed/1"
DOCUMENT_KEYS = ("tables", "format", "environment", "answers", "policy", "room", "durations", "pools")
"""Keys of a document. Only the first key is documented; the others let an export reproduce the ledger exactly."""

_MOST_LEVELS = 100
"""Nesting limit; valid documents have 7 levels, and libyaml crashes at about 100,000."""
_MOST_SAID = 300
_MOST_DIGITS = 100
"""Maximum number of digits in YAML; PyYAML takes minutes to parse millions of digits in base 60."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|(?P<open>[\[{])|(?P<close>[\]}])', re.S)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def planner_input_from_text(text: str, path: str, environment: str = "") -> PlannerInput:
    """Parse planner input from YAML or JSON: `tables: {name: {state, …}}`; a table that is not listed is absent.

    Raises UsageError, naming `path`, if `text` is neither YAML nor JSON. Raises InvalidProject with all Problems if
    keys or values are invalid, or if the document was observed in an environment other than `environment`.
    """
    problems: list[Problem] = []
    try:
        document = _document(text, path, problems)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # PyYAML raises ValueError for an impossible date and for a number with thousands of digits.
        said = cut(" ".join(str(error).split()), _MOST_SAID)
        raise UsageError(f"{path} cannot be read: {said}", remedy="give a YAML or JSON file") from error
    return _known({} if document is None else document, environment, problems)


def _known(document: Any, environment: str, problems: list[Problem]) -> PlannerInput:
    given = EntryReader("", "the document", document if isinstance(document, Mapping) else {}, problems)
    tables = given.values.get("tables", {})
    if not isinstance(document, Mapping) or not (tables is None or isinstance(tables, Mapping)):
        problems.append(
            Problem(
                "the document must be {tables: {name: {state: …}}}",
                "write for example tables: {orders: {state: running}}",
            )
        )
        given, tables = EntryReader("", "the document", {}, problems), {}
    for key in given.values:
        if key not in DOCUMENT_KEYS:
            word = cut(key)
            problems.append(
                Problem(f"{word} is not a known key", did_you_mean(word, DOCUMENT_KEYS) or "remove it", None, word)
            )
    found = PlannerInput(
        _tables(tables or {}, problems),
        read_answers(given),
        read_headroom(given),
        read_policy(given),
        _durations(given),
        pools=_pools(given),
    )
    seen_in = given.text("environment")
    if environment and seen_in and seen_in != environment:
        there = cut(seen_in)
        given.wrong(f"it was observed in {there}, but the plan is for {environment}", f"plan with --env {there}")
    if given.text("format", OBSERVED_FORMAT) != OBSERVED_FORMAT:
        given.wrong(f"its format is not {OBSERVED_FORMAT}", "export it again with this version of Headgate")
    if problems:
        raise InvalidProject(
            f"the observed document has {counted(len(problems), 'problem')}",
            remedy="correct what is listed",
            problems=tuple(problem.as_json() for problem in problems),
        )
    return found


def places_in_text(text: str, path: str) -> dict[tuple[TableName, str], Where]:
    """Return the location of each table in a document, by (table, ""), and of each key of a table, by (table, key).

    The document must be parsable. It is parsed again, so this function is meant only for documents with mistakes.
    """
    root = yaml.compose(text, Loader=_LOADER)
    found: dict[tuple[TableName, str], Where] = {}
    for _, tables in _pairs(root, "tables"):
        for name, entry in _pairs(tables):
            table = read_name(name.value, [])
            if table is not None:
                found[table, ""] = Where(path, name.start_mark.line + 1)
                found |= {(table, key.value): Where(path, key.start_mark.line + 1) for key, _ in _pairs(entry)}
    return found


def _pairs(node: Any, only: str = "") -> list[tuple[Any, Any]]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return [(key, value) for key, value in pairs if isinstance(key, yaml.ScalarNode) and only in ("", key.value)]


def _durations(given: EntryReader) -> dict[str, Seconds]:
    part = given.part("durations", "a mapping of pairs of numbers")
    found = {}
    for key, pair in (part.values if part is not None else {}).items():
        if isinstance(key, str) and isinstance(pair, list) and len(pair) == 2 and all(map(_is_seconds, pair)):
            found[key] = Seconds(*map(float, pair))
        else:
            given.wrong(f"durations: {cut(key)} must be a pair of seconds", "write start: [1.5, 4.0], or leave it out")
    return found


def _pools(given: EntryReader) -> dict[str, ObservedPool]:
    part = given.part("pools", "a mapping of pools by name")
    found = {}
    for name, entry in (part.values if part is not None else {}).items():
        known = dict(entry) if isinstance(entry, Mapping) else {"": None}
        kinds = {"cordoned": bool, "engine": str, "unfit": str, "manager_says": dict}
        says = known.get("manager_says")
        is_pool = isinstance(name, str) and all(type(value) is kinds.get(key) for key, value in known.items())
        with suppress(ValueError):
            word = word_from_json(says) if is_pool and isinstance(says, dict) else None
            if is_pool:
                found[str(name)] = ObservedPool(
                    bool(known.get("cordoned")), str(known.get("engine", "")), str(known.get("unfit", "")), word
                )
        if name not in found:
            given.wrong(f"pools: {cut(name)} must have only {', '.join(kinds)}", "write large: {engine: 4.2.0}")
    return found


def _pool_as_json(pool: ObservedPool) -> dict[str, Any]:
    says = {"manager_says": pool.manager_says.as_json()} if pool.manager_says is not None else {}
    return {"cordoned": pool.cordoned, "engine": pool.engine, "unfit": pool.unfit, **says}


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def planner_input_as_document(known: PlannerInput, environment: str) -> dict[str, Any]:
    """Return planner input as a document that `planner_input_from_text` parses to an equal value."""
    document: dict[str, Any] = {"format": OBSERVED_FORMAT, "environment": environment}
    if known.headroom is not None:
        document["room"] = known_fields(known.headroom)
    if known.policy is not None:
        document["policy"] = plain_value(policy_as_json(known.policy))
    if known.answers:
        document["answers"] = dict(sorted(known.answers.items()))
    if known.durations:
        document["durations"] = {key: [took.low, took.high] for key, took in sorted(known.durations.items())}
    if known.pools:
        document["pools"] = {name: _pool_as_json(pool) for name, pool in sorted(known.pools.items())}
    document["tables"] = {str(table): entry_as_json(seen) for table, seen in sorted(known.observed.items())}
    return document


def _document(text: str, path: str, problems: list[Problem]) -> Any:
    """Parse a document as JSON or, if that fails, as YAML; parsing YAML takes seconds for 3,000 tables."""
    if text.lstrip().startswith("{") and _levels(text) <= _MOST_LEVELS:
        twice: list[Problem] = []
        with suppress(ValueError, RecursionError):
            document = json.loads(text, object_pairs_hook=lambda pairs: _mapping(pairs, path, twice))
            problems += twice
            return document
    _refuse_deep_and_aliases(text)
    loader = _Loader(text)
    loader.path, loader.problems = path, problems
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _levels(text: str) -> int:
    """Return the nesting depth of the brackets in a JSON document, ignoring brackets in strings."""
    deep = deepest = 0
    for found in _BRACKETS.finditer(text):
        deep += (found["open"] is not None) - (found["close"] is not None)
        deepest = max(deepest, deep)
    return deepest


def _mapping(pairs: list[tuple[str, Any]], path: str, problems: list[Problem]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        words = Counter(word for word, _ in pairs)
        problems += [_twice(word, "keep one of them", Where(path)) for word, times in words.items() if times > 1]
    return found


def _twice(word: str, remedy: str, where: Where | None) -> Problem:
    return Problem(f"{cut(word)} appears twice", remedy, where, cut(word))


def _refuse_deep_and_aliases(text: str) -> None:
    """Raise ValueError if a YAML document has aliases or is nested too deeply, before libyaml recurses into it."""
    deep = 0
    for event in _events(text):
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"line {line} has a YAML alias (*): write out the value")
        if deep > _MOST_LEVELS:
            raise _too_deep(line)


def _events(text: str) -> Iterator[Any]:
    """Yield the parser's events; raise ValueError at libyaml's nesting limit (PyYAML 6.0.4: 1,000 levels)."""
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        if error.problem_mark is not None and "nesting depth" in (error.problem or ""):
            raise _too_deep(error.problem_mark.line + 1) from error
        raise


def _too_deep(line: int) -> ValueError:
    return ValueError(f"line {line} is nested deeper than {_MOST_LEVELS} levels")


class _Loader(_LOADER):  # type: ignore[misc]  # a class of PyYAML's extension, which has no types
    path: str
    problems: list[Problem]

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        lines: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    remedy = f"keep one of lines {lines[key.value]} and {line}"
                    self.problems.append(_twice(key.value, remedy, Where(self.path, line)))
                lines.setdefault(key.value, line)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        if len(node.value) > _MOST_DIGITS:
            raise ValueError(f"line {node.start_mark.line + 1} has a number of more than {_MOST_DIGITS} digits")
        read = self.construct_yaml_int if node.tag.endswith(":int") else self.construct_yaml_float
        return read(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def _tables(tables: Mapping[Any, Any], problems: list[Problem]) -> dict[TableName, ObservedDeployment]:
    found: dict[TableName, ObservedDeployment] = {}
    for name, entry in tables.items():
        table = read_name(name, problems)
        if table in found:
            problems.append(
                Problem(f"{table} appears twice", "keep one of them: names are case-insensitive", None, table)
            )
        elif table is not None:
            found[table] = read_entry(table, entry, problems)
    return dict(sorted(found.items()))
