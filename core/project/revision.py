"""A statement as declared or as deployed: its texts, what they say, and what it runs on where that is known."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.project.model import Pool, Settings
from core.sql.statement import ParsedStatement, TableDdl


@dataclass(frozen=True, slots=True)
class RevisionTexts:
    """A revision's texts: the unit of what is declared and deployed."""

    ddl: str = ""
    dml: str = ""
    yml: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """A statement as declared or as deployed; `parsed` None exactly when it is an external table."""

    table: TableName
    texts: RevisionTexts
    parsed: ParsedStatement | None
    ddl: TableDdl
    settings: Settings = field(default_factory=Settings)
    pool: Pool | None = None
    """What it runs on, with its configuration; None where that is not known, and then nothing is said of it."""
    engine: str = ""
    """Version of Spark, `4.2.0`; empty where it is not known."""
    parents: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """Columns of the tables that it reads, in lower case; a table that is not there is not known."""

    @property
    def hash(self) -> str:
        """Identity of the texts, line endings aside."""
        return revision_hash(self.texts)


def removed_columns(old: Revision, new: Revision) -> tuple[str, ...]:
    """Return the columns that readers of the old revision could name and readers of the new one cannot."""
    kept = {column.name.lower() for column in new.ddl.columns}
    return tuple(column.name.lower() for column in old.ddl.columns if column.name.lower() not in kept)


def revision_hash(texts: RevisionTexts) -> str:
    """Hash a revision's texts; line endings and byte-order marks make no difference."""
    return _hash(_plain(text) for text in (texts.ddl, texts.dml, texts.yml))


def _hash(parts: Iterable[str]) -> str:
    """Hash parts with their lengths, so that no two lists of parts run together into the same bytes."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
