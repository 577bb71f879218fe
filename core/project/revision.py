"""A statement as declared or deployed: its SQL and YAML, the values parsed from them, and the pool, if known."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from core.model.evidence import Edit, EditKind
from core.model.names import TableName
from core.project.model import Pool, Settings
from core.sql.registered_functions import is_python
from core.sql.statement import ParsedStatement, TableDdl
from core.text.wording import clipped


@dataclass(frozen=True, slots=True)
class RevisionTexts:
    """The SQL and YAML of a revision, which are declared and deployed together."""

    ddl: str = ""
    dml: str = ""
    yml: str = ""
    """With `ddl` and `dml`, the texts in which values have replaced the variables, and bodies the calls."""
    variables: tuple[tuple[str, str], ...] = ()
    """Names and values of the variables that the texts use, sorted by name."""
    written: "RevisionTexts | None" = None
    """The texts with `${name}` and calls, as in the project's files; None if they use no variables and no functions."""
    functions: tuple[tuple[str, str], ...] = ()
    """Names and declarations of the functions that the SQL uses, directly or through others, sorted by name."""

    @property
    def shown(self) -> Mapping[str, str]:
        """The texts for people, by name (`dml`, `ddl`, `yml`); a job in Python is its code instead of a DML script."""
        dml = self.dml
        if "python_job(" in dml:
            from core.sql.python_jobs import job_as_written

            dml = job_as_written(dml)
        return {"dml": dml, "ddl": self.ddl, "yml": self.yml}

    @property
    def as_written(self) -> "RevisionTexts":
        """The texts as in the project's files, which can be deployed with the values of another environment."""
        return self.written or self


def texts_as_json(texts: RevisionTexts) -> dict[str, Any]:
    """Return texts as a JSON object; variables and functions are left out if there are none."""
    data: dict[str, Any] = {"ddl": texts.ddl, "dml": texts.dml, "yml": texts.yml}
    if texts.functions:
        data["functions"] = dict(texts.functions)
    if texts.written is not None:
        data["variables"] = dict(texts.variables)
        data["written"] = texts_as_json(texts.written)
    return data


def texts_from_json(data: Mapping[str, Any]) -> RevisionTexts:
    """Rebuild texts from the result of `texts_as_json`; raises KeyError, TypeError or AttributeError if damaged."""
    written = texts_from_json(data["written"]) if data.get("written") is not None else None
    variables, functions = (
        tuple(sorted((str(name), str(value)) for name, value in data.get(key, {}).items()))
        for key in ("variables", "functions")
    )
    return RevisionTexts(
        data["ddl"], data["dml"], data["yml"], variables=variables, written=written, functions=functions
    )


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

    It includes the variables with their values, the functions, and the texts as written, if the texts use any.
    """
    parts = [texts.ddl, texts.dml, texts.yml]
    if texts.written is not None:
        parts += (texts.written.ddl, texts.written.dml, texts.written.yml, *(f"{n}={v}" for n, v in texts.variables))
    for each in (texts, *((texts.written,) if texts.written is not None else ())):
        parts += (f"{name}()={text}" for name, text in each.functions)
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


def changed_functions(old: RevisionTexts, new: RevisionTexts) -> tuple[Edit, ...]:
    """Return an edit for each function whose declaration differs, or which only one revision uses; sorted by name."""
    was, now = dict(old.functions), dict(new.functions)
    found = []
    for name in sorted({*was, *now}):
        texts = [each.get(name, "") for each in (was, now)]
        before, after = _edited_lines(*texts) if any(map(is_python, texts)) else _edited_sql(*texts)
        if before != after:
            found.append(Edit(EditKind.FUNCTION, before, after, name))
    return tuple(found)


def _edited_sql(before: str, after: str) -> tuple[str, str]:
    """Return the bodies of two declarations, or whatever else differs, each on one line."""
    whole = [_HASH.sub(r"\1", " ".join(each.split()).rstrip("; ")) for each in (before, after)]
    bodies = [_RETURN.split(each, maxsplit=1)[-1] for each in whole]
    return (bodies[0], bodies[1]) if bodies[0] != bodies[1] else (whole[0], whole[1])


def _edited_lines(before: str, after: str) -> tuple[str, str]:
    """Return the lines of two files in which they differ, each on one line; comments and empty lines do not count.

    The comment that declares the function counts. A side that has only lost lines is `…`, and one without a file empty.
    """
    old, new = (_lines_of(text) for text in (before, after))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    if not old and not new:
        return "", ""
    shown = [clipped("; ".join(line.strip() for line in side), _MOST_SHOWN) for side in (old, new)]
    return (shown[0] or ("…" if before else ""), shown[1] or ("…" if after else ""))


def _lines_of(text: str) -> list[str]:
    """Return the declaration, the lines of code and their indents."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if _DECLARES.match(line)), 0)
    declaration = " ".join(word for line in takewhile(_is_comment, lines[first:]) for word in line.strip("# ").split())
    return [declaration, *(line for line in lines if not _is_comment(line.lstrip()))]


def _is_comment(line: str) -> bool:
    return line.startswith("#")


_DECLARES = re.compile(r"#\s*CREATE\b.*\bFUNCTION\b", re.IGNORECASE)
_MOST_SHOWN = 120


def raising_functions(texts: RevisionTexts) -> tuple[str, ...]:
    """Return the functions that may have raised an error of the user's own, whose message does not say where.

    Empty if the statement itself may have raised it.
    """
    if _RAISES.search(texts.as_written.dml):
        return ()
    return tuple(name for name, text in texts.functions if _RAISES.search(text))


_RAISES = re.compile(r"\b(?:raise_error|assert_true)\b", re.IGNORECASE)
_RETURN = re.compile(r"\bRETURN\s+|\bAS\s+(?=')", re.IGNORECASE)
"""Matches what precedes the body of a function in SQL, or the class of one of a jar."""
_HASH = re.compile(r"(#[0-9a-f]{8})[0-9a-f]{56}(?=['\"])")
"""Matches the hash of a jar, which is shown shortened."""


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
