"""Every compatibility mode, edit and pinned version: verdicts of the planner against readers on real Spark.

A table has served with the columns of three versions, and is planned with those of a fourth. A statement is pinned to
one of the three and reads all of its columns by name, two of them, or a star, with which it writes a table of its own,
on Parquet or on Delta; another reader is an exposure. A verdict is unsafe if the plan is not refused although a reader
that the mode protects fails or gets wrong values, and it is conservative if the plan is refused although all of them
get the right values.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from schema_readers import ZONE, ddl_of, leaves, missing
from version_readers import Rows, VersionReaders, Wanted, declaration, select_of, wanted

from core.changes.schema_compatibility import (
    ColumnConflict,
    Direction,
    Incompatibility,
    ReadResult,
    columns_in,
    conflicts,
)
from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Compatibility, Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of
from core.sql.statement import TableDdl
from pipelines.spark_connect.session import Session
from tests.core.project_reader.test_loader import MANIFEST

BASE = (
    "id BIGINT, a INT, b STRING, m STRING NOT NULL, d DECIMAL(10,2), t TIMESTAMP, s STRUCT<x: INT, y: STRING>, "
    "l ARRAY<STRUCT<x: INT>>, p MAP<STRING, INT>"
)


def edited(was: str, now: str) -> str:
    assert BASE.count(was) == 1, was
    return BASE.replace(was, now)


EDITS = {
    "nothing": BASE,
    "added nullable": f"{BASE}, n DOUBLE",
    "added in the middle": edited("b STRING", "n DOUBLE, b STRING"),
    "added NOT NULL": f"{BASE}, n DOUBLE NOT NULL",
    "removed": edited("b STRING, ", ""),
    "removed NOT NULL": edited("m STRING NOT NULL, ", ""),
    "removed struct": edited("s STRUCT<x: INT, y: STRING>, ", ""),
    "renamed": edited("b STRING", "c STRING"),
    "renamed NOT NULL": edited("m STRING NOT NULL", "k STRING NOT NULL"),
    "in capitals": edited("a INT, b STRING", "A INT, B STRING"),
    "m in capitals": edited("m STRING", "M STRING"),
    "field in capitals": edited("y: STRING", "Y: STRING"),
    "reordered": edited("a INT, b STRING", "b STRING, a INT"),
    "comment": edited("a INT", "a INT COMMENT 'whole'"),
    "widened": edited("a INT", "a BIGINT"),
    "widened to double": edited("a INT", "a DOUBLE"),
    "widened decimal": edited("DECIMAL(10,2)", "DECIMAL(12,2)"),
    "narrowed": edited("id BIGINT", "id INT"),
    "narrowed unnoticed": edited("a INT", "a SMALLINT"),
    "narrowed decimal": edited("DECIMAL(10,2)", "DECIMAL(9,2)"),
    "length limited": edited("b STRING", "b VARCHAR(2)"),
    "changed to a date": edited("a INT", "a DATE"),
    "changed to a string": edited("a INT", "a STRING"),
    "changed to binary": edited("b STRING", "b BINARY"),
    "changed time": edited("t TIMESTAMP", "t TIMESTAMP_NTZ"),
    "now NOT NULL": edited("b STRING", "b STRING NOT NULL"),
    "now nullable": edited("m STRING NOT NULL", "m STRING"),
    "field added": edited("y: STRING", "y: STRING, z: INT"),
    "field added in the middle": edited("x: INT, y", "x: INT, z: INT, y"),
    "field removed": edited(", y: STRING", ""),
    "field renamed": edited("y: STRING", "w: STRING"),
    "field widened": edited("s STRUCT<x: INT", "s STRUCT<x: BIGINT"),
    "field now NOT NULL": edited("y: STRING", "y: STRING NOT NULL"),
    "fields reordered": edited("x: INT, y: STRING", "y: STRING, x: INT"),
    "field of elements added": edited("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: INT, z: INT>>"),
    "elements widened": edited("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: BIGINT>>"),
    "values of a map widened": edited("MAP<STRING, INT>", "MAP<STRING, BIGINT>"),
    "column instead of a struct": edited("s STRUCT<x: INT, y: STRING>", "s STRING"),
}
EARLIER = {
    "parquet": (
        "nothing", "added nullable", "added NOT NULL", "removed", "removed NOT NULL", "widened", "narrowed unnoticed",
        "changed to a date", "now NOT NULL", "field removed", "field added",
    ),
    "delta": ("nothing", "removed", "field added"),
    "kafka": ("nothing", "widened", "m in capitals"),
}  # fmt: skip
"""Edits whose columns the first and second version may have; the third has those before the edit."""
UNCHANGED = ("nothing", "in capitals", "m in capitals", "comment")
"""Edits that change no column of a table for Spark, so that no reader meets anything new."""
CONSERVATIVE_RULES: Mapping[str, set[Incompatibility]] = {
    "parquet": set(),
    "delta": set(),
    # Headgate does not know how messages of another type are read, so it refuses every change of a type.
    "kafka": {Incompatibility.CANNOT_READ},
}
SELECTED = ("all", "few", "star")
"""What a reader selects: each column and field by name, two columns, or a star."""
STAR_INTO_DELTA = "star into Delta"
"""A star whose table is on Delta, which refuses other columns; all other readers write Parquet. It is tried with the
columns before the edit only, because each such reader needs a stream of its own."""
STARS = ("star", STAR_INTO_DELTA)
PINS = {"latest": 3, "previous": 2, "first": 1}


Labels = tuple[str, str, str]
"""The edits that give the columns of the rows and those of the reader, and what the reader selects."""


@dataclass(frozen=True)
class Truth:
    """What readers on Spark got, by the earlier and the next columns."""

    backward: Mapping[tuple[str, str], ReadResult]
    """A reader of all next columns over the earlier rows."""
    forward: Mapping[tuple[str, str], ReadResult]
    """A reader of all earlier columns over the next rows, for which a missing column is NULL."""
    named: Mapping[tuple[str, str, str], ReadResult]
    """A statement that selects earlier columns of the next rows, by what it selects."""


def columns(edit: str, format: str) -> TableDdl:
    options = "kafka OPTIONS ('kafka.bootstrap.servers'='localhost:1', 'topic'='a')"
    return ddl_of(EDITS[edit], options if format == "kafka" else format)


def truth(
    readers: VersionReaders, earlier: tuple[str, ...], edits: tuple[str, ...], *, statements: bool = True
) -> Truth:
    """Return what readers get on Spark; without `statements`, only readers of all columns are started."""
    ddl = {edit: columns(edit, readers.format) for edit in EDITS}
    rows = readers.write({edit: ddl[edit] for edit in EDITS if edit in {*earlier, *edits}})
    back = [(old, new, "backward") for old in earlier for new in edits]
    # A reader of a topic declares the columns itself, so it never names one that it lacks.
    selects = SELECTED if statements and readers.format != "kafka" else ()
    forth = [(new, old, how) for old in earlier for new in edits for how in ("forward", *selects)]
    forth += [(new, "nothing", STAR_INTO_DELTA) for new in edits if selects]
    right: dict[Labels, Rows | None] = {}
    for edit in rows:
        labels = [label for label in (*back, *forth) if label[0] == edit]
        right |= readers.right(ddl[edit], {label: selected(ddl, label) for label in labels})
    tables, refused = read_tables(readers, ddl, (*back, *forth), rows)
    texts = {
        label: task(ddl, label, readers.source(ddl[label[1]], tables[label]), readers.format)
        for label in (*back, *forth)
        if label not in refused
    }
    found = dict.fromkeys(refused, ReadResult.FAILS) | readers.outcomes(texts, right, runs=lambda each: runs(ddl, each))
    return Truth(
        {(old, new): found[old, new, "backward"] for old, new, _ in back},
        {(old, new): found[new, old, "forward"] for old in earlier for new in edits},
        {(old, new, how): found[new, old, how] for new, old, how in forth if how != "forward"},
    )


def read_tables(
    readers: VersionReaders, ddl: Mapping[str, TableDdl], labels: Sequence[Labels], rows: Mapping[str, str]
) -> tuple[dict[Labels, str], set[Labels]]:
    """Return the table that each reader reads, and the readers whose table Spark refuses to alter or to write.

    A reader of Parquet or of messages has declared its own columns, and a Delta table gets the next ones in place. A
    statement with a star is a stream of all rows into its own table, which is then read with that table's columns.
    """
    tables, refused = {label: rows[label[0]] for label in labels}, set[Labels]()
    own = [label for label in labels if readers.format == "parquet" and label[2] in ("backward", "forward")]
    declared = {label: (ddl[label[1]], rows[label[0]]) for label in own}
    for how, format in zip(STARS, ("parquet", "delta"), strict=True):
        stars = [label for label in labels if label[2] == how]
        own_ddl = {edit: replace(ddl[edit], format=format) for edit in EDITS}
        written = readers.stream_into(own_ddl["nothing"], {label[0]: rows[label[0]] for label in stars})
        refused |= {label for label in stars if label[0] not in written}
        done = [label for label in stars if label not in refused]
        tables |= {label: written[label[0]] for label in done}
        # Files of Parquet are the same for each reader, whose own table has only declared other columns.
        declared |= {label: (own_ddl[label[1]], written[label[0]]) for label in done if format == "parquet"}
    tables |= readers.over(declared)
    if readers.format == "delta":
        in_place = [label for label in labels if label[2] == "backward"]
        tables |= readers.copy({label: rows[label[0]] for label in in_place})
        refused |= readers.alter({label: (tables[label], ddl[label[0]], ddl[label[1]]) for label in in_place})
    return tables, refused


def selected(ddl: Mapping[str, TableDdl], label: Labels) -> list[Wanted]:
    """Return what a reader selects, with the types that it expects: its own, or those of the rows for plain names."""
    rows, reader, how = label
    own = how in ("backward", "forward", *STARS) or ddl[reader].format != "parquet"
    found = wanted(ddl[reader], None if own else ddl[rows])
    return [each for each in found if each.leaf.lower() in ("id", "a")] if how == "few" else found


def task(ddl: Mapping[str, TableDdl], label: Labels, table: str, format: str) -> str:
    """Return the SELECT of a reader; a reader of Delta, whose columns have one type, casts what it reads."""
    rows, _, how = label
    there = {leaf.lower() for leaf, _ in leaves(ddl[rows].columns)}
    casts = format == "delta" and how not in STARS
    return select_of(
        [
            missing(each.leaf, each.type)
            if casts and how == "forward" and each.leaf.lower() not in there
            else f"CAST({each.leaf} AS {each.type})"
            if casts
            else each.leaf
            for each in selected(ddl, label)
        ],
        table,
    )


def runs(ddl: Mapping[str, TableDdl], label: Labels) -> bool:
    """Return whether a reader should end without an error, whatever its values, so that it shares a query."""
    rows, reader, how = label
    old, new = (rows, reader) if how == "backward" else (reader, rows)
    direction = Direction.BACKWARD if how == "backward" else Direction.FORWARD
    wanted_leaves = {each.leaf.lower() for each in selected(ddl, label)}
    found = conflicts(columns_in(ddl[old]), columns_in(ddl[new]))
    fails = any(each.direction is direction and each.why.kind is Incompatibility.CANNOT_READ for each in found)
    if how == STAR_INTO_DELTA:
        fails = fails or not {leaf.lower() for leaf, _ in leaves(ddl[rows].columns)} <= wanted_leaves
    names = ddl[reader].format == "parquet" and how in ("all", "few")
    there = {leaf.lower() for leaf, _ in leaves(ddl[rows].columns)}
    resolved = how not in ("all", "few") or wanted_leaves <= there
    return resolved and (names or not fails)


def broken(old: TableDdl, new: TableDdl, direction: Direction) -> list[ColumnConflict]:
    """Return the conflicts that concern every reader."""
    found = conflicts(columns_in(old), columns_in(new))
    return [each for each in found if each.direction is direction and not each.for_its_readers_only]


LINES = ",\n"
CACHE = ParseCache()
SRC = "CREATE TABLE src (id BIGINT) USING json LOCATION 'in'"


@cache
def project(edit: str, yml: str, format: str, select: str = "", using: str = "") -> Project:
    """Return a project in which `a` has the columns of an edit, each on a line of its own, and `b` reads it."""
    ddl, b = columns(edit, format), columns(using or edit, format)
    values = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in ddl.columns)
    found, problems = read_project(
        {
            "headgate.yml": MANIFEST + "connectors: {delta: {}}\n",
            "pipelines/sources/p/src/sql-scripts/ddl.src.sql": SRC,
            "pipelines/facts/p/a/sql-scripts/ddl.a.sql": f"CREATE TABLE a ({declaration(ddl, LINES)}) USING {format}",
            "pipelines/facts/p/a/sql-scripts/dml.a.sql": f"INSERT INTO a SELECT {values} FROM STREAM src",
            "pipelines/facts/p/a/a.yml": yml,
            "pipelines/facts/q/b/sql-scripts/ddl.b.sql": f"CREATE TABLE b ({output(b, select or 'few')}) "
            f"USING {'delta' if select == STAR_INTO_DELTA else 'parquet'}",
            "pipelines/facts/q/b/sql-scripts/dml.b.sql": f"INSERT INTO b {statement(b, select or 'few')}",
        }
    )
    assert found is not None, problems
    return found


def statement(ddl: TableDdl, select: str) -> str:
    """Return what a reader selects from a table, each column on a line of its own."""
    names = [f"{leaf} AS {leaf.replace('.', '_')}" for leaf, _ in leaves(ddl.columns)]
    lines = {"all": ",\n".join(names), "few": "id,\na"} | dict.fromkeys(STARS, "*")
    return f"SELECT {lines[select]}\nFROM STREAM a"


def output(ddl: TableDdl, select: str) -> str:
    """Return the columns of a reader's own table."""
    if select in STARS:
        return declaration(ddl)
    types = {leaf.lower(): kind for leaf, kind in leaves(ddl.columns)}
    names = ("id", "a") if select == "few" else types
    return ", ".join(f"{name.replace('.', '_')} {types[name]}" for name in names)


@dataclass(frozen=True)
class Case:
    """A plan of an edit: the mode, the columns of the first two versions, and the readers."""

    mode: Compatibility
    edit: str
    first: str
    previous: str
    pin: int
    """The version that the statement reads."""
    select: str
    """What the statement selects; `few and exposure` if there is also an exposure."""

    @property
    def versions(self) -> Mapping[int, str]:
        return {1: self.first, 2: self.previous, 3: "nothing"}

    @property
    def statement(self) -> str:
        return self.select.partition(" and ")[0]

    def plan(self, format: str) -> Plan:
        """Return the plan of the edit."""
        outside = "\nreaders: [report]" if "exposure" in self.select else ""
        yml = f"compatibility: {self.mode}{outside}"
        before = project("nothing", yml, format)
        reader = project(self.versions[self.pin], "", format, self.statement)
        now = project(self.edit, yml, format)
        # Comparing long statements takes 0.1 s, and only the columns matter here.
        old = RevisionTexts(texts(before, "a").ddl, texts(now, "a").dml, texts(before, "a").yml)
        replaced = tuple((n, project(self.versions[n], "", format).tables[T("a")].ddl.text) for n in (1, 2))
        observed = {
            T("src"): ObservedDeployment("running"),
            T("a"): replace(deployed(old, 3, Binding(T("src"), 0, True)), replaced_ddl=replaced),
            T("b"): deployed(texts(reader, "b"), 1, Binding(T("a"), self.pin, True)),
        }
        request = PlanRequest(tables=(T("a"),), children="product")
        return make_plan(now, "dev", observed, request, CACHE)

    def broken(self, truth: Truth) -> Iterator[str]:
        """Yield the readers on Spark that the mode protects and that fail or get wrong values."""
        counted = {*self.versions} if self.mode.transitive else {3, self.pin}
        counted = {3} if self.edit in UNCHANGED else counted
        for version in sorted(counted):
            pair = self.versions[version], self.edit
            if self.mode.backward and truth.backward[pair] is not ReadResult.READS:
                yield f"next over v{version}"
            if self.mode.forward and truth.forward[pair] is not ReadResult.READS:
                yield f"v{version} over next"
            if self.mode.forward and version == self.pin and truth.named[*pair, self.statement] is not ReadResult.READS:
                yield f"statement of v{version} over next"
        exposed = truth.named["nothing", self.edit, "all"] is not ReadResult.READS
        if self.mode.forward and "exposure" in self.select and exposed:
            yield "exposure over next"


def deployed(found: RevisionTexts, version: int, binding: Binding) -> ObservedDeployment:
    table = "b" if binding.parent == "a" else "a"
    return ObservedDeployment(
        "running", deployed=found, version=version, highest_version=version, pointer=f"{table}__v{version}",
        bindings=(binding,),
    )  # fmt: skip


def texts(declared: Project, table: str) -> RevisionTexts:
    return revision_of(declared.tables[T(table)]).texts


def refusals(plan: Plan, *kinds: str) -> list[Mapping[str, Any]]:
    return [each.fields for each in plan.refusals if each.kind in kinds]


def cases(format: str) -> Iterator[Case]:
    """Yield every mode, edit, first version and pin; the previous versions and the readers take turns."""
    earlier, selects = EARLIER[format], (*SELECTED, "few and exposure")
    for (m, edit), (n, first) in itertools.product(enumerate(EDITS), enumerate(earlier)):
        previous = earlier[(n + 1 + m) % len(earlier)]
        for mode, pin in itertools.product(Compatibility, PINS.values()):
            yield Case(mode, edit, first, previous, pin, selects[(n + m + pin) % len(selects)])
            if n == 0 and pin in (PINS["latest"], PINS["first"]):
                yield Case(mode, edit, first, previous, pin, STAR_INTO_DELTA)


@dataclass
class Verdicts:
    """Counts of verdicts by mode, edit, pin and kind of verdict, with those that disagree."""

    counts: Counter[tuple[str, str, int, str]] = field(default_factory=Counter)
    unsafe: list[str] = field(default_factory=list)
    conservative: set[tuple[str, str]] = field(default_factory=set)
    """What the statement selects and the refusal, of plans that are refused although every reader runs."""

    def table(self) -> str:
        """Return the counts of each mode and pin, and of each edit in all modes."""
        words = ("agreed", "conservative", "unsafe")
        groups = [(f"{mode} {pin}", (mode, None, n)) for mode in Compatibility for pin, n in PINS.items()]
        groups += [(edit, (None, edit, None)) for edit in EDITS]
        lines = [f"{'':36}{''.join(f'{word:>14}' for word in words)}"]
        for name, group in groups:
            counts = [
                sum(
                    n for (*key, verdict), n in self.counts.items()
                    if verdict == word and all(w in (None, k) for w, k in zip(group, key, strict=True))
                )
                for word in words
            ]  # fmt: skip
            lines.append(f"{name:36}{''.join(f'{count:>14}' for count in counts)}")
        return "\n".join(lines)

    def add(self, case: Case, plan: Plan, broken: Sequence[str]) -> None:
        found = refusals(plan, "incompatible", "star_incompatible")
        verdict = "agreed" if bool(found) == bool(broken) else "conservative" if found else "unsafe"
        self.counts[case.mode, case.edit, case.pin, verdict] += 1
        if verdict == "unsafe":
            self.unsafe.append(f"{case}: {', '.join(broken)}")
        for each in found if verdict == "conservative" else ():
            why = f"{each['direction']} {each['conflict']['kind']}" if "conflict" in each else "star"
            self.conservative.add((case.select, why))


@pytest.fixture
def spark(delta_session: Session) -> Iterator[Any]:
    """A session in a time zone with times that are skipped and repeated."""
    found = delta_session.spark
    zone = found.conf.get("spark.sql.session.timeZone")
    found.conf.set("spark.sql.session.timeZone", ZONE)
    yield found
    found.conf.set("spark.sql.session.timeZone", zone or "UTC")


def rule_verdicts(seen: Truth, format: str) -> tuple[list[str], set[Incompatibility]]:
    """Return what the rules allow although a reader fails, and the conflicts that they find where none does."""
    unsafe, conservative = [], set()
    for direction, pairs in ((Direction.BACKWARD, seen.backward), (Direction.FORWARD, seen.forward)):
        for (old, new), result in pairs.items():
            found = {each.why.kind for each in broken(columns(old, format), columns(new, format), direction)}
            if not found and result is not ReadResult.READS:
                unsafe.append(f"{direction} {old} -> {new}: {result}")
            elif result is ReadResult.READS:
                conservative |= found
    return unsafe, conservative


def plan_verdicts(seen: Truth, format: str, every: int = 1) -> Verdicts:
    found = Verdicts()
    for case in itertools.islice(cases(format), None, None, every):
        plan = case.plan(format)
        names_place_and_readers(case, refusals(plan, "incompatible"), format)
        found.add(case, plan, [*case.broken(seen)])
    return found


def truth_by_rules(format: str) -> Truth:
    """Return what readers would get if the rules are right."""
    ddl = {edit: columns(edit, format) for edit in EDITS}
    pairs = [*itertools.product(EARLIER[format], EDITS)]

    def result(found: object) -> ReadResult:
        return ReadResult.FAILS if found else ReadResult.READS

    return Truth(
        {(old, new): result(broken(ddl[old], ddl[new], Direction.BACKWARD)) for old, new in pairs},
        {(old, new): result(broken(ddl[old], ddl[new], Direction.FORWARD)) for old, new in pairs},
        {(old, new, how): result(not runs(ddl, (new, old, how))) for old, new in pairs for how in (*SELECTED, *STARS)},
    )


def names_place_and_readers(case: Case, refused: Sequence[Mapping[str, Any]], format: str) -> None:
    """Check that each refusal names the column, its line, and the statement with its lines if it reads the column."""
    lines = {column.name.lower(): n for n, column in enumerate(columns(case.edit, format).columns, 1)}
    pinned = columns(case.versions[case.pin], format)
    read = [leaf.partition(".")[0].lower() for leaf, _ in leaves(pinned.columns)]
    read = [name for name in read if name in ("id", "a")] if case.statement == "few" else read
    for each in refused:
        column = each["conflict"]["column"].partition(".")[0].lower()
        assert each["place"] == f"pipelines/facts/p/a/sql-scripts/ddl.a.sql:{lines.get(column, 1)}"
        assert each["mode"] == case.mode and each["direction"] in Direction
        readers = each["read_by"].get("readers", ())
        if f"a__v{case.pin}" not in each["versions"]:
            assert not any(reader.startswith("b") for reader in readers)
        elif column in read:
            at = (
                "1" if case.statement in STARS else ",".join(str(n) for n, name in enumerate(read, 1) if name == column)
            )
            assert f"b (dml.b.sql:{at})" in readers
        if "exposure" in case.select and "a__v3" in each["versions"]:
            assert "report" in readers


def test_plans_apply_the_rules_to_the_versions_that_count_for_a_mode() -> None:
    found = plan_verdicts(truth_by_rules("parquet"), "parquet", every=101)
    assert found.unsafe == [], found.table()
    assert found.conservative == set(), found.table()


@pytest.mark.spark
@pytest.mark.drill
def test_readers_of_parquet_survive_what_the_rules_allow(spark: Any, tmp_path: Path) -> None:
    edits = ("removed", "widened", "narrowed unnoticed")
    seen = truth(VersionReaders(spark, str(tmp_path), "parquet"), ("nothing",), edits, statements=False)
    assert rule_verdicts(seen, "parquet") == ([], set())


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
@pytest.mark.parametrize("format", EARLIER)
def test_no_plan_is_accepted_that_a_protected_reader_does_not_survive(spark: Any, tmp_path: Path, format: str) -> None:
    seen = truth(VersionReaders(spark, str(tmp_path), format), EARLIER[format], tuple(EDITS))
    assert rule_verdicts(seen, format) == ([], CONSERVATIVE_RULES[format])
    if format == "kafka":
        return
    found = plan_verdicts(seen, format)
    print(found.table())
    assert found.unsafe == [], found.table()
    assert found.conservative == set(), found.table()
