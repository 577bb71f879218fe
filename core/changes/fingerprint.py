"""Fingerprints of a revision: hashes that show which parts of two revisions are equal.

Each hash changes only if the part of the same name changes; classification compares the same parts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from core.changes.pinned_settings import is_pinned
from core.project.model import Pool
from core.project.revision import RevisionTexts, _hash, _plain, revision_hash
from core.sql.comparison.builtin_functions import foreign_functions
from core.sql.statement import ParsedStatement, TableDdl


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """SHA-256 of each part of a revision, in hex; equal parts have equal hashes in every process."""

    text: str
    """The SQL and YAML byte by byte, except line endings and byte-order marks."""
    sem: str
    """The meaning of the statement, including options, source names and watermarks."""
    state: str
    pre: str
    post: str
    sources: str
    """Streamed reads in order of appearance: table, source name and options; watermarks belong to `state`."""
    static: str
    """Tables that are read without a stream, sorted by name."""
    sink: str
    """Target, format, partitioning, location, options and properties; empty if there is no DDL."""
    schema: str
    """Name, type and nullability of the columns in order, without comments; empty if there is no DDL."""
    settings: str
    """The YAML content without blank lines and comment lines."""
    udf: str
    """Names of called functions that are not built into Spark; changes to their code are not detected."""
    conf_pinned: str
    """Pool settings that a checkpoint retains from its first start; empty if the pool is unknown."""
    conf_restartable: str
    """All other pool settings; empty if the pool is unknown."""
    pool: str
    """Name and address of the pool; empty if unknown."""

    def as_json(self) -> dict[str, str | None]:
        """Return the hashes by name; unknown hashes are null."""
        return {name: value or None for name, value in asdict(self).items()}


def fingerprint(
    texts: RevisionTexts, parsed: ParsedStatement | None, ddl: TableDdl | None, *, runs_on: Pool | None = None
) -> Fingerprints:
    """Return the fingerprints of a revision; `parsed` is None for an external table, `ddl` is None without a DDL."""
    streamed = [read for read in parsed.reads if read.streaming] if parsed else []
    static = sorted({read.table for read in parsed.reads if not read.streaming}) if parsed else []
    writes = parsed.writes if parsed else ""
    return Fingerprints(
        text=revision_hash(texts),
        sem=_hash((writes, parsed.canonical, parsed.state) if parsed else ()),
        state=_hash((parsed.state,) if parsed else ()),
        pre=_hash((parsed.pre,) if parsed else ()),
        post=_hash((parsed.post,) if parsed else ()),
        sources=_hash(
            part
            for read in streamed
            for part in (read.table, read.source_name, *_pairs((key.lower(), value) for key, value in read.options))
        ),
        static=_hash(static),
        sink=_hash(_sink(ddl)) if ddl else "",
        schema=_hash(_schema(ddl)) if ddl else "",
        settings=_hash(_settings(texts.yml)),
        udf=_hash(foreign_functions(parsed.canonical) if parsed else ()),
        conf_pinned=_hash(_pairs(each for each in runs_on.conf if is_pinned(each[0]))) if runs_on else "",
        conf_restartable=_hash(_pairs(each for each in runs_on.conf if not is_pinned(each[0]))) if runs_on else "",
        pool=_hash((runs_on.name, runs_on.url or runs_on.master or "")) if runs_on else "",
    )


def _sink(ddl: TableDdl) -> tuple[str, ...]:
    parts = (ddl.table, ddl.format, *(name.lower() for name in ddl.partitioning), ddl.location)
    return (*parts, *_pairs(ddl.options), *_pairs(ddl.properties))


def _schema(ddl: TableDdl) -> Iterator[str]:
    for column in ddl.columns:
        yield from (column.name.lower(), column.type, str(column.nullable))


def _pairs(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{len(key)}:{key}={value}" for key, value in sorted(pairs))


def _settings(text: str) -> tuple[str, ...]:
    lines = (line.rstrip() for line in _plain(text).split("\n"))
    return tuple(line for line in lines if line and not line.lstrip().startswith("#"))
