"""Cache of parse results: each distinct file content is parsed once, and only a cache miss imports the parsers.

A file is identified by its content alone, not by path or date. Views, which cannot be streamed, are recognized without
parsing.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from core.model.names import TableName
from core.model.problems import Problem, in_reading_order
from core.project.model import Project, Settings, Table
from core.project.resources import Amounts, PoolClass
from core.sql.statement import CHANGE_COLUMNS, Column, ParsedStatement, RequiredColumns, TableDdl, TableRead, line_of
from core.sql.statement_codec import decode_ddl, decode_statements, encode_ddl, encode_statements
from core.text.wording import did_you_mean

if TYPE_CHECKING:
    from core.project.variables import Variable
    from core.project_reader.table_yml import SubstitutedSettings
    from core.sql.lineage.model import UnresolvedName

MOST_CACHED_TEXTS = 50_000
"""Maximum number of cached values; if there are more, all are dropped. This bounds the memory of an agent."""

_BROKEN = (ValueError, TypeError, LookupError)
"""Errors that decoding an invalid entry may raise."""


class ParseCache:
    """A cache of parsed SQL and settings, by content; callers share the cache so that no file is parsed twice.

    It is thread-safe: at worst, two threads parse the same file.
    """

    def __init__(
        self, known: Mapping[bytes, str] | None = None, look_up: Callable[[bytes], str | None] = lambda _: None
    ) -> None:
        """Start with the encoded entries `known`, by key; `look_up` returns any other entry, or None."""
        self._known = dict(known or {})
        self._look_up = look_up
        self._values: dict[bytes, Any] = {}
        self._fresh: dict[bytes, str] = {}

    def keys(self) -> frozenset[bytes]:
        """Return the keys of the texts whose parse results were requested from this cache."""
        return frozenset(self._values)

    def take_fresh(self) -> dict[bytes, str]:
        """Return the encoded results of new parses, by key, for the caller to store; each result is returned once."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def add(self, read: Mapping[bytes, str]) -> None:
        """Add results that another process has parsed and returned from `take_fresh`."""
        self._known.update(read)
        self._fresh.update(read)

    def ddl(self, text: str, path: str) -> tuple[int | None, TableDdl | None, tuple[Problem, ...]]:
        """Parse a DDL file; return the line of CREATE VIEW (None for a table), the table, and Problems in `path`.

        There is no table if the file declares a view or is invalid.
        """
        key = _key(b"ddl", text)
        found: tuple[str, TableDdl | None, tuple[Problem, ...]] | None = self._value(key, path)
        if found is None:
            found = self._unpacked(key, lambda packed: (path, *decode_ddl(packed, path)))
        if found is None:
            view = view_declared_in(text)
            if view is not None:
                return view, None, ()
            from core.sql.ddl_reader import read_ddl

            ddl, problems = read_ddl(text, path)
            found = (path, ddl, problems)
            self._fresh[key] = encode_ddl(ddl, problems)
        self._keep(key, found)
        return None, found[1], found[2]

    def has_ddl(self, text: str) -> bool:
        """True if the parse result of a DDL file is cached."""
        key = _key(b"ddl", text)
        return key in self._values or self._packed(key) is not None

    def has_statements(self, text: str, *, every_table_streams: bool = False) -> bool:
        """True if the parse result of a DML script is cached."""
        key = _statements_key(text, every_table_streams)
        return key in self._values or self._packed(key) is not None

    def statements(
        self, text: str, path: str, *, every_table_streams: bool = False
    ) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
        """Return the parsed statements of a DML script, and Problems located in `path`."""
        key = _statements_key(text, every_table_streams)
        found: tuple[str, tuple[ParsedStatement, ...], tuple[Problem, ...]] | None = self._value(key, path)
        if found is None:
            found = self._unpacked(key, lambda packed: (path, *decode_statements(packed, text, path)))
        if found is None:
            from core.sql.statement_reader import read_statements

            statements, problems = read_statements(text, path, every_table_streams=every_table_streams)
            found = (path, statements, problems)
            self._fresh[key] = encode_statements(statements, problems, text)
        self._keep(key, found)
        return found[1], found[2]

    def wrong_columns(
        self, parsed: ParsedStatement, columns: Mapping[TableName, tuple[Column, ...]]
    ) -> tuple["UnresolvedName", ...]:
        """Return the columns that a statement uses but that none of its input tables has.

        `columns` are the declared columns by table. The result is cached by the statement's SQL and the columns of its
        input tables.
        """
        key, read = _columns_read(parsed, columns)
        found = self._columns(key)
        if found is None:
            from core.sql.lineage.statement_lineage import lineage_of

            found = tuple(each for each in lineage_of(parsed, read.get).unresolved if each.lacking)
            self._fresh[key] = json.dumps([astuple(each) for each in found])
            self._keep(key, found)
        return found

    def known_wrong_columns(
        self, parsed: ParsedStatement, columns: Mapping[TableName, tuple[Column, ...]]
    ) -> tuple["UnresolvedName", ...] | None:
        """Return the cached result of `wrong_columns`; None if it is not cached."""
        return self._columns(_columns_read(parsed, columns)[0])

    def _columns(self, key: bytes) -> tuple["UnresolvedName", ...] | None:
        found: tuple[UnresolvedName, ...] | None = self._values.get(key)
        if found is None and (found := self._unpacked(key, _unresolved)) is not None:
            self._keep(key, found)
        return found

    def settings(self, text: str, path: str, defaults: Settings, problems: list[Problem]) -> Settings:
        """Return the settings in a yml, completed by the project's defaults; a yml with Problems is not cached."""
        if not text.strip():
            return defaults
        key = _key(b"yml" + repr(defaults).encode("utf-8", "surrogatepass"), text)
        found: Settings | None = self._values.get(key)
        if found is None:
            found = self._unpacked(key, _settings)
        if found is None:
            from core.project_reader.table_yml import read_settings

            wrong: list[Problem] = []
            found = read_settings(text, path, defaults, wrong)
            if wrong:
                problems.extend(wrong)
                return found
            self._fresh[key] = json.dumps(astuple(found))
        self._keep(key, found)
        return found

    def settings_with_variables(
        self, text: str, path: str, defaults: Settings, problems: list[Problem], variables: "Mapping[str, Variable]"
    ) -> "SubstitutedSettings":
        """Return the settings in a yml like `settings`, with values in place of variables."""
        from core.project_reader.table_yml import SubstitutedSettings, read_settings_with_variables

        given = repr((defaults, [variables[name] for name in sorted(variables)])).encode("utf-8", "surrogatepass")
        key = _key(b"yml variables" + given, text)
        found: SubstitutedSettings | None = self._values.get(key)
        if found is None:
            found = self._unpacked(key, _substituted_settings)
        if found is None:
            wrong: list[Problem] = []
            found = read_settings_with_variables(text, path, defaults, wrong, variables)
            if wrong:
                problems.extend(wrong)
                return found
            self._fresh[key] = json.dumps([astuple(found.settings), found.names, found.written])
        self._keep(key, found)
        return found

    def _value(self, key: bytes, path: str) -> Any:
        """Return a cached value; None if there is none, or if its Problems refer to another file of equal content."""
        found = self._values.get(key)
        return found if found is not None and (found[0] == path or not found[-1]) else None

    def _unpacked(self, key: bytes, unpack: Any) -> Any:
        packed = self._packed(key)
        try:
            return unpack(packed) if packed is not None else None
        except _BROKEN:
            return None

    def _packed(self, key: bytes) -> str | None:
        packed = self._known.get(key)
        return packed if packed is not None else self._look_up(key)

    def _keep(self, key: bytes, value: Any) -> None:
        if len(self._values) >= MOST_CACHED_TEXTS:
            self._values.clear()
        self._values[key] = value


def _key(kind: bytes, text: str) -> bytes:
    return hashlib.sha256(kind + b"\0" + text.encode("utf-8", "surrogatepass")).digest()


def _statements_key(text: str, every_table_streams: bool) -> bytes:
    return _key(b"dml stream" if every_table_streams else b"dml", text)


def _columns_read(
    parsed: ParsedStatement, columns: Mapping[TableName, tuple[Column, ...]]
) -> tuple[bytes, dict[TableName, tuple[Column, ...] | None]]:
    read = {each.table: _with_changes(columns.get(each.table), each) for each in parsed.reads}
    declared = {name: [(each.name, each.type) for each in found or ()] for name, found in sorted(read.items())}
    parts = [parsed.select, parsed.stateful, declared, [*map(bool, read.values())]]
    return _key(b"columns", json.dumps(parts)), read


def _settings(packed: str) -> Settings:
    return _settings_of(json.loads(packed))


def _substituted_settings(packed: str) -> "SubstitutedSettings":
    from core.project_reader.table_yml import SubstitutedSettings

    values, names, written = json.loads(packed)
    return SubstitutedSettings(_settings_of(values), tuple(names), _tuples(written))


def _settings_of(values: list[Any]) -> Settings:
    if len(values) != len(fields(Settings)):
        raise ValueError("not the settings of this program")
    found: Any = [_tuples(value) for value in values]
    if isinstance(found[_POOL], tuple):
        found[_POOL] = PoolClass(*found[_POOL])
    found[_RESOURCES] = Amounts(*found[_RESOURCES])
    return Settings(*found)


_POOL, _RESOURCES = ([field.name for field in fields(Settings)].index(name) for name in ("pool", "resources"))
"""Places of the settings that are values of other classes."""


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _with_changes(columns: tuple[Column, ...] | None, read: TableRead) -> tuple[Column, ...] | None:
    return (*columns, *CHANGE_COLUMNS) if columns and read.takes_changes else columns


def _unresolved(packed: str) -> "tuple[UnresolvedName, ...]":
    from core.sql.lineage.model import UnresolvedName

    rows: list[list[Any]] = json.loads(packed)
    return tuple(UnresolvedName(*row[:4], *map(tuple, row[4:])) for row in rows)


_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_VIEW = re.compile(r"\s*create\s+(?:or\s+replace\s+)?(?:global\s+)?(?:temp(?:orary)?\s+|materialized\s+)?view\b", re.I)


def view_declared_in(text: str) -> int | None:
    """Return the line of CREATE VIEW; None if the SQL does not declare a view."""
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text.removeprefix("\ufeff"))
    if not _VIEW.match(plain):
        return None
    return plain.count("\n", 0, len(plain) - len(plain.lstrip())) + 1


Reading = tuple[ParsedStatement, Mapping[TableName, tuple[Column, ...]]]
"""A statement with the declared columns of the tables that it reads."""


def wrong_columns(
    project: Project,
    tables: Iterable[TableName],
    parse_cache: ParseCache,
    read_ahead: Callable[[Sequence[Reading], ParseCache], None] = lambda *_: None,
) -> tuple[Problem, ...]:
    """Return a Problem for each column that the statements of `tables` use but that none of their input tables has.

    `read_ahead` is called with the statements that are not cached, and may add their results to the cache.
    """
    declared = {name: table.parsed_ddl.columns for name, table in project.tables.items()}
    names = _DeclaredNames(declared)
    found: list[Problem] = []
    unknown: list[tuple[Table, ParsedStatement]] = []
    for name in tables:
        table = project.tables.get(name)
        if table is not None and table.parsed is not None and not names.include(table.parsed.requires):
            known = parse_cache.known_wrong_columns(table.parsed, declared)
            if known is None:
                unknown.append((table, table.parsed))
            else:
                found += _problems(table, known)
    read_ahead(
        [(parsed, {r.table: declared.get(r.table, ()) for r in parsed.reads}) for _, parsed in unknown], parse_cache
    )
    for table, parsed in unknown:
        found += _problems(table, parse_cache.wrong_columns(parsed, declared))
    return in_reading_order(found)


def missing_in_inputs(
    table: Table, names: Sequence[str], tables: Mapping[TableName, Table], parse_cache: ParseCache
) -> list[Problem]:
    """Return a Problem for each column in `names` that a table's statement uses but that none of its inputs has."""
    assert table.parsed is not None, f"{table.name} is external"
    declared = {name: each.parsed_ddl.columns for name, each in tables.items()}
    wrong = parse_cache.wrong_columns(table.parsed, declared)
    return list(_problems(table, (each for each in wrong if each.name.rpartition(".")[2].lower() in names)))


class _DeclaredNames:
    def __init__(self, columns: Mapping[TableName, tuple[Column, ...]]) -> None:
        self._columns = columns
        self._names: dict[TableName, frozenset[str]] = {}

    def include(self, required: RequiredColumns | None) -> bool:
        """True if every column that a statement requires is declared; False if the required columns are unknown."""
        if required is None:
            return False
        for tables, columns in required:
            if not self._of(tables[0]).issuperset(columns):
                found = self._of(tables[0]).union(*map(self._of, tables[1:]))
                if not found.issuperset(columns):
                    return False
        return True

    def _of(self, table: TableName) -> frozenset[str]:
        found = self._names.get(table)
        if found is None:
            found = self._names[table] = frozenset([each.name.lower() for each in self._columns.get(table, ())])
        return found


def _problems(table: Table, wrong: "Iterable[UnresolvedName]") -> Iterator[Problem]:
    assert table.parsed is not None and table.dml is not None, f"{table.name} is external"
    for each in wrong:
        several = len(each.lacking) > 1
        lack = f"none of {', '.join(each.lacking)} has" if several else f"{each.lacking[0]} does not have"
        yield Problem(
            f"{table.name} reads {each.name}, a column that {lack}",
            did_you_mean(each.name.rpartition(".")[2].lower(), each.known) or f"columns: {', '.join(each.known)}",
            table.dml.at(line_of(table.dml.text, table.parsed, each.offset)),
            table.name,
        )
