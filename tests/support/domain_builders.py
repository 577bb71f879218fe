"""Builds domain values in one line: in `project(a="", b="a", c="b x!")`, c streams b and joins x as a static side."""

from collections.abc import Mapping
from typing import Any

from core.changes.classification import Change
from core.model.names import TableName, physical_name
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.descriptions import evidence_words
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Environment, Layer, Project, Script, Settings, Table
from core.project.revision import RevisionTexts
from core.project_reader.revision_reader import revision_of
from core.sql.statement import Column, Operator, ParsedStatement, TableDdl, TableRead

T = TableName


def table(
    name: str,
    reads: str = "",
    *,
    product: str = "p",
    columns: str = "id bigint",
    select: str = "",
    stateful: bool = False,
    unit: str = "",
    settings: Settings | None = None,
    mark: str = "",
) -> Table:
    """Declare a table; without `reads` it is external, `x!` is a static side, and `mark` changes its meaning."""
    found = tuple(TableRead(T(word.rstrip("!")), streaming=not word.endswith("!")) for word in reads.split())
    listed = tuple(_column(text) for text in columns.split(","))
    folder = f"pipelines/facts/{product}/{unit or name}"
    ddl = f"CREATE TABLE {name} ({columns}) USING parquet" + ("" if reads else " LOCATION 'landing'")
    body = select or f"SELECT {', '.join(c.name for c in listed)} FROM {' JOIN '.join(_stream(read) for read in found)}"
    body += f" -- {mark}" if mark else ""
    facts = ParsedStatement(
        writes=T(name),
        select=body,
        reads=found,
        columns=tuple(Column(c.name, c.name, c.type) for c in listed),
        operators=(Operator("aggregate", ("id",), f"count{mark}"),) if stateful else (),
        canonical=f"{sorted(reads.split())} {columns} {mark}",
        state=f"aggregate {mark}" if stateful else "",
        pre="pre",
        post="post" if stateful else "",
    )
    external = not reads
    return Table(
        name=T(name),
        product=product,
        layer=Layer.SOURCE if external else Layer.FACT,
        unit=T(unit or name),
        folder=folder,
        ddl=Script(f"{folder}/sql-scripts/ddl.{name}.sql", ddl),
        parsed_ddl=TableDdl(T(name), listed, "parquet", location="landing" if external else ""),
        dml=None if external else Script(f"{folder}/sql-scripts/dml.{name}.sql", f"INSERT INTO {name}\n{body}"),
        parsed=None if external else facts,
        settings=settings or Settings(),
    )


def project(*tables: Table, protected: bool = False, **reads: str) -> Project:
    """Declare a project of the given tables, and of tables given as name and what they read."""
    every = {t.name: t for t in (*tables, *(table(name, words) for name, words in reads.items()))}
    return Project(
        id="00000000-0000-0000-0000-000000000000",
        name="test",
        default_env="dev",
        environments={"dev": Environment("dev", protected=protected)},
        tables={name: every[name] for name in sorted(every)},
    )


def running(declared: Project, *names: str, **states: str) -> dict[TableName, ObservedDeployment]:
    """Return observed deployments of the named tables (default: all) at version 1; `states` overrides their states."""
    found = {}
    for name in names or declared.tables:
        if states.get(name) == "absent":
            continue
        found[T(name)] = deployed(declared.tables[T(name)], state=states.get(name, "running"))
    return found


def deployed(
    declared: Table, *, version: int = 1, bindings: Mapping[str, int] | None = None, **known: Any
) -> ObservedDeployment:
    """Return an observed deployment of a table's texts; by default its parents are at version 1 (external: 0)."""
    if declared.external:
        return ObservedDeployment(**{"state": "running", "deployed": revision_of(declared).texts, **known})
    reads = declared.parsed.reads if declared.parsed else ()
    given = bindings or {}
    bound = tuple(
        sorted(
            {Binding(r.table, given.get(r.table, 0 if r.table.startswith("src") else 1), r.streaming) for r in reads},
            key=lambda b: b.parent,
        )
    )
    return ObservedDeployment(
        **{
            "state": "running",
            "deployed": revision_of(declared).texts,
            "version": version,
            "highest_version": version,
            "bindings": bound,
            "checkpoint_id": f"{declared.name}-{version}",
            "pointer": physical_name(declared.name, version),
            **known,
        }
    )


def plan(declared: Project, observed: Mapping[TableName, ObservedDeployment], *tables: str, **request: Any) -> Plan:
    """Plan a request for the named tables, or for all tables if none are named."""
    names = tuple(T(name) for name in tables)
    everything = not names and "products" not in request
    return make_plan(declared, "dev", observed, PlanRequest(tables=names, everything=everything, **request))


def steps(found: Plan) -> list[str]:
    """Return the steps of a plan, formatted as `do table@version < after`."""
    return [
        f"{s.do} {'+'.join(s.tables) or f'{s.table}@{s.version}'}"
        + (f" < {','.join(map(str, s.after))}" if s.after else "")
        for s in found.steps
    ]


def actions(found: Plan) -> dict[str, str]:
    """Return the planned action of each table."""
    return {str(node.table): str(node.action) for node in found.nodes}


def _stream(read: TableRead) -> str:
    return f"STREAM {read.table}" if read.streaming else str(read.table)


def _column(text: str) -> Column:
    name, kind, *rest = text.split()
    return Column(name, "", kind, nullable=not rest)


NOTHING = RevisionTexts()


def evidence_of(found: PlanNode | Change) -> tuple[str, ...]:
    """Return the evidence for a node or a change, as sentences."""
    return tuple(map(evidence_words, found.evidence))
