"""A statement as declared or deployed: its SQL and YAML, the values parsed from them, and the pool, if known."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.model.evidence import Edit, EditKind
from core.model.names import TableName
from core.project.model import Pool, Settings
from core.sql.statement import ParsedStatement, TableDdl


@dataclass(frozen=True, slots=True)
class RevisionTexts:
    """The SQL and YAML of a revision, which are declared and deployed together."""

    ddl: str = ""
    dml: str = ""
    yml: str = ""
    """With `ddl` and `dml`, the texts in which values have replaced the variables."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values of the variables that the texts use, sorted by name."""
    written: "RevisionTexts | None" = None
    """The texts with `${name}`, as in the project's files; None if they use no variables."""

    @property
    def as_written(self) -> "RevisionTexts":
        """The texts as in the project's files, which can be deployed with the values of another environment."""
        return self.written or self


def texts_as_json(texts: RevisionTexts) -> dict[str, Any]:
    """Return texts as a JSON object; variables are left out if there are none."""
    data: dict[str, Any] = {"ddl": texts.ddl, "dml": texts.dml, "yml": texts.yml}
    if texts.written is not None:
        data["variables"] = dict(texts.variables)
        data["written"] = texts_as_json(texts.written)
    return data


def texts_from_json(data: Mapping[str, Any]) -> RevisionTexts:
    """Rebuild texts from the result of `texts_as_json`; raises KeyError, TypeError or AttributeError if damaged."""
    written = texts_from_json(data["written"]) if data.get("written") is not None else None
    variables = tuple(sorted((str(name), str(value)) for name, value in data.get("variables", {}).items()))
    return RevisionTexts(data["ddl"], data["dml"], data["yml"], variables, written)


@dataclass(frozen=True, slots=True)
class Revision:
    """A statement as declared or deployed; `parsed` is None only for an external table."""

    table: TableName
    texts: RevisionTexts
    parsed: ParsedStatement | None
    ddl: TableDdl
    settings: Settings = field(default_factory=Settings)
    pool: Pool | None = None
    """The pool that runs the statement; None if unknown, so that pools cannot be compared."""
    engine: str = ""
    """Version of Spark, such as `4.2.0`; empty if unknown."""
    parents: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """Columns of each input, in lower case; an input that is not listed has unknown columns."""

    @property
    def hash(self) -> str:
        """The hash that identifies the revision's SQL and YAML, ignoring line endings and byte-order marks."""
        return revision_hash(self.texts)


def removed_columns(old: Revision, new: Revision) -> tuple[str, ...]:
    """Return the columns, in lower case, that only the old revision has."""
    kept = {column.name.lower() for column in new.ddl.columns}
    return tuple(column.name.lower() for column in old.ddl.columns if column.name.lower() not in kept)


def revision_hash(texts: RevisionTexts) -> str:
    """Return the hash of a revision's SQL and YAML, ignoring line endings and byte-order marks.

    It includes the variables with their values, and the texts as written, if the texts use variables.
    """
    parts = [texts.ddl, texts.dml, texts.yml]
    if texts.written is not None:
        parts += (texts.written.ddl, texts.written.dml, texts.written.yml, *(f"{n}={v}" for n, v in texts.variables))
    return _hash(map(_plain, parts))


def changed_variables(old: RevisionTexts, new: RevisionTexts) -> tuple[Edit, ...]:
    """Return an edit for each variable whose value differs, or which only one of two revisions uses; sorted by name."""
    was, now = dict(old.variables), dict(new.variables)
    found = []
    for name in sorted({*was, *now}):
        before, after = (values[name] or '""' if name in values else "" for values in (was, now))
        if before != after:
            found.append(Edit(EditKind.VARIABLE, before, after, name))
    return tuple(found)


def written_hash(texts: RevisionTexts) -> str:
    """Return the hash of a revision's texts as written, which is the same in environments with other values."""
    return revision_hash(texts.as_written)


def _hash(parts: Iterable[str]) -> str:
    """Hash each part together with its length, so that different splits of a text give different hashes."""
    found = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([b"%d:%b" % (len(data), data) for data in found])).hexdigest()


def _plain(text: str) -> str:
    plain = text.removeprefix("\ufeff")
    return plain.replace("\r\n", "\n").replace("\r", "\n") if "\r" in plain else plain
