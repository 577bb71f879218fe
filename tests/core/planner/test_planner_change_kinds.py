"""Every kind of change in one golden text, by kind of statement, product of the readers, and state.

`fixtures/plans/rows.txt` was checked line by line against core/changes/README.md. To regenerate it: `python -m
tests.core.planner.test_planner_change_kinds > tests/fixtures/plans/rows.txt`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path

from core.changes.kinds import CHANGE_KINDS, ChangeKind
from core.changes.pinned_settings import recorded_pool
from core.model.actions import Strategy
from core.model.names import TableName as T
from core.model.names import physical_name
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project.model import Pool, Project
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of

GOLDEN = Path(__file__).parents[2] / "fixtures" / "plans" / "rows.txt"
ENGINE = "4.2.0"

HEAD = """project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
connectors: {delta: {}}
environments:
  dev: {}
"""
COLUMNS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP"
DDL = {
    "src": f"CREATE TABLE src ({COLUMNS}) USING json",
    "other": f"CREATE TABLE other ({COLUMNS}) USING json",
    "lake": f"CREATE TABLE lake ({COLUMNS}) USING delta",
    "dim": f"CREATE TABLE dim ({COLUMNS}) USING parquet",
    "b": "CREATE TABLE b (k STRING, v BIGINT, ts TIMESTAMP) USING parquet",
    "s": "CREATE TABLE s (k STRING, n BIGINT) USING parquet",
}
DML = {
    "lake": "INSERT INTO lake SELECT id, k, v, ts FROM STREAM other",
    "dim": "INSERT INTO dim SELECT id, k, v, ts FROM STREAM src",
    "b": "INSERT INTO b SELECT k, v, ts FROM STREAM a",
    "s": "INSERT INTO s SELECT k, count(*) AS n FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY k, window(ts, '1 minute')",
}
FREE = "INSERT INTO a SELECT k, v, ts FROM STREAM src"
KEPT = (
    "INSERT INTO a SELECT k, sum(v) AS v, window.end AS ts FROM STREAM src WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
    "GROUP BY k, window(ts, '5 minutes')"
)
BASE = "CREATE TABLE a (k STRING, v BIGINT, ts TIMESTAMP) USING parquet"
GROWN = BASE.replace("ts TIMESTAMP", "ts TIMESTAMP, w BIGINT")
SHORT, WIDE = (f"CREATE TABLE a (k STRING, v {kind}, ts TIMESTAMP) USING delta" for kind in ("INT", "BIGINT"))
UNITED = "{} UNION ALL SELECT k, v, ts FROM STREAM other"
NAMED = "INSERT INTO a SELECT k, v, ts FROM STREAM src IDENTIFIED BY one"


@dataclass(frozen=True)
class Edit:
    """A change of table `a`: its deployed and declared texts, and what is known of its deployment."""

    row: str
    kind: str
    what: str
    old: RevisionTexts
    new: RevisionTexts
    known: dict[str, object] = field(default_factory=dict)
    named: str = "a"


def edits() -> Iterator[Edit]:
    """Yield an edit for every kind of change, and for each kind of statement that can have it."""
    for kind, dml in (("stateless", FREE), ("stateful", KEPT)):
        same = RevisionTexts(BASE, dml)
        yield Edit("0", kind, "nothing", same, same)
        yield Edit("0b", kind, "the checkpoint is gone", same, same, {"checkpoint_ok": False})
        yield Edit("1", kind, "a comment", same, replace(same, dml=f"-- why\n{dml}"))
        yield Edit("2", kind, "another owner", same, replace(same, yml="owner: somebody\n"))
        yield Edit("5", kind, "a column is dropped", replace(same, ddl=GROWN, dml=with_w(dml)), same)
        yield Edit("5", kind, "a column is retyped", same, retyped(same))
        yield Edit("7c", kind, "its source is replaced", same, replace(same, dml=dml.replace("src", "other")))
        yield Edit("8", kind, "partitions", same, replace(same, ddl=f"{BASE} PARTITIONED BY (k)"))
        yield Edit("11a", kind, "another trigger", same, replace(same, yml="trigger: 7 seconds\n"))
        yield Edit("11b", kind, "pinned configuration", same, same, {"pool": PINNED})
        lake = RevisionTexts(BASE, dml.replace("src", "lake"))
        yield Edit("11c", kind, "columns are tracked", lake, replace(lake, yml="schema_tracking: true\n"))
        yield Edit("12", kind, "another pool", same, same, {"pool": Pool("old", "sc://old:15002")})
        yield Edit("13", kind, "another Spark", same, same, {"engine": "4.1.0"})
        yield Edit("14", kind, "its static side is re-created", aside(same), aside(same), named="dim")
        yield Edit("?", kind, "the old texts are not known", same, same, {"deployed": None, "revision": "changed"})
    free, kept = RevisionTexts(BASE, FREE), RevisionTexts(BASE, KEPT)
    yield Edit("3", "stateless", "a filter", free, replace(free, dml=f"{FREE} WHERE v > 3"))
    yield Edit("3", "stateless", "a projection", free, replace(free, dml=FREE.replace("k, v", "upper(k) AS k, v")))
    yield Edit("4", "stateless", "a column is added", free, RevisionTexts(GROWN, with_w(FREE)))
    yield Edit("4", "stateful", "a column is added above the state", kept, RevisionTexts(GROWN, with_w(KEPT)))
    short, summed = (RevisionTexts(SHORT, dml) for dml in (FREE, KEPT))
    yield Edit("4b", "stateless", "a type becomes wider", short, replace(short, ddl=WIDE))
    yield Edit("4b", "stateful", "a type becomes wider above the state", summed, replace(summed, ddl=WIDE))
    yield Edit("6a", "stateful", "sum becomes max", kept, replace(kept, dml=KEPT.replace("sum(", "max(")))
    yield Edit("6a", "stateful", "another window", kept, replace(kept, dml=KEPT.replace("5 min", "10 min")))
    yield Edit("6a", "stateful", "a key is dropped", kept, replace(kept, dml=keyless()))
    yield Edit("6a", "stateless", "it becomes stateful", free, kept)
    yield Edit(
        "6b", "stateful", "a filter before SUM", kept, replace(kept, dml=KEPT.replace(" GROUP", " WHERE v > 3 GROUP"))
    )
    yield Edit("6c", "stateful", "HAVING", kept, replace(kept, dml=f"{KEPT} HAVING sum(v) > 3"))
    yield Edit(
        "6d", "stateful", "the watermark's delay", kept, replace(kept, dml=KEPT.replace("1 MINUTE", "2 MINUTES"))
    )
    yield Edit("7a", "stateless", "a source is added", free, replace(free, dml=UNITED.format(FREE)))
    yield Edit("7a", "stateless", "a source is removed", replace(free, dml=UNITED.format(FREE)), free)
    named = UNITED.format(NAMED) + " IDENTIFIED BY two"
    yield Edit("7b", "stateless", "a named source is added", replace(free, dml=NAMED), replace(free, dml=named))
    yield Edit("9", "stateless", "another key", replace(free, yml="key: [k]\n"), replace(free, yml="key: [k, ts]\n"))


PINNED = Pool(conf=(("spark.sql.streaming.stateStore.providerClass", "before"),))


def with_w(dml: str) -> str:
    return dml.replace(" FROM", ", sum(v) * 2 AS w FROM" if "sum(" in dml else ", v * 2 AS w FROM", 1)


def retyped(texts: RevisionTexts) -> RevisionTexts:
    was = "sum(v)" if "sum(v)" in texts.dml else "v"
    dml = texts.dml.replace(
        f"{was} AS v" if "sum" in was else " v,", f" CAST({was} AS STRING) AS v" + "," * ("sum" not in was)
    )
    return RevisionTexts(BASE.replace("v BIGINT", "v STRING"), dml)


def aside(texts: RevisionTexts) -> RevisionTexts:
    joined = (
        texts.dml.replace("SELECT k", "SELECT src.k").replace("BY k", "BY src.k").replace(" v, ts", " src.v, src.ts")
    )
    joined = joined.replace("sum(v)", "sum(src.v)").replace("window(ts", "window(src.ts")
    at = " GROUP" if " GROUP" in joined else ""
    side = " JOIN dim ON dim.id = src.id"
    return replace(texts, dml=joined.replace(at, side + at) if at else joined + side)


def keyless() -> str:
    return KEPT.replace("SELECT k,", "SELECT 'all' AS k,").replace("BY k, ", "BY ")


@cache
def declared(new: RevisionTexts, foreign: bool) -> Project:
    """Read the project from real texts, with `a` as declared.

    A static side filled by a statement is a Problem today, but is still planned for if an earlier release deployed it.
    """
    if "JOIN dim" not in new.dml:
        return read(new, foreign, DML)
    filled = read(RevisionTexts(BASE, FREE), foreign, DML).tables[T("dim")]
    project = read(new, foreign, {name: dml for name, dml in DML.items() if name != "dim"})
    return replace(project, tables={**project.tables, T("dim"): filled})


def read(new: RevisionTexts, foreign: bool, dmls: Mapping[str, str]) -> Project:
    product = "far" if foreign else "near"
    files = {"headgate.yml": HEAD}
    for name, ddl in {**DDL, "a": new.ddl}.items():
        folder = f"pipelines/facts/{product if name in 'bs' else 'near'}/{name}"
        files[f"{folder}/sql-scripts/ddl.{name}.sql"] = ddl if name in ("a", *dmls) else f"{ddl} LOCATION '{name}'"
        dml = {**dmls, "a": new.dml}.get(name)
        if dml:
            files[f"{folder}/sql-scripts/dml.{name}.sql"] = dml
    if new.yml:
        files["pipelines/facts/near/a/a.yml"] = new.yml
    project, problems = read_project(files, FACTS)
    assert project is not None, [problem.as_json() for problem in problems]
    return project


FACTS = ParseCache()


def planned(edit: Edit, *, foreign: bool, state: State) -> Plan:
    project = declared(edit.new, foreign)
    before = declared(edit.old, foreign)
    pool = recorded_pool(project.environments["dev"].pool)
    observed: dict[T, ObservedDeployment] = {}
    for name, made in before.tables.items():
        texts = revision_of(made).texts
        if made.parsed is None:
            observed[name] = ObservedDeployment(State.RUNNING, deployed=texts)
            continue
        bound = tuple(Binding(r.table, 0 if r.table in ("src", "other") else 1, r.streaming) for r in made.parsed.reads)
        observed[name] = ObservedDeployment(
            State.RUNNING,
            deployed=texts,
            version=1,
            highest_version=1,
            bindings=tuple(sorted(bound, key=lambda b: b.parent)),
            pointer=physical_name(name, 1),
            pool=pool,
            engine=ENGINE,
        )
    stopped = WantedState.STOPPED if state == State.STOPPED else WantedState.RUNNING
    seen = replace(observed[T("a")], state=state, wanted=stopped, **edit.known)  # type: ignore[arg-type]  # By name.
    observed[T("a")] = seen if state != State.ABSENT else ObservedDeployment(highest_version=1)
    request = PlanRequest(tables=(T(edit.named),), rebuild=edit.named != "a")
    return make_plan(project, "dev", observed, request, FACTS, headroom=Headroom(engine=ENGINE))


def outcome(plan: Plan) -> str:
    """Return the effects of a plan in one line, without the state."""
    nodes = {node.table: node for node in plan.nodes}

    def of(name: str) -> str:
        node = nodes.get(T(name))
        return "-" if node is None else " ".join(filter(None, (node.action, node.row, node.strategy)))

    left = ", ".join(f"{found.table} on {found.reads}" for found in plan.left_behind) or "-"
    warned = "; ".join(f"{warned.table}: {warned.summary}" for warned in plan.warnings) or "-"
    refused = "; ".join(refusal.summary for refusal in plan.refusals)
    parts = (of("a"), f"b {of('b')}", f"s {of('s')}", f"left {left}", f"warns {warned}")
    return " | ".join((*parts, f"REFUSES {refused}") if refused else parts)


def lines_of(edit: Edit, *, foreign: bool) -> list[str]:
    """Return one line per set of states with the same outcome; `STATE` stands for each state in the set."""
    found = []
    for state in State:
        said = outcome(planned(edit, foreign=foreign, state=state))
        found.append(
            (said.replace(f"a: is {state};", "a: is STATE;").replace(f"v1 stays {state} ", "v1 stays STATE "), state)
        )
    groups = groupby(sorted(found), key=lambda pair: pair[0])
    return [f"{' '.join(sorted(str(state) for _, state in group))} | {said}" for said, group in groups]


def table() -> Iterator[str]:
    """Yield the lines of every edit; the lines for foreign readers are included only if they differ."""
    yield "# a is planned; b (stateless) and s (stateful) read it, first in the same product, then in a foreign one"
    yield "# states of a | a: action row strategy | b | s | left behind | warnings | refusals"
    order = {edit.row: place for place, edit in enumerate(EDITS)}
    for edit in sorted(EDITS, key=lambda edit: (order[edit.row], edit.kind)):
        near, far = lines_of(edit, foreign=False), lines_of(edit, foreign=True)
        yield f"\n## {edit.row} {edit.kind}: {edit.what}"
        yield from near
        if far != near:
            yield "foreign readers:"
            yield from far


EDITS = tuple(edits())


def test_every_row_does_what_was_reviewed() -> None:
    assert "\n".join(table()) + "\n" == GOLDEN.read_text()


def test_every_kind_of_change_is_tested() -> None:
    assert {edit.row for edit in EDITS} == {facts.code for facts in CHANGE_KINDS} | {"?"}


def test_a_plan_offers_what_the_table_of_kinds_says_may_be_chosen() -> None:
    """Except starts at a time or partition, which depend on the statement, and a chain, as a reader has state."""
    offered: dict[ChangeKind, set[str]] = {}
    for edit in EDITS:
        for node in planned(edit, foreign=False, state=State.RUNNING).nodes:
            if node.table == "a" and node.change is not None and node.classified and node.offers:
                words = {offer.strategy for offer in node.offers} - {node.strategy, Strategy.PARTIAL}
                offered.setdefault(node.change, set()).update(words)
    assert offered == {kind: {*kind.definition.instead} - {Strategy.PARTIAL, Strategy.CHAIN} for kind in offered}
    assert {*ChangeKind} - {*offered} == {
        ChangeKind.NONE, ChangeKind.CHECKPOINT_LOST, ChangeKind.COMMENT_OR_FORMAT, ChangeKind.DESCRIPTION,
        ChangeKind.PINNED_CONFIGURATION,
    }  # fmt: skip


if __name__ == "__main__":
    print("\n".join(table()))
