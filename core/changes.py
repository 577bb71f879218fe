"""Declared against deployed → kind of change with evidence; what cannot be proved harmless is a rebuild."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.differences import short_difference
from core.facts import Facts
from core.fingerprint import revision_hash
from core.layouts.settings import settings_as_text
from core.names import TableName
from core.plan import Action, Texts
from core.problems import Problem, Severity
from core.project import Settings, Table
from core.sql.values import Column, Operator, Parsed, Read, TableDdl

SEVERITIES = ("0", "1", "2", "11a", "3", "4", "6c", "6d", "7b", "7a", "7c", "9", "8", "5", "6b", "6a")
"""Rows of planning.md §3 that are told apart, mildest first; the most severe one found wins."""

ACTION_BY_ROW = {
    "0": Action.KEEP,
    "1": Action.RECORD,
    "2": Action.RECORD,
    "11a": Action.RESTART,
    "3": Action.RESTART,
    "4": Action.RESTART,
}
"""Every other row is a rebuild in this version."""

RATE_LIMITS = frozenset(
    ("maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger", "minoffsetspertrigger", "maxcachedfiles")
)
"""Options of a streamed read that change how fast it is read, and nothing else; lower case."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A statement as declared or as deployed; `parsed` None exactly when it is an external table."""

    table: TableName
    texts: Texts
    parsed: Parsed | None
    ddl: TableDdl
    settings: Settings = field(default_factory=Settings)

    @property
    def hash(self) -> str:
        """Identity of the texts, line endings aside."""
        return revision_hash(self.texts)


@dataclass(frozen=True, slots=True)
class Change:
    """What a change is: its row, what it asks for, and what was seen."""

    row: str
    action: Action
    evidence: tuple[str, ...] = ()
    classified: bool = True
    """False when the deployed texts are not known or not readable: treated as row 6a."""


def revision_of(table: Table) -> Revision:
    """Give a declared table's revision; its yml is the settings with the project's defaults filled in."""
    texts = Texts(table.ddl.text, table.dml.text if table.dml else "", settings_as_text(table.settings))
    return Revision(table.name, texts, table.facts, table.ddl_facts, table.settings)


def read_revision(table: TableName, texts: Texts, defaults: Settings, facts: Facts | None = None) -> Revision | None:
    """Read deployed texts again; None when they cannot be read. An older yml is read over today's defaults."""
    problems: list[Problem] = []
    facts = facts or Facts()
    settings = facts.settings(texts.yml, f"{table}.yml", defaults, problems)
    _, ddl, wrong = facts.ddl(texts.ddl, f"ddl.{table}.sql")
    if ddl is None or _has_error((*problems, *wrong)):
        return None
    if not texts.dml.strip():
        return Revision(table, texts, None, ddl, settings)
    statements, wrong = facts.statements(texts.dml, f"dml.{table}.sql")
    parsed = next((statement for statement in statements if statement.writes == table), None)
    return None if parsed is None or _has_error(wrong) else Revision(table, texts, parsed, ddl, settings)


def unproven(why: str) -> Change:
    """Give the change of which nothing is known but that there is one."""
    return Change("6a", Action.REBUILD, (why,), classified=False)


def classify(old: Revision, new: Revision) -> Change:
    """Find every kind of change between two revisions and answer with the most severe; evidence names them all."""
    found = tuple(_findings(old, new))
    if any(row != "1" for row, _ in found):
        found = tuple(finding for finding in found if finding[0] != "1")
    if not found:
        return Change("0", Action.KEEP)
    row = max((row for row, _ in found), key=SEVERITIES.index)
    by_severity = sorted(found, key=lambda finding: -SEVERITIES.index(finding[0]))
    evidence = tuple(dict.fromkeys(words for _, words in by_severity))
    return Change(row, ACTION_BY_ROW.get(row, Action.REBUILD), evidence)


def removed_columns(old: Revision, new: Revision) -> tuple[str, ...]:
    """Give the columns that readers of the old revision could name and readers of the new one cannot."""
    kept = {column.name.lower() for column in new.ddl.columns}
    return tuple(column.name.lower() for column in old.ddl.columns if column.name.lower() not in kept)


def _has_error(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity is Severity.ERROR for problem in problems)


def _findings(old: Revision, new: Revision) -> Iterator[tuple[str, str]]:
    before = len(old.ddl.columns)
    stateful = any(parsed is not None and parsed.stateful for parsed in (old.parsed, new.parsed))
    yield from _column_findings(old.ddl.columns, new.ddl.columns, stateful=stateful)
    yield from _sink_findings(old, new)
    yield from _settings_findings(old.settings, new.settings)
    if (old.parsed is None) != (new.parsed is None):
        yield "6a", "a statement was added" if old.parsed is None else "its statement was taken away"
    elif old.parsed is not None and new.parsed is not None:
        yield from _source_findings(old.parsed, new.parsed)
        yield from _meaning_findings(old.parsed, new.parsed, grown=len(new.ddl.columns) > before)
    if _plain(old.texts.dml) != _plain(new.texts.dml) or _plain(old.texts.ddl) != _plain(new.texts.ddl):
        yield "1", "the text changed"


def _column_findings(old: tuple[Column, ...], new: tuple[Column, ...], *, stateful: bool) -> Iterator[tuple[str, str]]:
    old_by_name = {column.name.lower(): column for column in old}
    new_by_name = {column.name.lower(): column for column in new}
    added = [column for column in new if column.name.lower() not in old_by_name]
    for name in old_by_name:
        if name not in new_by_name:
            yield "5", f"column {name} is gone"
    for name, column in new_by_name.items():
        was = old_by_name.get(name)
        if was is None:
            continue
        if was.type != column.type:
            yield "5", f"column {name}: {was.type} → {column.type}"
        elif was.nullable and not column.nullable:
            yield "5", f"column {name} may no longer be null"
        elif was.nullable != column.nullable:
            yield "5", f"column {name} may now be null"
    kept = [column.name.lower() for column in new if column.name.lower() in old_by_name]
    if kept != [name for name in old_by_name if name in new_by_name]:
        yield "5", "the columns are in another order"
    at_the_end = not added or [c.name for c in new[len(new) - len(added) :]] == [c.name for c in added]
    for column in added:
        if at_the_end and column.nullable:
            yield ("6c" if stateful else "4"), f"column {column.name.lower()} {column.type} is added"
        else:
            where = "is added before others" if column.nullable else "is added and may not be null"
            yield "5", f"column {column.name.lower()} {where}"


def _sink_findings(old: Revision, new: Revision) -> Iterator[tuple[str, str]]:
    pairs = (
        ("format", old.ddl.format, new.ddl.format),
        ("partitioning", ", ".join(old.ddl.partitioning), ", ".join(new.ddl.partitioning)),
        ("location", old.ddl.location, new.ddl.location),
        ("options", _pairs(old.ddl.options), _pairs(new.ddl.options)),
        ("properties", _pairs(old.ddl.properties), _pairs(new.ddl.properties)),
    )
    for name, before, after in pairs:
        if before != after:
            yield "8", f"{name}: {before or 'none'} → {after or 'none'}"
    if old.settings.mode != new.settings.mode:
        yield "9", f"mode: {old.settings.mode} → {new.settings.mode}"
    if old.settings.key != new.settings.key:
        yield "9", f"key: {', '.join(old.settings.key) or 'none'} → {', '.join(new.settings.key) or 'none'}"


def _settings_findings(old: Settings, new: Settings) -> Iterator[tuple[str, str]]:
    if old.trigger != new.trigger:
        yield "11a", f"trigger: {old.trigger} → {new.trigger}"
    for name in ("owner", "runbook", "description", "tags", "static_refresh"):
        if getattr(old, name) != getattr(new, name):
            yield "2", f"{name} changed"


def _source_findings(old: Parsed, new: Parsed) -> Iterator[tuple[str, str]]:
    """Compare streamed reads by position: an unnamed source is known to a checkpoint by its number alone."""
    before = [read for read in old.reads if read.streaming]
    after = [read for read in new.reads if read.streaming]
    before_names, after_names = sorted(r.table for r in before), sorted(r.table for r in after)
    if before_names != after_names:
        gone = [name for name in before_names if after_names.count(name) < before_names.count(name)]
        come = [name for name in after_names if before_names.count(name) < after_names.count(name)]
        words = [*(f"- {name}" for name in dict.fromkeys(gone)), *(f"+ {name}" for name in dict.fromkeys(come))]
        yield ("7c" if len(before) == len(after) else "7a"), f"streamed sources: {' '.join(words)}"
        return
    if [r.table for r in before] != [r.table for r in after]:
        yield "7c", "the streamed sources are in another order"
        return
    if len(after) > 1 and old.pre != new.pre and _reorders(old, new):
        yield "7c", "the streamed sources may stand in another order behind their WITH"
    for was, now in zip(before, after, strict=True):
        yield from _read_findings(was, now)


def _reorders(old: Parsed, new: Parsed) -> bool:
    """Whether text order says nothing of the order in which Spark numbers the sources: they stand in a WITH."""
    return any(re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*with\b", p.select, re.I | re.S) for p in (old, new))


def _read_findings(old: Read, new: Read) -> Iterator[tuple[str, str]]:
    if old.source_name != new.source_name:
        yield "7c", f"source name of {new.table}: {old.source_name or 'none'} → {new.source_name or 'none'}"
    before, after = dict(old.options), dict(new.options)
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            row = "11a" if key.lower() in RATE_LIMITS else "7c"
            yield row, f"{key} of {new.table}: {before.get(key, 'none')} → {after.get(key, 'none')}"


def _meaning_findings(old: Parsed, new: Parsed, *, grown: bool) -> Iterator[tuple[str, str]]:
    """Compare what is computed; options and names of sources are compared on their own."""
    stateful = old.stateful or new.stateful
    if _meaning(old) == _meaning(new):
        if old.canonical != new.canonical and _clauses(old) == _clauses(new):
            yield from (("6a" if stateful else "3", words) for words in _said(old.canonical, new.canonical))
        return
    if not stateful:
        if old.pre != new.pre:
            yield from (("4" if grown else "3", words) for words in _said(old.pre, new.pre))
        else:
            yield "3", f"watermark: {_delays(old) or 'none'} → {_delays(new) or 'none'}"
        return
    if (old.state, old.operators, _delays(old)) != (new.state, new.operators, _delays(new)):
        yield from _state_findings(old, new)
    if old.pre != new.pre:
        yield from (("6b", f"before the state: {words}") for words in _said(old.pre, new.pre))
    if old.post != new.post:
        yield from (("6c", f"after the state: {words}") for words in _said(old.post, new.post))


def _meaning(parsed: Parsed) -> tuple[object, ...]:
    return (parsed.pre, parsed.state, parsed.post, parsed.operators, _delays(parsed))


def _clauses(parsed: Parsed) -> tuple[object, ...]:
    return tuple((read.table, read.streaming, read.options, read.source_name) for read in parsed.reads)


def _state_findings(old: Parsed, new: Parsed) -> Iterator[tuple[str, str]]:
    if old.operators == new.operators and _delays(old) != _delays(new):
        row = "6d" if _watermarked(old) == _watermarked(new) else "6a"
        yield row, f"watermark: {_delays(old) or 'none'} → {_delays(new) or 'none'}"
        return
    if [operator.kind for operator in old.operators] != [operator.kind for operator in new.operators]:
        yield "6a", f"state: {_kinds(old.operators)} → {_kinds(new.operators)}"
        return
    told = False
    for was, now in zip(old.operators, new.operators, strict=True):
        if was.keys != now.keys:
            told = True
            yield "6a", f"{now.kind} keys: {', '.join(was.keys) or 'none'} → {', '.join(now.keys) or 'none'}"
        if was.detail != now.detail:
            told = True
            yield from (("6a", f"{now.kind}: {words}") for words in _said(was.detail, now.detail))
    if not told:
        yield from (("6a", words) for words in _said(old.state, new.state))


def _said(old: str, new: str) -> tuple[str, ...]:
    """Give the difference in words; what cannot be put in words is still a difference."""
    return short_difference(old, new) or ("the meaning changed",)


def _delays(parsed: Parsed) -> str:
    return ", ".join(f"{r.table}.{r.watermark.column} {r.watermark.delay}" for r in parsed.reads if r.watermark)


def _watermarked(parsed: Parsed) -> tuple[tuple[str, str], ...]:
    return tuple((read.table, read.watermark.column) for read in parsed.reads if read.watermark)


def _kinds(operators: tuple[Operator, ...]) -> str:
    return ", ".join(operator.kind for operator in operators) or "none"


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(pairs))


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
