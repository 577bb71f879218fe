"""What a pool really does, as lines: who says its state, its executors, its cluster, and its busiest statements."""

from dataclasses import replace

import pytest

from core.model.states import PoolState
from core.observed.cluster_manager import ManagerWord
from core.observed.spark_work import ClusterFigures, Executor, ManagedApplication, ServerHeap, WorkOfPool
from core.planner.pool_load import Load
from core.project.model import Pool
from core.project.resources import Amounts
from state.row_types import PoolRow
from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.pools import pool_columns, pool_facts, pool_row
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import sheet_lines, sheet_text
from tui.presentation.styling.styled_text import Span, Tone, line_width, plain
from tui.presentation.styling.table_layout import header
from tui.presentation.styling.theme import UNICODE
from tui.presentation.view.pools import PoolUse, uses_of_pools

LOOK = RowContext(UNICODE, NOW)
CLUSTER = Pool("cluster", cores=8, memory="4g", master="spark://m:7077", capacity=Amounts(40))
EXECUTORS = (
    Executor("0", "h1", 4, 5, 7_200_000, 720_000, 3_100_000_000),
    Executor("1", "h2", 4, 0, 0, 0),
    Executor("driver", "h0", 0, 0, 0, 0, 900_000_000),
)


def use(state: str = "up", declared: Pool | None = CLUSTER) -> PoolUse:
    (found,) = FakeBackend().pools()
    row = PoolRow(name="cluster", state=PoolState(state), declared=declared, session_id="5e55", generation=3, most=40)
    return replace(found, row=row)


def facts(pool: PoolUse, work: WorkOfPool | None = None, *, no_agent: bool = False) -> list[str]:
    return sheet_text(pool_facts(pool, LOOK, no_agent=no_agent, work=work))


def test_a_pool_on_a_cluster_shows_its_executors_beside_what_the_master_counts() -> None:
    work = WorkOfPool(EXECUTORS, cluster=ClusterFigures("ALIVE", 3, 1, 12, 4, 2))
    assert facts(use(), work)[:9] == [
        "state       up",
        "says        the agent, whose calls it answers",
        "server      cluster  spark://m:7077  8 cores, 4g for each executor",
        "session     5e55  session 3 of this pool",
        "statements  9 wanted running of at most 40  7 running  1 failed",
        "cluster     master ALIVE  3 workers alive, 1 other gone  4 of 12 cores free  2 applications",
        "executors   executor 0 on h1  4 of 4 cores busy  tasks ran 2h  10.0% of it garbage collection  "
        "heap up to 3.1 GB of 4g",
        "            executor 1 on h2  0 of 4 cores busy  tasks ran 0s",
        "            its server  no tasks  heap up to 900 MB",
    ]


def test_the_memory_of_a_server_is_not_known_before_a_collection() -> None:
    shown = facts(use(), WorkOfPool(heap=ServerHeap(0, 699_000_000)))
    assert "memory      699 MB for old objects; its use is not measured yet" in shown


@pytest.mark.parametrize(("live", "tone"), [(350_000_000, Tone.PLAIN), (693_000_000, Tone.BAD)])
def test_the_memory_of_a_server_is_bad_when_little_is_left(live: int, tone: Tone) -> None:
    work = WorkOfPool(heap=ServerHeap(live, 699_000_000))
    (memory,) = (each for each in pool_facts(use(), LOOK, no_agent=False, work=work) if each.name == "memory")
    assert memory.parts == (Span(f"{live // 1_000_000} MB of 699 MB for old objects is in use", tone),)


@pytest.mark.parametrize(
    ("state", "no_agent", "who"),
    [
        ("silent", False, "the agent, whose calls it does not answer"),
        ("degraded", False, "the agent, which asks the master of its cluster, spark://m:7077"),
        ("down", False, "the agent"),
        ("up", True, "the agent, whose last heartbeat is old: it has ended, or is very late"),
    ],
)
def test_it_is_said_who_says_a_state(state: str, no_agent: bool, who: str) -> None:
    assert f"says        {who}" in facts(use(state), no_agent=no_agent)


def test_a_server_of_others_shows_its_application_as_the_manager_of_its_cluster_counts_it() -> None:
    of = ManagedApplication("application_1_0001", "RUNNING", None, 3, 3, 3840)
    yarn = facts(use(), WorkOfPool(EXECUTORS, cluster=ClusterFigures("", 2, 1, 16, 13, 1, of, on_yarn=True)))
    counts = "2 nodes alive, 1 other gone  13 of 16 cores free  1 application"
    uses = "3 containers, 3 cores, 4 GB"
    assert f"cluster     ResourceManager  {counts}  its application application_1_0001 RUNNING  {uses}" in yarn
    of = ManagedApplication("app-1", "RUNNING", cores=2, memory_mib=768)
    of_master = facts(use(), WorkOfPool(EXECUTORS, cluster=ClusterFigures("ALIVE", 1, 0, 2, 0, 1, of)))
    assert of_master[5].endswith("its application app-1 RUNNING  2 cores, 805 MB for each executor")


def test_a_server_of_others_that_does_not_answer_shows_who_says_what_about_it() -> None:
    far = Pool("cluster", "sc://a", yarn_ui="http://rm:8088")
    pool = use("silent", far)
    word = ManagerWord.ENDED.of(manager="the ResourceManager http://rm:8088", application="a_1", state="KILLED", at="T")
    lost = replace(pool, row=replace(pool.row, silent_since=1795900202.0, manager_says=word))
    since = "the agent cannot use it since 2026-11-28 21:10:02 UTC"
    says = "the ResourceManager http://rm:8088 says that its application a_1 is KILLED since T"
    assert f"lost        {since}; {says}" in facts(lost)
    assert not [each for each in facts(pool) if each.startswith("lost")]
    degraded = use("degraded", replace(far, yarn_ui="", master_ui="http://m:8080"))
    assert "says        the agent, which asks the master of its cluster, http://m:8080" in facts(degraded)


def test_a_pool_that_takes_no_new_statements_says_so() -> None:
    pool = use()
    cordoned = replace(pool, row=replace(pool.row, cordoned_at=NOW, cordoned_by="alice", engine="4.2.0"))
    assert "up, cordoned" in plain(pool_row(cordoned, 80))
    shown = facts(cordoned)
    assert [each for each in shown if each.startswith("cordoned    by alice, ")]
    assert "server      cluster  spark://m:7077  8 cores, 4g for each executor  Spark 4.2.0" in shown


def test_what_nobody_could_read_is_not_known() -> None:
    shown = facts(use(), WorkOfPool(unread="no answer within 8 s", cluster_unread="h cannot be read"))
    assert "executors   not known: no answer within 8 s" in shown and "cluster     not known: h cannot be read" in shown
    assert not [each for each in facts(use()) if each.startswith("executors")], "nobody was asked"
    local = facts(use(declared=Pool()), WorkOfPool(EXECUTORS[:1]))
    assert "server      local  2 cores, 2g" in local and not [each for each in local if each.startswith("cluster")]


def test_the_busiest_statements_are_those_whose_batches_take_most_of_their_trigger() -> None:
    backend = FakeBackend()
    backend.change("till", batch_ms=9_000, committed_at=NOW - 2)
    backend.change("clients", batch_ms=9_500, committed_at=NOW - 3600)
    (pool,) = uses_of_pools(backend.current.facts, {}, backend.current.statements)  # type: ignore[arg-type]  # Known.
    found = pool.busiest(NOW)
    assert (found[0][0].table, found[0][1]) == ("till", 1.0)
    assert "clients" not in [line.table for line, _ in found], "its last batch was an hour ago"
    assert "busiest     till@v1  100% busy  9.0 s in a batch, trigger 3 seconds" in facts(pool)


def test_the_list_has_at_80_columns_what_is_used_of_each_capacity_and_no_other_cores_and_memory() -> None:
    large = Pool("large", cores=64, memory="96g", capacity=Amounts(400, 24, 24 * 1024))
    pool = replace(use(declared=large), load=Load(123, 12.35, 20001))
    cordoned = replace(pool, row=replace(pool.row, cordoned_at=NOW))
    assert plain(pool_row(cordoned, 80)).split()[-3:] == ["123/400", "12.35/24", "20001m/24g"]
    assert not {"64", "96g"} & set(plain(pool_row(use(declared=Pool(cores=64, memory="96g")), 80)).split())


@pytest.mark.parametrize("width", [80, 200])
def test_lines_fit(width: int) -> None:
    work = WorkOfPool(EXECUTORS, cluster=ClusterFigures("ALIVE", 3, 1, 12, 4, 2))
    pool = use()
    sheet = sheet_lines(pool_facts(pool, LOOK, no_agent=False, work=work), LOOK, width)
    lines = (header(pool_columns(width), width), pool_row(pool, width), *sheet)
    assert max(map(line_width, lines)) <= width
    assert ("spark://m:7077" in plain(lines[1])) == (width == 200)
