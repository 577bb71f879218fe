"""The comparison of an overlay with its base, as stored in the ledger, as a report and as Markdown."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from core.model.names import TableName, query_name
from core.run.records import CheckResultRow
from core.text.escaping import escape_markdown
from core.text.markdown_page import COMMENT_LIMIT, MarkdownPage, fenced
from core.text.sentence import Sentence
from core.text.wording import counted
from core.validation.verdicts import BLOCKING, NEVER_COMPARED, CheckVerdict, ColumnLeftOut, OverlayCheck

_TABLE, _LIST, _EXAMPLES = 16_000, 6_000, 24_000
"""Maximum bytes of the table, of each list, and of all examples."""

_MOST_NAMES = 5
"""Maximum number of tables that the verdict names."""

_MOST_EXAMPLES = 3
"""Maximum number of example rows of one check in Markdown."""


@dataclass(frozen=True, slots=True)
class UncomparedColumn:
    """A column of both versions whose values were not compared."""

    name: str
    kind: ColumnLeftOut
    because: str
    """The edit that changes its values, here or upstream, or the call that makes them differ."""


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """The results for one table."""

    table: TableName
    results: tuple[CheckResultRow, ...]
    """At least one, in the order in which they are shown."""

    @property
    def in_base(self) -> int:
        """The version in the base; 0 if only the overlay has the table."""
        return self.results[0].old_version

    @property
    def in_overlay(self) -> int:
        """The version in the overlay; 0 if only the base has the table."""
        return self.results[0].new_version

    @property
    def unexpected(self) -> tuple[CheckResultRow, ...]:
        """The results with a difference that the branch does not explain, and the project's checks that failed."""
        return tuple(result for result in self.results if result.verdict in BLOCKING)

    @property
    def not_compared(self) -> Sentence | None:
        """Why the rows of both versions were not compared; None if they were, or if only one side has the table."""
        skipped = (result for result in self.results if result.verdict == CheckVerdict.SKIPPED)
        found = next((result for result in skipped if result.check != OverlayCheck.PRESENCE), None)
        return None if found is None else Sentence(found.summary)

    @property
    def failed(self) -> bool:
        """True if the rows of both versions should have been compared, and were not."""
        skipped = (each for each in self.results if each.verdict == CheckVerdict.SKIPPED)
        return any(
            each.check != OverlayCheck.PRESENCE and each.counts.get("left_out") not in NEVER_COMPARED
            for each in skipped
        )

    @property
    def columns_left_out(self) -> tuple[UncomparedColumn, ...]:
        """The columns whose values were not compared, in the order of the table; empty if rows could not be paired."""
        differences = self.of("differences")
        found = differences.counts.get("columns_left_out") if differences is not None else None
        columns = found.items() if isinstance(found, dict) else ()
        return tuple(UncomparedColumn(name, ColumnLeftOut(of["kind"]), of["because"]) for name, of in columns)

    @property
    def unpaired(self) -> bool:
        """True if the rows of both versions cannot be paired, so that only counts and totals were compared."""
        differences = self.of("differences")
        return differences is not None and "unpaired" in differences.counts

    @property
    def from_start(self) -> int:
        """Number of differing rows that may differ because one version begins later."""
        differences = self.of("differences")
        return _whole(differences.counts.get("from_start")) if differences is not None else 0

    def of(self, check: str) -> CheckResultRow | None:
        """Return the result of a check; None if the comparison did not make it."""
        return next((result for result in self.results if result.check == check), None)


@dataclass(frozen=True, slots=True)
class BaseComparison:
    """The newest finished comparison of an overlay with its base."""

    environment: str
    base: str
    at: float
    """When it ended, in epoch seconds."""
    tables: tuple[ComparedTable, ...]
    """Sorted by name."""
    since: float | None = None
    """The time from which the overlay reads its sources, in epoch seconds; None for their beginning."""

    @property
    def compared(self) -> tuple[ComparedTable, ...]:
        """The tables whose rows were compared."""
        both = (table for table in self.tables if table.in_base and table.in_overlay)
        return tuple(table for table in both if table.not_compared is None)

    @property
    def skipped(self) -> tuple[ComparedTable, ...]:
        """The tables of both environments whose rows were not compared."""
        return tuple(table for table in self.tables if table.not_compared is not None)

    @property
    def failed(self) -> tuple[ComparedTable, ...]:
        """The tables whose rows should have been compared, and were not."""
        return tuple(table for table in self.tables if table.failed)

    @property
    def passes(self) -> bool:
        """True if no result is unexpected, and every table was compared whose rows can be."""
        return not self.unexpected and not self.failed

    @property
    def whole(self) -> bool:
        """True if all rows and columns of the tables of both environments were compared, from their beginning."""
        partial = any(table.columns_left_out or table.unpaired for table in self.tables)
        return self.since is None and not self.skipped and not partial

    def only(self, table: TableName) -> "BaseComparison | None":
        """Return the comparison of one table; None if the comparison has no such table."""
        found = tuple(each for each in self.tables if each.table == table)
        return replace(self, tables=found) if found else None

    @property
    def unexpected(self) -> tuple[ComparedTable, ...]:
        """The tables with a result that the branch does not explain."""
        return tuple(table for table in self.tables if table.unexpected)

    def only_in_overlay(self) -> tuple[ComparedTable, ...]:
        """Return the tables that the base does not have."""
        return tuple(table for table in self.tables if not table.in_base)

    def only_in_base(self) -> tuple[ComparedTable, ...]:
        """Return the tables of the base that the overlay neither builds nor reads."""
        return tuple(table for table in self.tables if not table.in_overlay)

    @property
    def verdict(self) -> Sentence:
        """What was found, and what was not compared, in one sentence."""
        number = counted(len(self.compared), "compared table")
        left = "".join(f"; {each}" for each in self._left_out())
        if self.unexpected:
            return Sentence(f"unexpected: {_names(self.unexpected)}, of {number}{left}")
        if not any(table.in_overlay for table in self.tables):
            return Sentence(f"no rows were compared, because {self.environment} serves no table yet")
        if not self.compared:
            return Sentence(f"no rows were compared{left}")
        return Sentence(f"nothing unexpected in {number}{left}")

    def _left_out(self) -> Iterator[str]:
        if self.failed:
            yield f"{counted(len(self.failed), 'table')} could not be compared: {_names(self.failed)}"
        never = len(self.skipped) - len(self.failed)
        if never:
            yield f"{counted(never, 'table')} not compared"
        if unpaired := sum(table.unpaired for table in self.compared):
            yield f"rows of {counted(unpaired, 'table')} not paired"
        if columns := sum(len(table.columns_left_out) for table in self.compared):
            yield f"{counted(columns, 'column')} not compared"
        if self.since is not None:
            rows = sum(table.from_start for table in self.compared)
            unchecked = f", which may explain {counted(rows, 'differing row')}" if rows else ""
            yield f"partial: {self.environment} reads its sources since {_utc(self.since)}{unchecked}"


def comparison_of(
    environment: str, base: str, rows: Iterable[CheckResultRow], since: float | None = None
) -> BaseComparison | None:
    """Return the comparison that the ledger's rows describe, which must be sorted by table; None without rows.

    `since` is the time from which the overlay reads its sources, in epoch seconds.
    """
    tables = tuple(ComparedTable(table, tuple(found)) for table, found in groupby(rows, key=lambda row: row.table))
    if not tables:
        return None
    return BaseComparison(environment, base, max(table.results[0].at for table in tables), tables, since)


def watermark_words(result: CheckResultRow) -> str:
    """Return the watermarks of a position as text; empty if neither version has one."""
    sides = (result.counts.get(f"{side}_watermark_ms") for side in ("old", "new"))
    told = [_utc(side / 1000) if isinstance(side, int) and side else "none" for side in sides]
    if told == ["none", "none"]:
        return ""
    return f"watermark {told[0]}" if told[0] == told[1] else f"watermarks {told[0]} and {told[1]}"


def comparison_as_markdown(found: BaseComparison) -> str:
    """Return a comparison as Markdown of at most COMMENT_LIMIT bytes: verdict, tables, examples, what was left out."""
    page = MarkdownPage(COMMENT_LIMIT)
    here, base = escape_markdown(found.environment), escape_markdown(found.base)
    page.add(f"### {here} compared with {base}: {escape_markdown(str(found.verdict))}", "")
    same = ", after the same input" if found.compared else ""
    end = f"compared at {_utc(found.at)}{same}; old: {base}, new: {here}"
    page.add(f"**{_outcome(found)}** · {end}", "")
    heading = f"| table | change | rows in {base} | rows in {here} | differing rows | explained by | position |"
    rows = [f"| {' | '.join(map(escape_markdown, _cells(table)))} |" for table in found.compared]
    page.add_each(rows, _TABLE, "tables", (heading, "|---|---|--:|--:|--:|---|---|"))
    examples = MarkdownPage(min(_EXAMPLES, page.free))
    left = sum(not examples.add(*lines) for table in found.unexpected for lines in _unexpected(table))
    if left:
        examples.lines += [f"_{counted(left, 'result')} left out; headgate release diff --last shows all of them_", ""]
    if examples.lines:
        page.add("**Unexpected**", "", *examples.lines)
    columns = [line for table in found.compared for line in _columns(table)]
    page.add_each(columns, _LIST, "lines", ("**Columns not compared**", ""))
    skipped = [f"- `{table.table}`: {escape_markdown(str(table.not_compared))}" for table in found.skipped]
    page.add_each(skipped, _LIST, "tables", ("**Not compared**", ""))
    for title, tables in ((here, found.only_in_overlay()), (base, found.only_in_base())):
        names = (query_name(table.table, max(table.in_base, table.in_overlay)) for table in tables)
        page.add_each([f"- {escape_markdown(name)}" for name in names], _LIST, "tables", (f"**Only in {title}**", ""))
    return "\n".join(page.lines).rstrip() + "\n"


def _outcome(found: BaseComparison) -> str:
    if found.unexpected:
        return "UNEXPECTED"
    if not found.compared:
        return "NOT COMPARED"
    return "OK" if found.whole else "PARTLY COMPARED"


def _names(tables: Sequence[ComparedTable]) -> str:
    more = f" and {len(tables) - _MOST_NAMES} more" if len(tables) > _MOST_NAMES else ""
    return f"{', '.join(table.table for table in tables[:_MOST_NAMES])}{more}"


def _columns(table: ComparedTable) -> Iterator[str]:
    """Yield a line for each reason for which columns of a table were not compared."""
    by_reason: dict[str, list[str]] = {}
    for column in table.columns_left_out:
        by_reason.setdefault(column.because, []).append(column.name)
    for because, names in by_reason.items():
        yield f"- `{table.table}`: {escape_markdown(', '.join(names))} ({escape_markdown(because)})"


def _cells(table: ComparedTable) -> tuple[str, ...]:
    change, differences, rows = (table.of(check) for check in (OverlayCheck.CHANGE, "differences", "rows"))
    counts = rows.counts if rows is not None else {}
    versions = f"{table.table} (v{table.in_base} and v{table.in_overlay})"
    return (
        versions,
        change.summary if change is not None else "",
        _number(counts.get("old")),
        _number(counts.get("new")),
        _differing(table, differences),
        _explained(table, differences),
        _position(table),
    )


def _differing(table: ComparedTable, differences: CheckResultRow | None) -> str:
    if differences is None or table.unpaired:
        return "?"
    expected, unexpected = (_whole(differences.counts.get(name)) for name in ("expected", "unexpected"))
    left = len(table.columns_left_out)
    words = (
        f"{expected + unexpected:,}",
        f"{unexpected:,} unexpected" if unexpected and expected else "",
        f"{counted(left, 'column')} not compared" if left else "",
    )
    return ", ".join(filter(None, words))


def _explained(table: ComparedTable, differences: CheckResultRow | None) -> str:
    if table.unexpected:
        return "NOT EXPLAINED: " + ", ".join(result.check for result in table.unexpected)
    if differences is None or differences.verdict == CheckVerdict.OK:
        return ""
    return differences.summary


def _position(table: ComparedTable) -> str:
    position = table.of(OverlayCheck.POSITION)
    if position is None or position.old_batch is None or position.old_batch < 0:
        return "no batch"
    batches = f"batches {position.old_batch} and {position.new_batch}"
    return ", ".join(filter(None, (batches, watermark_words(position))))


def _unexpected(table: ComparedTable) -> Iterator[tuple[str, ...]]:
    """Yield the lines of each unexpected result of a table, with examples."""
    for result in table.unexpected:
        rows = [line for example in _examples(result) for line in _example(example)]
        shown = fenced("diff", rows) if rows else ()
        yield (f"- `{table.table}`, {escape_markdown(result.check)}: {escape_markdown(result.summary)}", "", *shown, "")


def _examples(result: CheckResultRow) -> Sequence[Mapping[str, object]]:
    return [example for example in result.examples if not example["why"]][:_MOST_EXAMPLES]


def _example(example: Mapping[str, object]) -> Iterator[str]:
    for sign, side in (("-", "old"), ("+", "new")):
        if example[side] is not None:
            yield f"{sign} {json.dumps(example[side], ensure_ascii=False, default=str)}"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
