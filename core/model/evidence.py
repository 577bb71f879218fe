"""Evidence for the severity of a change: edits to source files and settings, and notices.

Decisions depend on the kinds of the evidence; `core.plan.descriptions` turns it into sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from core.model.names import TableName
from core.text.sentence import Fact, FactKind


class EditKind(StrEnum):
    """The part of a statement or of its settings that an edit changed; the values are used in JSON."""

    # Clauses of a query.
    UNION = "union"
    UNION_BRANCH = "union_branch"
    SELECT = "select"
    SOURCE = "source"
    JOIN = "join"
    JOINED = "joined"
    JOIN_TYPE = "join_type"
    JOIN_CONDITION = "join_condition"
    LATERAL_VIEW = "lateral_view"
    GROUP_KEY = "group_key"
    DISTINCT = "distinct"
    LIMIT = "limit"
    HINT = "hint"
    FILTER = "filter"
    HAVING = "having"
    EXPRESSION = "expression"
    EXPRESSION_ORDER = "expression_order"
    # Parts of a query without a clause of their own.
    TEXT_PART = "text_part"
    MORE_PARTS = "more_parts"
    MEANING = "meaning"
    STATIC_SIDE = "static_side"
    WATERMARK = "watermark"
    STATE = "state"
    OPERATOR_KEYS = "operator_keys"
    OPERATOR = "operator"
    AGGREGATES_READ = "aggregates_read"
    STAR_INTO_STATE = "star_into_state"
    STATEMENT_ADDED = "statement_added"
    STATEMENT_REMOVED = "statement_removed"
    COMMENTS = "comments"
    # Streamed sources.
    STREAMED = "streamed"
    STREAMED_ORDER = "streamed_order"
    STREAMED_ORDER_UNKNOWN = "streamed_order_unknown"
    READ_OPTION = "read_option"
    # Declared columns.
    COLUMN_REMOVED = "column_removed"
    COLUMN_ADDED = "column_added"
    COLUMN_INSERTED = "column_inserted"
    COLUMN_ADDED_NOT_NULL = "column_added_not_null"
    COLUMN_TYPE = "column_type"
    KEY_TYPE = "key_type"
    COLUMN_NOT_NULL = "column_not_null"
    COLUMN_NULLABLE = "column_nullable"
    FIELD_NAME = "field_name"
    COLUMN_ORDER = "column_order"
    WRITTEN_TYPE = "written_type"
    WRITTEN_TYPE_INTO = "written_type_into"
    CAST_REMOVED = "cast_removed"
    # Settings, pool and engine.
    SETTING = "setting"
    SETTING_CHANGED = "setting_changed"
    VARIABLE = "variable"
    FUNCTION = "function"
    CODE = "code"
    CODE_CONTINUES = "code_continues"
    CODE_STATE_UNKNOWN = "code_state_unknown"
    TRACKED = "tracked"
    NOT_TRACKED = "not_tracked"
    CONFIGURATION = "configuration"
    SECRET_CONFIGURATION = "secret_configuration"
    PINNED = "pinned"
    SECRET_PINNED = "secret_pinned"
    ENGINE = "engine"
    OLDER_ENGINE = "older_engine"


class EditPlace(StrEnum):
    """Where an edit is in a query, relative to the query's stateful operators."""

    QUERY = ""
    BEFORE_STATE = "before_state"
    AFTER_STATE = "after_state"


_JOINS = frozenset({EditKind.JOIN, EditKind.JOINED, EditKind.JOIN_TYPE, EditKind.JOIN_CONDITION})
_OF_ROWS = _JOINS | {
    EditKind.UNION, EditKind.UNION_BRANCH, EditKind.SELECT, EditKind.SOURCE, EditKind.LATERAL_VIEW,
    EditKind.GROUP_KEY, EditKind.DISTINCT, EditKind.LIMIT,
}  # fmt: skip
_OF_VALUES = frozenset(
    {
        EditKind.FILTER, EditKind.HAVING, EditKind.EXPRESSION, EditKind.COLUMN_REMOVED, EditKind.COLUMN_ADDED,
        EditKind.COLUMN_INSERTED, EditKind.COLUMN_ADDED_NOT_NULL, EditKind.COLUMN_TYPE, EditKind.KEY_TYPE,
        EditKind.COLUMN_NOT_NULL, EditKind.COLUMN_NULLABLE, EditKind.WRITTEN_TYPE, EditKind.WRITTEN_TYPE_INTO,
        EditKind.CAST_REMOVED, EditKind.FIELD_NAME,
    }
)  # fmt: skip
OF_COLUMNS = _OF_VALUES - {EditKind.FILTER, EditKind.HAVING} | {EditKind.EXPRESSION_ORDER, EditKind.COLUMN_ORDER}
"""Edits to declared or computed columns."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit to a statement's SQL or settings; `before` is empty for an addition, `after` for a removal."""

    kind: EditKind
    before: str = ""
    after: str = ""
    of: str = ""
    """The edited object: the table of a join, a stateful operator, a setting, or a table option."""
    columns: tuple[str, ...] = ()
    place: EditPlace = EditPlace.QUERY
    table: str = ""
    """For an edit in a statement set, the table of the edited statement; empty otherwise."""

    @property
    def joins(self) -> bool:
        """Whether the edit concerns a join, either in the SQL or in Spark's state."""
        return self.kind in _JOINS or self._of_operator("stream_join")

    @property
    def limits(self) -> bool:
        """Whether the edit concerns a limit, either in the SQL or in Spark's state."""
        return self.kind is EditKind.LIMIT or self._of_operator("limit")

    def _of_operator(self, name: str) -> bool:
        return self.kind in (EditKind.OPERATOR, EditKind.OPERATOR_KEYS, EditKind.MORE_PARTS) and self.of == name

    def changes_operator_definition(self, operator: str) -> bool:
        """True if the edit changes what defines a stateful operator: its join, group keys or compared columns."""
        if operator == "deduplicate":
            return self.kind is EditKind.EXPRESSION
        if operator == "stream_join":
            return self.kind in _JOINS
        return operator in ("aggregate", "window", "session_window") and self.kind is EditKind.GROUP_KEY


class Notice(FactKind):
    """A finding of a plan that is not an edit, such as unknown SQL, Spark's analysis or a lost checkpoint."""

    TEXTS_UNKNOWN = "it changed, and the deployed texts are unknown"
    STATEMENT_UNKNOWN = "the deployed statement is unknown"
    TEXTS_UNREADABLE = "the deployed texts cannot be read"
    FILE_UNREADABLE = "{file} cannot be read: {problem}"
    OLD_TEXT_UNREADABLE = "the old text cannot be read"
    UPGRADE_TEST = "an upgrade test shows that it must not continue from its checkpoint: {shown}"

    WINDOWS_STAY_CLOSED = "windows already closed by the old watermark stay closed; this must be acknowledged"
    OFFSETS_NOT_CARRIED = "offsets of the remaining sources cannot be carried over to a new checkpoint yet"
    NAMES_NEEDED = "Spark can resume only if offsets were tracked by source name from the first start"
    STOPPED_ON_OLD_POOL = "it is stopped on the old pool, and verified to be stopped, before it starts on the new one"
    OLD_POOL_GONE = "it cannot be verified that it is stopped in {pool}, which headgate.yml does not declare as it was"
    BACK_UP_CHECKPOINT = "an older Spark version may not be able to read the checkpoint: back it up first"

    SPARK_DISAGREES = "Spark disagrees: {reading}"
    SPARK_DISAGREES_ON_DEPLOYED = "Spark disagrees on the deployed text: {reading}"
    SPARK_REJECTS = "it rejects the statement: {message}"
    SPARK_REJECTS_AS = "it rejects the statement ({error_class}): {message}"
    SPARK_REJECTS_LINE = "it rejects the statement at line {line} of its SQL: {message}"
    SPARK_REJECTS_LINE_AS = "it rejects the statement at line {line} of its SQL ({error_class}): {message}"
    SPARK_READS = "it reads {theirs}, Headgate found {ours}"
    SPARK_RETURNS = "it returns {theirs} columns, Headgate found {ours}"
    SPARK_NAMES = "it names a column {theirs}, Headgate found {ours}"
    SPARK_KEEPS = "its state is {theirs}, Headgate found {ours}"
    SPARK_RETYPES = "the type of column {column} changed from {before} to {after} in the same table"
    SPARK_WRITES = "Spark reads column {column} as {written}, but the table declares {declared}"
    CONFIRMED = "same meaning, confirmed by Spark"

    OF_TABLE = "{table}: {notice}"
    """A notice about one statement of a set."""

    LOST = "{what}"
    """The agent's sentence about a checkpoint that is lost or belongs to another query."""
    NEVER_RAN = "v{version} never ran, and its texts have changed"
    READS_OLD = "reads {version}; {parent} is at v{serving}"
    ORPHAN_EXISTS = "{version} of run {run} already exists"
    STATE_TAKES_COLUMN = "the added column becomes part of its state"
    PARENT_REWRITTEN = "upstream {parent} is rewritten"
    PARENT_CONTINUES = "upstream {parent} continues in a new version"
    PARENT_RECREATED = "upstream {parent} is re-created"
    STATIC_RECREATED = "static side {parent} is re-created"
    WITH_ITS_SET = "one statement set with {table}"
    STAR_GAINS = "selects * from {parent}, which gains {columns}"
    READS_ADDED = "reads the added column {parent}.{column} at {place}"
    READS_WIDENED = "reads {parent}.{column}, which becomes {type}"
    READS_WIDENED_AT = "reads {parent}.{column}, which becomes {type}, at {place}"
    STATE_WOULD_HOLD = "{use}: its state would hold them"
    STATE_HOLDS_OLD_TYPE = (
        "{use}: its state may hold the wider type, which Spark does not accept with an older checkpoint"
    )
    ENDS_AT_COLUMN = "Spark would end it when {parent} gets a column"
    ENDS_AT_TYPE = "Spark would end it when a column of {parent} takes a wider type"

    BEGINS_NOW = "starts with rows that arrive from now on"
    BEGINS_AT_ARRIVAL = "starts with what has arrived since {at}: nothing earlier is read"
    BEGINS_AT_PARTITION = "starts at partition {at}: WHERE {where}"
    BEGINS_AT = "starts at {at}: WHERE {where}"
    BEGINS_AT_WINDOW = "starts at {at}, the first window start at or after {asked}: WHERE {where}"
    BEGINS_AT_VERSION = "starts with version {at} of {tables}: earlier rows are not replayed"
    BEGINS_AT_COMMIT = "starts with commits to {tables} from {at} on: earlier rows are not replayed"
    NEWEST_OF_KEY = "{begins}; of these, the newest row of each key is kept"
    KEYS_STAY = "rows whose keys the new text does not produce are kept"
    KEYS_KEPT = "its edit removes no keys; rows that an earlier text wrote, or whose input is gone, are kept"
    DELETIONS_STAY = "{rows}; a row that is older than the remembered deletion of its key stays hidden"


Evidence = Edit | Fact[Notice]


def is_of_rows(seen: Evidence) -> bool:
    """True if a piece of evidence is an edit that may change the number of rows."""
    return isinstance(seen, Edit) and (seen.kind in _OF_ROWS or seen.joins or seen.limits)


def reading_order(seen: Evidence) -> int:
    """Return the sort key of evidence in a summary: 0 if it may change the number of rows, 1 for other edits to filters
    or columns, 2 for everything else.
    """
    return 0 if is_of_rows(seen) else 1 if isinstance(seen, Edit) and seen.kind in _OF_VALUES else 2


def in_statement(table: TableName, seen: Evidence) -> Evidence:
    """Attach the table of the affected statement to evidence about a statement set."""
    return replace(seen, table=table) if isinstance(seen, Edit) else Notice.OF_TABLE.of(table=table, notice=seen)


def evidence_from_json(data: Mapping[str, Any]) -> Evidence:
    """Rebuild evidence from its kind and fields; raises KeyError or ValueError for an unknown kind."""
    kind = str(data["kind"])
    if notice := Notice.__members__.get(kind.upper()):
        values = ((name, _value(value)) for name, value in data.items() if name not in ("kind", "sentence"))
        return Fact(notice, tuple(values))
    given = {name: data[name] for name in _TEXTS if name in data}
    place = EditPlace(data.get("place", ""))
    return Edit(EditKind(kind), columns=tuple(data.get("columns", ())), place=place, **given)


_TEXTS = ("before", "after", "of", "table")
_FIELDS = tuple(field.name for field in fields(Edit))


def _value(value: Any) -> object:
    if isinstance(value, dict):
        return evidence_from_json(value)
    return tuple(value) if isinstance(value, list) else value


def edit_as_json(edit: Edit) -> dict[str, object]:
    """Return the non-empty fields of an edit as a JSON object."""
    parts = {name: getattr(edit, name) for name in _FIELDS}
    return {name: list(part) if isinstance(part, tuple) else str(part) for name, part in parts.items() if part}
