"""A statement as declared or deployed: its SQL and YAML, the values parsed from them, and the pool, if known."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.project.model import Pool, Settings
from core.sql.statement import ParsedStatement, TableDdl


@dataclass(frozen=True, slots=True)
class RevisionTexts:
    """The SQL and YAML of a revision, which are declared and deployed together."""

    ddl: str = ""
    dml: str = ""
    yml: str = ""


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
    """Return the hash of a revision's SQL and YAML, ignoring line endings and byte-order marks."""
    return _hash(_plain(text) for text in (texts.ddl, texts.dml, texts.yml))


def _hash(parts: Iterable[str]) -> str:
    """Hash each part together with its length, so that different splits of a text give different hashes."""
    found = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([b"%d:%b" % (len(data), data) for data in found])).hexdigest()


def _plain(text: str) -> str:
    plain = text.removeprefix("\ufeff")
    return plain.replace("\r\n", "\n").replace("\r", "\n") if "\r" in plain else plain
