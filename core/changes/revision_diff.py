"""Differences between two revisions, each with its kind of change and its edit.

A difference may be milder than STATE_CHANGED only if Spark is certain to produce the rows that the new SQL describes.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from core.changes.kinds import ChangeKind
from core.changes.pinned_settings import is_pinned, is_restartable
from core.model.evidence import Edit, EditKind, EditPlace
from core.model.names import TableName
from core.model.table_formats import is_wider, table_format
from core.project.model import Pool, Settings
from core.project.revision import Revision, changed_functions, changed_variables
from core.sql.metadata_columns import METADATA_NAMES, declares_metadata
from core.sql.statement import SIMPLIFIED, Column, Operator, ParsedStatement, TableRead, selects_star
from core.text.diff import changed_lines, short_diff

RevisionDifference = tuple[ChangeKind, Edit]
"""A kind of change and the edit that causes it."""

RATE_LIMITS = frozenset(
    ("maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger", "minoffsetspertrigger", "maxcachedfiles")
)
"""Read options, in lower case, that affect only the reading speed."""


_BESIDE_WIDER_TYPES = frozenset(
    {
        ChangeKind.COLUMN_WIDENED, ChangeKind.COLUMN_ADDED, ChangeKind.FILTER_OR_PROJECTION,
        ChangeKind.CHANGE_AFTER_STATE, ChangeKind.TRIGGER_OR_RATE, ChangeKind.DESCRIPTION, ChangeKind.COMMENT_OR_FORMAT,
        ChangeKind.ENGINE, ChangeKind.PINNED_CONFIGURATION, ChangeKind.SCHEMA_TRACKING,
    }
)  # fmt: skip
"""Kinds of change that a single restart can apply together with a widened column."""


_OUTSIDE_SPARK = (
    "owner", "runbook", "objective", "description", "tags", "reads", "mirror_offsets", "connector", "silence",
    "payload", "protect", "readers", "checks", "compatibility", "state_compatible", "query_name", "pool",
    "resources",
)  # fmt: skip
"""Settings that do not affect a statement's query."""


_IN_ROWS = ("description", "query_name")
"""Settings that `metadata: true` writes into the rows."""


def revision_differences(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    """Yield every difference between two revisions of a table, plus COMMENT_OR_FORMAT if SQL or DDL was edited.

    A widened column yields COLUMN_WIDENED if a single restart can apply all differences; otherwise it yields
    COLUMNS_CHANGED, which requires a rebuild.
    """
    found = tuple(_differences(old, new))
    alone = all(kind in _BESIDE_WIDER_TYPES for kind, _ in found)
    for kind, edit in found:
        yield (kind if alone or kind is not ChangeKind.COLUMN_WIDENED else ChangeKind.COLUMNS_CHANGED), edit


def _differences(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    to_topic = all(each.parsed is not None and table_format(each.ddl.format).topics for each in (old, new))
    grown = len(new.ddl.columns) > len(old.ddl.columns) and not to_topic
    if to_topic:
        yield from _message_findings(old, new)
    else:
        yield from _column_findings(old, new)
        yield from _sink_findings(old, new)
    external = old.parsed is None and new.parsed is None
    yield from _settings_findings(old.settings, new.settings, external=external)
    yield from _metadata_findings(old, new)
    yield from _engine_findings(old, new)
    if (old.parsed is None) != (new.parsed is None):
        came = EditKind.STATEMENT_ADDED if old.parsed is None else EditKind.STATEMENT_REMOVED
        yield ChangeKind.STATE_CHANGED, Edit(came)
    elif old.parsed is not None and new.parsed is not None:
        same = _differ_in_qualifiers(old, new)
        if columns := columns_into_state(old, new):
            yield ChangeKind.STATE_CHANGED, Edit(EditKind.STAR_INTO_STATE, columns=columns)
        if not to_topic:
            yield from _type_findings(old.parsed, new.parsed, new.ddl.columns)
        yield from _source_findings(old.parsed, new.parsed, same=same)
        if old.parsed.in_python or new.parsed.in_python:
            yield from _job_findings(old.parsed, new.parsed, continues=new.settings.state_compatible)
        elif not same:
            yield from query_differences(old.parsed, new.parsed, grown=grown)
    # What a value or a body changes is found in the texts themselves; variable and function only name the cause.
    causes = (*changed_variables(old.texts, new.texts), *changed_functions(old.texts, new.texts))
    yield from ((ChangeKind.COMMENT_OR_FORMAT, edit) for edit in causes)
    parts = ([*map(_plain, (texts.dml, texts.ddl)), texts.written] for texts in (old.texts, new.texts))
    if next(parts) != next(parts):
        yield ChangeKind.COMMENT_OR_FORMAT, Edit(EditKind.COMMENTS)


def _job_findings(old: ParsedStatement, new: ParsedStatement, *, continues: str) -> Iterator[RevisionDifference]:
    """Yield the differences between two jobs in Python, or between a job and a query in SQL.

    Edited code continues the state of older code only if its yml names the hash of that code.
    """
    from core.sql.python_jobs import code_hash

    if old.in_python != new.in_python:
        before, after = ("Python" if each.in_python else "SQL" for each in (old, new))
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.SETTING, before, after, "language of the statement")
        return
    if old.state != new.state:
        before = code_hash(old)
        goes_on = bool(continues) and before.startswith(continues[: len(before)])
        kind = ChangeKind.CHANGE_AFTER_STATE if goes_on else ChangeKind.STATE_CHANGED
        yield from ((kind, Edit(EditKind.CODE, was, now)) for was, now in changed_lines(old.state, new.state))
        yield kind, Edit(EditKind.CODE_CONTINUES if goes_on else EditKind.CODE_STATE_UNKNOWN, before=before)
    if old.pre != new.pre:
        yield ChangeKind.CHANGE_BEFORE_STATE, Edit(EditKind.SETTING, old.pre, new.pre, "inputs")


def columns_into_state(old: Revision, new: Revision) -> tuple[str, ...]:
    """Return the columns that an unchanged stateful statement gains through a star.

    Spark 4.2.0 refuses to continue from a state that lacks such a column. Unchanged SQL can gain a column only through
    a star.
    """
    if old.parsed is None or new.parsed is None or not new.parsed.stateful:
        return ()
    if old.parsed.canonical != new.parsed.canonical or not selects_star(new.parsed):
        return ()
    before = {column.name.lower() for column in old.ddl.columns}
    added = tuple(column.name.lower() for column in new.ddl.columns if column.name.lower() not in before)
    if not new.settings.metadata:
        return added
    # The statement's own metadata columns come after its state, and those of its inputs only through the star.
    read, now_read = ({*itertools.chain(*each.parents.values())} for each in (old, new))
    inherited = sorted(METADATA_NAMES & now_read - read)
    return (*(name for name in added if name not in METADATA_NAMES), *inherited)


def _differ_in_qualifiers(old: Revision, new: Revision) -> bool:
    if old.parsed is None or new.parsed is None or old.parsed.canonical == new.parsed.canonical:
        return False
    if not (old.parents and new.parents):
        return False
    from core.sql.comparison.qualified_columns import with_qualified_columns

    return with_qualified_columns(old.parsed.canonical, old.parents) == with_qualified_columns(
        new.parsed.canonical, new.parents
    )


def _column_findings(before: Revision, after: Revision) -> Iterator[RevisionDifference]:
    old, new = before.ddl.columns, after.ddl.columns
    old_by_name = {column.name.lower(): column for column in old}
    new_by_name = {column.name.lower(): column for column in new}
    added = [column for column in new if column.name.lower() not in old_by_name]
    for name in old_by_name:
        if name not in new_by_name:
            yield ChangeKind.COLUMNS_CHANGED, Edit(EditKind.COLUMN_REMOVED, columns=(name,))
    for name, column in new_by_name.items():
        was = old_by_name.get(name)
        if was is None:
            continue
        if was.name != column.name and table_format(after.ddl.format).topics:
            # Spark finds the fields of messages by exact names (4.2.0).
            yield ChangeKind.COLUMNS_CHANGED, Edit(EditKind.FIELD_NAME, was.name, column.name, columns=(name,))
        if was.type != column.type:
            yield _retyped_column(before, after, was, column)
        elif was.nullable and not column.nullable:
            yield ChangeKind.COLUMNS_CHANGED, Edit(EditKind.COLUMN_NOT_NULL, columns=(name,))
        elif was.nullable != column.nullable:
            yield ChangeKind.COLUMNS_CHANGED, Edit(EditKind.COLUMN_NULLABLE, columns=(name,))
    kept = [column.name.lower() for column in new if column.name.lower() in old_by_name]
    if kept != [name for name in old_by_name if name in new_by_name]:
        yield ChangeKind.COLUMNS_CHANGED, Edit(EditKind.COLUMN_ORDER)
    at_the_end = not added or [c.name for c in new[len(new) - len(added) :]] == [c.name for c in added]
    for column in added:
        names = (column.name.lower(),)
        if at_the_end and column.nullable:
            # The type of the column is unknown if there is no DDL.
            yield ChangeKind.COLUMN_ADDED, Edit(EditKind.COLUMN_ADDED, after=column.type, columns=names)
        else:
            kind = EditKind.COLUMN_INSERTED if column.nullable else EditKind.COLUMN_ADDED_NOT_NULL
            yield ChangeKind.COLUMNS_CHANGED, Edit(kind, after=column.type, columns=names)


def _retyped_column(old: Revision, new: Revision, was: Column, now: Column) -> RevisionDifference:
    """Return a column's change of type: COLUMN_WIDENED if the column can be widened in place.

    Otherwise, the change is COLUMNS_CHANGED, which requires a rebuild.

    Key, sequence and partition columns are never widened in place.
    """
    name = now.name.lower()
    edit = Edit(EditKind.COLUMN_TYPE, was.type, now.type, columns=(name,))
    widens = table_format(new.ddl.format).widening_property and old.ddl.format == new.ddl.format
    if not widens or was.nullable != now.nullable or not is_wider(now.type, was.type):
        return ChangeKind.COLUMNS_CHANGED, edit
    places = {each.lower() for each in (*new.settings.key, new.settings.sequence, *new.ddl.partitioning)}
    if name in places:
        return ChangeKind.COLUMNS_CHANGED, replace(edit, kind=EditKind.KEY_TYPE)
    return ChangeKind.COLUMN_WIDENED, edit


def _type_findings(
    old: ParsedStatement, new: ParsedStatement, declared: tuple[Column, ...]
) -> Iterator[RevisionDifference]:
    """Yield a difference for each column whose edited expression would write a type other than the table's.

    Such a write would corrupt the table. Only types that are evident from the SQL are detected: casts, and functions
    with a single result type.
    """
    types = {column.name.lower(): column.type for column in declared}
    before = {column.name.lower(): column.expression for column in old.columns}
    for column in new.columns:
        name, now = column.name.lower(), column.expression
        was = before.get(name, now)
        if was != now and (edit := _type_edit(was, now, types.get(name, ""))) is not None:
            yield ChangeKind.COLUMNS_CHANGED, replace(edit, columns=(name,))


def _type_edit(was: str, now: str, into: str) -> Edit | None:
    """Return an edit if a new expression may write a type other than `into` (empty without DDL), otherwise None."""
    from core.sql.expression_properties import expression_type

    kind, before = expression_type(now), expression_type(was)
    if kind == before:
        return None
    if kind and into:
        fits = kind == into or (kind == "string" and into.startswith(("char", "varchar")))
        return None if fits else Edit(EditKind.WRITTEN_TYPE_INTO, before, kind, into)
    if not kind:
        return Edit(EditKind.CAST_REMOVED, before) if _casts(was) else None
    return Edit(EditKind.WRITTEN_TYPE, before, kind) if _casts(now) or before else None


def _casts(expression: str) -> bool:
    return expression.startswith(("CAST(", "TRY_CAST("))


def _sink_findings(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    pairs = (
        ("table", old.table, new.table),
        ("format", old.ddl.format, new.ddl.format),
        ("partitioning", ", ".join(old.ddl.partitioning), ", ".join(new.ddl.partitioning)),
        ("location", old.ddl.location, new.ddl.location),
        ("options", _pairs(old.ddl.options), _pairs(new.ddl.options)),
        ("properties", _pairs(old.ddl.properties), _pairs(new.ddl.properties)),
    )
    for name, before, after in pairs:
        if before != after:
            yield ChangeKind.TABLE_FORMAT, Edit(EditKind.SETTING, before, after, name)
    if old.settings.mode != new.settings.mode:
        yield ChangeKind.OUTPUT_MODE_OR_KEY, Edit(EditKind.SETTING, old.settings.mode, new.settings.mode, "mode")
    if old.settings.key != new.settings.key:
        before, after = (", ".join(each.settings.key) for each in (old, new))
        yield ChangeKind.OUTPUT_MODE_OR_KEY, Edit(EditKind.SETTING, before, after, "key")
    for name in ("sequence", "deletes"):
        was, now = (str(getattr(each.settings, name)) for each in (old, new))
        if was != now:
            yield ChangeKind.OUTPUT_MODE_OR_KEY, Edit(EditKind.SETTING, was, now, name)


def _message_findings(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    """Yield the differences of a statement that writes to a topic.

    The messages may have any columns, and the values are cast to the declared types.
    """
    content = _content_kind(old, new)
    for _, edit in _column_findings(old, new):
        yield content, edit
    if old.ddl.location != new.ddl.location:
        yield ChangeKind.TABLE_FORMAT, Edit(EditKind.SETTING, old.ddl.location, new.ddl.location, "topic")
    elif old.ddl.options != new.ddl.options:
        formats = [dict(each.ddl.options).get("value.format") for each in (old, new)]
        kind = ChangeKind.TRIGGER_OR_RATE if formats[0] == formats[1] else content
        yield kind, Edit(EditKind.SETTING, _pairs(old.ddl.options), _pairs(new.ddl.options), "options")
    if old.settings.key != new.settings.key:
        yield ChangeKind.DESCRIPTION, Edit(EditKind.SETTING_CHANGED, of="key")


def _settings_findings(old: Settings, new: Settings, *, external: bool) -> Iterator[RevisionDifference]:
    if old.trigger != new.trigger:
        # External tables have no trigger, so a new default of the project does not change them.
        kind = ChangeKind.DESCRIPTION if external else ChangeKind.TRIGGER_OR_RATE
        yield kind, Edit(EditKind.SETTING, str(old.trigger), str(new.trigger), "trigger")
    if old.schema_tracking != new.schema_tracking:
        tracked = EditKind.TRACKED if new.schema_tracking else EditKind.NOT_TRACKED
        yield ChangeKind.SCHEMA_TRACKING, Edit(tracked)
    for name in _OUTSIDE_SPARK:
        in_rows = name in _IN_ROWS and old.metadata and new.metadata
        if getattr(old, name) != getattr(new, name) and not in_rows:
            yield ChangeKind.DESCRIPTION, Edit(EditKind.SETTING_CHANGED, of=name)


def _metadata_findings(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    """Yield the differences in the values that `metadata: true` writes into the rows.

    The columns themselves are differences of the DDL.
    """
    was, now = old.settings, new.settings
    if was.metadata != now.metadata:
        before, after = ("true" if each.metadata else "false" for each in (was, now))
        yield _kind_of_switch(old, new), Edit(EditKind.SETTING, before, after, "metadata")
    elif now.metadata:
        for name in _IN_ROWS:
            before, after = (str(getattr(each, name)) or '""' for each in (was, now))
            if before != after:
                yield _content_kind(old, new), Edit(EditKind.SETTING, before, after, name)


def _kind_of_switch(old: Revision, new: Revision) -> ChangeKind:
    """Return the kind of switching metadata: that of its columns, unless both versions have them or write messages."""
    had, has = (declares_metadata(each.ddl) for each in (old, new))
    if had == has or all(table_format(each.ddl.format).topics for each in (old, new)):
        return _content_kind(old, new)
    return ChangeKind.COLUMN_ADDED if has else ChangeKind.COLUMNS_CHANGED


def _content_kind(old: Revision, new: Revision) -> ChangeKind:
    """Return the kind of a change to the values of rows that no state holds."""
    stateful = any(each.parsed is not None and each.parsed.stateful for each in (old, new))
    return ChangeKind.CHANGE_AFTER_STATE if stateful else ChangeKind.FILTER_OR_PROJECTION


def _engine_findings(old: Revision, new: Revision) -> Iterator[RevisionDifference]:
    if old.engine and new.engine and old.engine != new.engine:
        older = _release(new.engine) < _release(old.engine)
        kind, edit = (
            (ChangeKind.STATE_CHANGED, EditKind.OLDER_ENGINE) if older else (ChangeKind.ENGINE, EditKind.ENGINE)
        )
        yield kind, Edit(edit, old.engine, new.engine)
    if old.pool is None or new.pool is None:
        return
    if _place(old.pool) != _place(new.pool):
        yield ChangeKind.POOL, Edit(EditKind.SETTING, _named(old.pool), _named(new.pool), "pool")
    for what in ("cores", "memory"):
        if old.pool.name == new.pool.name and getattr(old.pool, what) != getattr(new.pool, what):
            before, after = (str(getattr(each, what)) for each in (old.pool, new.pool))
            yield ChangeKind.TRIGGER_OR_RATE, Edit(EditKind.SETTING, before, after, f"{what} of pool {new.pool.name}")
    stateful = any(each.parsed is not None and each.parsed.stateful for each in (old, new))
    was, now = dict(old.pool.conf), dict(new.pool.conf)
    for key in sorted({*was, *now}):
        if was.get(key) != now.get(key):
            kind = _conf_kind(key, stateful=stateful)
            yield kind, _conf_edit(key, was, now, pinned=kind is ChangeKind.PINNED_CONFIGURATION)


def _conf_edit(key: str, was: Mapping[str, str], now: Mapping[str, str], *, pinned: bool) -> Edit:
    if not (key.startswith("spark.sql.") or is_restartable(key)):
        # Other settings may hold a secret.
        return Edit(EditKind.SECRET_PINNED if pinned else EditKind.SECRET_CONFIGURATION, of=key)
    before, after = (conf[key] or '""' if key in conf else "" for conf in (was, now))
    return Edit(EditKind.PINNED if pinned else EditKind.CONFIGURATION, before, after, key)


def _release(engine: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", engine)[:3])


def _conf_kind(key: str, *, stateful: bool) -> ChangeKind:
    """Return the kind of change for an edited setting.

    An unknown setting may affect the rows, as the time zone and the ANSI mode do.
    """
    if is_restartable(key):
        return ChangeKind.TRIGGER_OR_RATE
    if is_pinned(key):
        kept = stateful or key != "spark.sql.shuffle.partitions"
        return ChangeKind.PINNED_CONFIGURATION if kept else ChangeKind.TRIGGER_OR_RATE
    return ChangeKind.STATE_CHANGED if stateful else ChangeKind.FILTER_OR_PROJECTION


def _source_findings(old: ParsedStatement, new: ParsedStatement, *, same: bool) -> Iterator[RevisionDifference]:
    """Yield the differences in streamed reads, which are compared by position.

    A checkpoint identifies unnamed sources only by their numbers.
    """
    before = [read for read in old.reads if read.streaming]
    after = [read for read in new.reads if read.streaming]
    before_names, after_names = sorted(r.table for r in before), sorted(r.table for r in after)
    if before_names != after_names:
        gone = [name for name in before_names if after_names.count(name) < before_names.count(name)]
        come = [name for name in after_names if before_names.count(name) < after_names.count(name)]
        went, came = (", ".join(dict.fromkeys(names)) for names in (gone, come))
        yield _moved(before, after), Edit(EditKind.STREAMED, went, came)
        return
    if [r.table for r in before] != [r.table for r in after]:
        yield ChangeKind.SOURCE_REPLACED, Edit(EditKind.STREAMED_ORDER)
        return
    if len(after) > 1 and old.pre != new.pre and not same and _reorders(old, new):
        yield ChangeKind.SOURCE_REPLACED, Edit(EditKind.STREAMED_ORDER_UNKNOWN)
    for was, now in zip(before, after, strict=True):
        yield from _read_findings(was, now)


def _moved(before: Sequence[TableRead], after: Sequence[TableRead]) -> ChangeKind:
    """Return the kind of change if the streamed tables differ; it is milder if no source name moves to another table.

    If a name moves to another table, Spark 4.2.0 continues from the former table's offsets, or refuses (tested).
    """
    if all(read.source_name for read in (*before, *after)):
        old, new = ({read.source_name: read.table for read in reads} for reads in (before, after))
        kept = old.keys() & new.keys()
        stay = kept and all(old[name] == new[name] for name in kept)
        return ChangeKind.NAMED_SOURCES_CHANGED if stay else ChangeKind.SOURCE_REPLACED
    return ChangeKind.SOURCE_REPLACED if len(before) == len(after) else ChangeKind.SOURCES_CHANGED


def _reorders(old: ParsedStatement, new: ParsedStatement) -> bool:
    """True if either query begins with WITH, so that its SQL does not show how Spark numbers the sources."""
    return any(re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*with\b", p.select, re.I | re.S) for p in (old, new))


def _read_findings(old: TableRead, new: TableRead) -> Iterator[RevisionDifference]:
    if old.source_name != new.source_name:
        of = f"source name of {new.table}"
        yield ChangeKind.SOURCE_REPLACED, Edit(EditKind.READ_OPTION, old.source_name, new.source_name, of)
    # Spark compares names of options without case.
    before, after = ({key.lower(): value for key, value in read.options} for read in (old, new))
    written = {key.lower(): key for key, _ in (*old.options, *new.options)}
    for key in sorted(written):
        if before.get(key) != after.get(key):
            kind = ChangeKind.TRIGGER_OR_RATE if key in RATE_LIMITS else ChangeKind.SOURCE_REPLACED
            of = f"{written[key]} of {new.table}"
            yield kind, Edit(EditKind.READ_OPTION, before.get(key, ""), after.get(key, ""), of)


def _place(pool: Pool) -> tuple[str | None, ...]:
    return (pool.name, pool.url, pool.master)


def _named(pool: Pool) -> str:
    at = pool.url or pool.master
    return f"{pool.name} ({at})" if at else pool.name


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(pairs))


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


_OWN_ALIAS = re.compile(r"\b_[tc][0-9]+\b")
_SAID_TWICE = re.compile(r"\b(\w+) AS \1\b")


def query_differences(old: ParsedStatement, new: ParsedStatement, *, grown: bool) -> Iterator[RevisionDifference]:
    """Yield the differences between two queries; options and names of their sources are compared separately."""
    stateful = old.stateful or new.stateful
    if _meaning(old) == _meaning(new):
        if old.canonical != new.canonical and _clauses(old) == _clauses(new):
            kind = ChangeKind.STATE_CHANGED if stateful else ChangeKind.FILTER_OR_PROJECTION
            yield from _edits_of_part(kind, old, new, "canonical")
        return
    if not stateful:
        if old.pre != new.pre:
            swapped = _swapped_static(old, new)
            yield from ((ChangeKind.STATIC_SIDE, Edit(EditKind.STATIC_SIDE, *pair)) for pair in swapped)
            if not swapped:
                found = _edits_of_part(ChangeKind.FILTER_OR_PROJECTION, old, new, "pre")
                yield from _of_added_columns(found) if grown else found
        else:
            yield ChangeKind.FILTER_OR_PROJECTION, Edit(EditKind.WATERMARK, _delays(old), _delays(new))
        return
    if old.stateful != new.stateful:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.STATE, _kinds(old), _kinds(new))
        yield from _edits_of_part(ChangeKind.STATE_CHANGED, old, new, "canonical")
        return
    said: list[RevisionDifference] = []
    if (old.state, old.operators, _delays(old)) != (new.state, new.operators, _delays(new)):
        said += _state_findings(old, new, grown=grown)
    yield from said
    if old.pre != new.pre:
        before = _edits_of_part(ChangeKind.CHANGE_BEFORE_STATE, old, new, "pre")
        known = {edit for _, edit in said}
        yield from (
            (kind, edit if edit in known else replace(edit, place=EditPlace.BEFORE_STATE)) for kind, edit in before
        )
    if old.post != new.post:
        after = _edits_of_part(ChangeKind.CHANGE_AFTER_STATE, old, new, "post")
        placed = ((kind, replace(edit, place=EditPlace.AFTER_STATE)) for kind, edit in after)
        yield from _of_added_columns(placed) if grown else placed


def _of_added_columns(found: Iterable[RevisionDifference]) -> Iterator[RevisionDifference]:
    """Give the kind COLUMN_ADDED to the edits that only add outputs; the others keep theirs."""
    for kind, edit in found:
        adds = edit.kind is EditKind.EXPRESSION and not edit.before
        yield (ChangeKind.COLUMN_ADDED if adds else kind), edit


def _meaning(parsed: ParsedStatement) -> tuple[object, ...]:
    return (parsed.pre, parsed.state, parsed.post, parsed.operators, _delays(parsed))


def _clauses(parsed: ParsedStatement) -> tuple[object, ...]:
    return tuple((read.table, read.streaming, read.options, read.source_name) for read in parsed.reads)


def _swapped_static(old: ParsedStatement, new: ParsedStatement) -> tuple[tuple[str, str], ...]:
    """Return pairs of a replaced static table and its replacement; empty unless replacements are the only edits."""
    before, after = (
        dict.fromkeys(read.table for read in p.reads if not read.streaming and read.table) for p in (old, new)
    )
    gone, come = [t for t in before if t not in after], [t for t in after if t not in before]
    if len(gone) != len(come):
        return ()
    text = old.pre
    for was, now in zip(gone, come, strict=True):
        text = _with_table(text, was, now)
    return tuple(zip(gone, come, strict=True)) if text == new.pre else ()


def _with_table(text: str, was: TableName, now: TableName) -> str:
    """Replace a table name in canonical SQL, where an alias follows every table name."""
    return re.sub(rf"\b(FROM|JOIN|,) {re.escape(was)} AS (_t\d+)\b", rf"\1 {now} AS \2", text)


def _state_findings(old: ParsedStatement, new: ParsedStatement, *, grown: bool) -> Iterator[RevisionDifference]:
    if old.operators == new.operators and old.aggregate_deciding_expressions != new.aggregate_deciding_expressions:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.AGGREGATES_READ)
        if _delays(old) == _delays(new):
            return
    if old.operators == new.operators and _delays(old) != _delays(new):
        # A single restart must not both add columns and change when late rows are dropped.
        same = _watermarked(old) == _watermarked(new) and not grown
        kind = ChangeKind.WATERMARK_DELAY if same else ChangeKind.STATE_CHANGED
        yield kind, Edit(EditKind.WATERMARK, _watermarks(old), _watermarks(new))
        return
    if [operator.kind for operator in old.operators] != [operator.kind for operator in new.operators]:
        yield ChangeKind.STATE_CHANGED, Edit(EditKind.STATE, _kinds(old), _kinds(new))
        return
    found = [
        each for pair in zip(old.operators, new.operators, strict=True) for each in _operator_edits(*pair, old, new)
    ]
    yield from ((ChangeKind.STATE_CHANGED, edit) for edit in found)
    if not found:
        yield from _edits_of_part(ChangeKind.STATE_CHANGED, old, new, "state")


def _operator_edits(was: Operator, now: Operator, old: ParsedStatement, new: ParsedStatement) -> Iterator[Edit]:
    from core.sql.comparison.query_edits import aliases_of_both, query_edits

    aliases = aliases_of_both(old, new)
    sides = tuple(zip((was, now), aliases, strict=True))
    clauses = [
        edit
        for edit in query_edits(old.canonical, new.canonical, aliases)
        if edit.changes_operator_definition(now.kind)
    ]
    yield from clauses
    if was.keys != now.keys and not clauses:
        before, after = (as_written(", ".join(each.keys), names) for each, names in sides)
        yield Edit(EditKind.OPERATOR_KEYS, before, after, now.kind)
    if was.detail == now.detail or (now.kind == "stream_join" and clauses):
        return
    before, after = (as_written(each.detail, names) for each, names in sides)
    parts = list(_parts(before, after, EditKind.OPERATOR, now.kind)) if now.kind == "stream_join" else []
    yield from parts or [Edit(EditKind.OPERATOR, before, after, now.kind)]


def _parts(before: str, after: str, kind: EditKind, of: str = "") -> Iterator[Edit]:
    pairs, more = short_diff(before, after)
    yield from (Edit(kind, was, now, of) for was, now in pairs)
    if more:
        yield Edit(EditKind.MORE_PARTS, after=str(more), of=of)


def _edits_of_part(
    kind: ChangeKind, old: ParsedStatement, new: ParsedStatement, part: str
) -> Iterator[RevisionDifference]:
    """Yield the edits to a part of the canonical SQL, by clause or, if no clause can be named, by word.

    There is always at least one edit.
    """
    # The parser is loaded only for an edited statement.
    from core.sql.comparison.query_edits import aliases_of_both, query_edits

    aliases = aliases_of_both(old, new)
    before, after = getattr(old, part), getattr(new, part)
    edits = query_edits(before, after, aliases)
    plain = (as_written(before, aliases[0]), as_written(after, aliases[1]))
    yield from ((kind, edit) for edit in edits or tuple(_parts(*plain, EditKind.TEXT_PART)) or (_UNTOLD,))


_UNTOLD = Edit(EditKind.MEANING)


def as_written(canonical: str, aliases: Mapping[str, str]) -> str:
    """Return canonical SQL in which the aliases from the file replace the generated aliases."""
    text = _OWN_ALIAS.sub(lambda found: aliases.get(found[0]) or "subquery", canonical)
    return _SAID_TWICE.sub(r"\1", text)


def _delays(parsed: ParsedStatement) -> str:
    return ", ".join(f"{r.table}.{r.watermark.column} {r.watermark.delay}" for r in parsed.reads if r.watermark)


def _watermarks(parsed: ParsedStatement) -> str:
    """Return the watermarks in the notation of the state's description, including the watermarks of subqueries."""
    return ", ".join(parsed.state.partition(SIMPLIFIED)[0].split("; watermark ")[1:]).replace("STREAM ", "")


def _watermarked(parsed: ParsedStatement) -> tuple[tuple[str, str], ...]:
    return tuple((read.table, read.watermark.column) for read in parsed.reads if read.watermark)


def _kinds(parsed: ParsedStatement) -> str:
    return ", ".join(operator.kind for operator in parsed.operators)
