"""Comparing two versions of a table at one position, and running the project's checks over the new one.

Only the files of the batches up to that position are read, not the tables, which go on.
"""

import json
import secrets
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.model.actions import StepKind
from core.model.errors import EngineRefused, TryAgain
from core.model.names import TableName, query_name
from core.observed.aligned_positions import AlignedPair, Version
from core.plan.codec import plan_from_json
from core.ports.spark import FileView
from core.project.model import Settings
from core.project.revision import RevisionTexts
from core.project_files.table_settings import read_settings
from core.run.model import StepState
from core.sql.analysis_safety import unsafe_for_analysis
from core.sql.comparison.row_effects import RowEffect, RowSide
from core.sql.compiler import compile_select
from core.sql.statement_reader import read_any
from core.validation.comparison_queries import (
    ComparedRows,
    differences_query,
    duplicates_query,
    profile_query,
    sampling,
)
from core.validation.expectations import ComparedStatement, Expectation, expected_differences, with_earlier_text
from core.validation.verdicts import (
    BLOCKING,
    CheckResult,
    CheckVerdict,
    differences_result,
    duplicates_result,
    profile_results,
    project_check_result,
    schema_result,
)
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import column_types, parsed_ddl, parsed_statement
from pipelines.agent.deployment_lifecycle import written_batch
from state.row_types import Deployment

COMPARED_S = 300.0
"""Within which a comparison must end."""

MOST_FILES = 20_000
"""Of one version; what has more is not compared."""

EXAMPLES = 3
"""Rows of a project's check that are read."""

MOST_ROWS = 1_000
"""Of an answer: kinds of differences."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VersionPair:
    """Two versions of a table as of one position."""

    old: Deployment
    new: Deployment
    at: AlignedPair


class VersionComparison:
    """One comparison, in a thread of its own: bounded in time, and it only reads."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world
        self._ends_at = time.monotonic() + COMPARED_S
        self._mark = secrets.token_hex(4)

    def compare(self, pair: VersionPair) -> tuple[CheckResult, ...]:
        """Compare rows; raises TryAgain where the time is over, and what the pool says."""
        expected = _expected(self._world, pair)
        old_columns, new_columns = (column_types(each.texts, each.table) for each in (pair.old, pair.new))
        schema = schema_result(old_columns, new_columns, expected)
        files = [self._files(pair.old, pair.at.blue), self._files(pair.new, pair.at.green)]
        if max(map(len, files)) > MOST_FILES:
            why = f"{max(map(len, files)):,} files, of which at most {MOST_FILES:,} are compared"
            return (schema, CheckResult("differences", CheckVerdict.SKIPPED, why))
        names = {name.lower() for name, _ in old_columns}
        both = tuple((name, kind) for name, kind in new_columns if name.lower() in names)
        views = (
            FileView(f"headgate_old_{self._mark}", pair.old.folder, files[0], old_columns, pair.old.format),
            FileView(f"headgate_new_{self._mark}", pair.new.folder, files[1], new_columns, pair.new.format),
        )
        equal = frozenset(name.lower() for name, _ in both) - expected.changed.keys()
        declared = _declared_key(pair.new)
        key = declared if declared and set(declared) <= equal else expected.keys
        # Where rows are paired, one that has become two is named so, whatever its new columns hold.
        told = () if not expected.anything else new_columns
        own = tuple(column for column in told if column[0].lower() not in equal | expected.volatile)
        rows = ComparedRows(views[0].name, views[1].name, both, equal, key, own)
        sides = self._run(profile_query(rows), views)
        counts = [int(side["rows"]) for side in sides] or [0]
        rows = replace(rows, one_in=sampling(min(counts), max(counts)))
        duplicates = duplicates_result(rows, self._run(duplicates_query(rows), views), expected, key == declared != ())
        if expected.anything:
            differences = CheckResult(
                "differences", CheckVerdict.EXPECTED, f"rows cannot be paired: {expected.anything}"
            )
        else:
            found = self._run(differences_query(rows, expected.rows), views)
            differences = differences_result(rows, found, expected.rows, expected)
        doubled = duplicates.verdict in BLOCKING
        profile = profile_results(rows, sides, expected, differences, doubled=doubled)
        return (schema, differences, duplicates, *profile)

    def check(self, new: Deployment, upto: int | None, names: Mapping[TableName, str]) -> tuple[CheckResult, ...]:
        """Run the project's checks over the rows of the new version up to a batch, all that are there without one.

        `names` are the other tables in the catalog. A check that Spark refuses has failed, as one that gives rows.
        """
        batch = written_batch(self._world, new) if upto is None else upto
        files = self._files(new, -1 if batch is None else batch)
        columns = column_types(new.texts, new.table)
        view = FileView(f"headgate_new_{self._mark}", new.folder, files, columns, new.format)
        found = []
        for name, sql in _settings(new).checks:
            statements, _ = read_any(sql, "")
            reads = {read.table for each in statements for read in each.reads}
            if new.table not in reads:
                continue
            if unsafe := unsafe_for_analysis(sql) or _missing(reads, {*names, new.table}):
                found.append(CheckResult(f"check {name}", CheckVerdict.FAILED, unsafe))
                continue
            query = compile_select(statements[0], {**names, new.table: view.name})
            try:
                rows = self._run(query, (view,), most=EXAMPLES)
            except EngineRefused as error:
                words = f"{error.error_class} {' '.join(error.summary.split())}".strip()
                found.append(CheckResult(f"check {name}", CheckVerdict.FAILED, words))
                continue
            found.append(project_check_result(name, tuple(rows[0]) if rows else (), [tuple(r.values()) for r in rows]))
        return tuple(found)

    def _files(self, deployment: Deployment, upto: int) -> tuple[str, ...]:
        found = self._world.files.written_files(deployment.folder, upto)
        if found is None:
            name = query_name(deployment.table, deployment.version)
            raise TryAgain(f"the log of {name} does not say any more what its batch {upto} had written")
        return found

    def _run(self, sql: str, views: Sequence[FileView], *, most: int = MOST_ROWS) -> list[Row]:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TryAgain(f"the comparison did not end within {COMPARED_S:.0f} s")
        pool = self._world.pool.connection()
        columns, rows = pool.call(left, pool.tables.read_files, sql, most, views)
        return [dict(zip(columns, row, strict=True)) for row in rows]


def _settings(deployment: Deployment) -> Settings:
    return read_settings(deployment.texts.yml, f"{deployment.table}.yml", Settings(), [])


def _declared_key(deployment: Deployment) -> tuple[str, ...]:
    return tuple(name.lower() for name in _settings(deployment).key)


def _missing(reads: Iterable[TableName], names: Container[TableName]) -> str:
    gone = sorted(read for read in reads if read not in names)
    return f"it reads {', '.join(gone)}, which does not exist" if gone else ""


def _expected(world: AgentContext, pair: VersionPair) -> Expectation:
    """Return what the release explains in a table, rows included that one side withholds or has dropped."""
    deployed = {(found.table, found.version): found for found in world.ledger.deployments()}
    expected = _of_release(world, deployed, pair.old, pair.new)
    return replace(expected, rows=(*expected.rows, *_withheld(pair), *_dropped(world, deployed, pair)))


def _of_release(
    world: AgentContext, deployed: Mapping[Version, Deployment], old: Deployment, new: Deployment
) -> Expectation:
    """Return what the edits of a table and of all that was rebuilt above it explain."""
    before = {binding.parent: binding.version for binding in old.bindings}
    parents: dict[TableName, Expectation] = {}
    ddls = {}
    for binding in new.bindings:
        now = deployed.get((binding.parent, binding.version))
        was = deployed.get((binding.parent, before.get(binding.parent, binding.version)))
        if now is not None:
            ddls[binding.parent] = parsed_ddl(now)
        if now is not None and was is not None and now.version != was.version:
            parents[binding.parent] = _of_release(world, deployed, was, now)
        elif now is not None and was is not None and binding.parent in before and not binding.streamed:
            parents[binding.parent] = _static_side(world, old, now)
    expected = expected_differences(_statement(old), _statement(new), ddls, parents)
    if old.older_rows:
        words = f"{query_name(old.table, old.version)} holds {old.older_rows}"
        expected = replace(expected, rows=(*expected.rows, *(RowEffect(side, words) for side in RowSide)))
    for texts in _earlier_texts(world, old):
        before_edit = _statement(replace(old, texts=texts))
        expected = with_earlier_text(expected, expected_differences(before_edit, _statement(new), ddls, {}))
    if (old.begins_where, old.begins_after) == (new.begins_where, new.begins_after):
        return expected
    after = f"what follows {old.begins_after}" if old.begins_after else "the beginning"
    name, where = query_name(old.table, old.version), " and ".join(old.begins_where) or after
    begins = tuple(RowEffect(side, f"{name} begins with {where}") for side in RowSide)
    return replace(expected, rows=(*expected.rows, *begins))


def _static_side(world: AgentContext, old: Deployment, side: Deployment) -> Expectation:
    """Return what rows explain that came into a static side after its reader had been started: it has not seen them."""
    found = world.files.contents(side.folder, side.format)
    if found is None or found.newest is None or old.started_at is None or found.newest <= old.started_at:
        return Expectation()
    why = f"it has changed since {query_name(old.table, old.version)} was started"
    return Expectation(rows=tuple(RowEffect(row_side, why) for row_side in RowSide))


def _earlier_texts(world: AgentContext, old: Deployment) -> tuple[RevisionTexts, ...]:
    """Return the other texts that a version ran with, by the plans of the runs that started and restarted it."""
    found: dict[tuple[str, str], RevisionTexts] = {}
    for run in world.ledger.runs_of(old.table):
        began = {StepKind.CREATE, StepKind.RESTART}
        if not any((s.table, s.version, s.state) == (old.table, old.version, StepState.DONE) and s.do in began
                   for s in run.steps):  # fmt: skip
            continue
        kept = world.ledger.plan(run.plan_hash)
        nodes = plan_from_json(json.loads(kept.body)).nodes if kept is not None else ()
        for texts in (node.texts for node in nodes if node.table == old.table and node.texts.dml):
            found.setdefault((texts.ddl, texts.dml), texts)
    found.pop((old.texts.ddl, old.texts.dml), None)
    return tuple(found.values())


def _statement(deployment: Deployment) -> ComparedStatement:
    return ComparedStatement(parsed_statement(deployment), parsed_ddl(deployment))


def _withheld(pair: VersionPair) -> tuple[RowEffect, ...]:
    """Explain rows that one version has emitted already, because its watermark, or one above it, has come farther."""
    at = pair.at
    if at.same_watermarks:
        return ()
    why = "not yet emitted by the other version, whose watermark is behind"
    sides = [RowSide.OLD] if at.blue_watermark_ms > at.green_watermark_ms else [RowSide.NEW]
    if at.blue_watermark_ms == at.green_watermark_ms:
        sides = [RowSide.OLD, RowSide.NEW]
    return tuple(RowEffect(side, why) for side in sides)


def _dropped(world: AgentContext, deployed: Mapping[Version, Deployment], pair: VersionPair) -> tuple[RowEffect, ...]:
    """Explain what the serving version lacks because a watermark has dropped late rows, its own or one above it."""
    measured = {(m.table, m.version): m for m in world.ledger.measurements()}
    open_, seen = [(pair.old.table, pair.old.version)], set()
    while open_:
        version = open_.pop()
        found = deployed.get(version)
        if version in seen or found is None:
            continue
        seen.add(version)
        open_ += [(binding.parent, binding.version) for binding in found.bindings]
    late = sorted(query_name(*version) for version in seen if version in measured
                  and measured[version].dropped_by_watermark)  # fmt: skip
    if not late:
        return ()
    why = f"the watermark of {', '.join(late)} has dropped late rows, which a replay may keep"
    return (RowEffect(RowSide.NEW, why), RowEffect(RowSide.CHANGED, why))
