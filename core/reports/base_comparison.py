"""The comparison of an overlay with its base, as stored in the ledger, as a report and as Markdown."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from core.model.names import TableName, query_name
from core.run.records import CheckResultRow
from core.text.escaping import escape_markdown
from core.text.markdown_page import COMMENT_LIMIT, MarkdownPage, fenced
from core.text.sentence import Sentence
from core.text.wording import counted
from core.validation.verdicts import BLOCKING, CheckVerdict, OverlayCheck

_TABLE, _LIST, _EXAMPLES = 16_000, 6_000, 24_000
"""Maximum bytes of the table, of each list, and of all examples."""

_MOST_NAMES = 5
"""Maximum number of tables that the verdict names."""

_MOST_EXAMPLES = 3
"""Maximum number of example rows of one check in Markdown."""


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
        """What was found, in one clause."""
        number = counted(len(self.compared), "compared table")
        left = f"; {counted(len(self.skipped), 'table')} not compared" if self.skipped else ""
        if self.unexpected:
            names = ", ".join(table.table for table in self.unexpected[:_MOST_NAMES])
            more = f" and {len(self.unexpected) - _MOST_NAMES} more" if len(self.unexpected) > _MOST_NAMES else ""
            return Sentence(f"unexpected: {names}{more}, of {number}{left}")
        if not any(table.in_overlay for table in self.tables):
            return Sentence(f"no rows were compared, because {self.environment} serves no table yet")
        if not self.compared:
            return Sentence(f"no rows were compared{left}")
        return Sentence(f"nothing unexpected in {number}{left}")


def comparison_of(environment: str, base: str, rows: Iterable[CheckResultRow]) -> BaseComparison | None:
    """Return the comparison that the ledger's rows describe, which must be sorted by table; None without rows."""
    tables = tuple(ComparedTable(table, tuple(found)) for table, found in groupby(rows, key=lambda row: row.table))
    if not tables:
        return None
    return BaseComparison(environment, base, max(table.results[0].at for table in tables), tables)


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
    page.add(f"**{'UNEXPECTED' if found.unexpected else 'OK' if found.compared else 'NOT COMPARED'}** · {end}", "")
    heading = f"| table | change | rows in {base} | rows in {here} | differing rows | explained by | position |"
    rows = [f"| {' | '.join(map(escape_markdown, _cells(table)))} |" for table in found.compared]
    page.add_each(rows, _TABLE, "tables", (heading, "|---|---|--:|--:|--:|---|---|"))
    examples = MarkdownPage(min(_EXAMPLES, page.free))
    left = sum(not examples.add(*lines) for table in found.unexpected for lines in _unexpected(table))
    if left:
        examples.lines += [f"_{counted(left, 'result')} left out; headgate release diff --last shows all of them_", ""]
    if examples.lines:
        page.add("**Unexpected**", "", *examples.lines)
    skipped = [f"- `{table.table}`: {escape_markdown(str(table.not_compared))}" for table in found.skipped]
    page.add_each(skipped, _LIST, "tables", ("**Not compared**", ""))
    for title, tables in ((here, found.only_in_overlay()), (base, found.only_in_base())):
        names = (query_name(table.table, max(table.in_base, table.in_overlay)) for table in tables)
        page.add_each([f"- {escape_markdown(name)}" for name in names], _LIST, "tables", (f"**Only in {title}**", ""))
    return "\n".join(page.lines).rstrip() + "\n"


def _cells(table: ComparedTable) -> tuple[str, ...]:
    change, differences, rows = (table.of(check) for check in (OverlayCheck.CHANGE, "differences", "rows"))
    counts = rows.counts if rows is not None else {}
    versions = f"{table.table} (v{table.in_base} and v{table.in_overlay})"
    return (
        versions,
        change.summary if change is not None else "",
        _number(counts.get("old")),
        _number(counts.get("new")),
        _differing(differences),
        _explained(table, differences),
        _position(table),
    )


def _differing(differences: CheckResultRow | None) -> str:
    if differences is None:
        return "?"
    expected, unexpected = (_whole(differences.counts.get(name)) for name in ("expected", "unexpected"))
    return f"{expected + unexpected:,}" + (f", {unexpected:,} unexpected" if unexpected and expected else "")


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
