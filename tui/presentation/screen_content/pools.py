"""Pools as lines: the list, and what one of them really does. The facts of a pool are also those of `pool show`."""

from collections.abc import Iterator

from core.model.states import PoolState
from core.observed.spark_work import Executor, ManagedApplication, WorkOfPool
from core.project.model import LOCAL, Pool
from core.text.wording import counted
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import SheetFact
from tui.presentation.styling.styled_text import Line, Span, Tone
from tui.presentation.styling.table_layout import TableColumn, table_row
from tui.presentation.styling.value_formatting import clock, long_duration, short_size
from tui.presentation.view.pools import PoolUse

MOST_BUSY = 5
"""Number of the busiest statements that are shown."""

STATE_TONES = {
    PoolState.UP: Tone.GOOD,
    PoolState.STARTING: Tone.CHANGING,
    PoolState.OFF: Tone.DIM,
    PoolState.SILENT: Tone.CHANGING,
}
"""Tones of the states of a pool; any other state is bad."""

_COLUMNS = (
    TableColumn("pool", "POOL", 12),
    TableColumn("state", "STATE", 14),
    TableColumn("wanted", "WANTED", 6, numeric=True),
    TableColumn("running", "RUNNING", 7, numeric=True),
    TableColumn("failed", "FAILED", 6, numeric=True),
    TableColumn("statements", "USED", 7, numeric=True),
    TableColumn("cores", "CORES", 8, numeric=True),
    TableColumn("memory", "MEMORY", 10, numeric=True),
)
_MORE = (TableColumn("kind", "KIND", 7), TableColumn("address", "ADDRESS", 0))
_WIDE = 108


def pool_columns(width: int) -> tuple[TableColumn, ...]:
    """Return the columns of the list that fit."""
    return (*_COLUMNS, *_MORE) if width >= _WIDE else _COLUMNS


def pool_row(use: PoolUse, width: int) -> Line:
    """Render a pool in the list, with what is used of each capacity."""
    row = use.row
    cells = {
        "pool": Span(row.name),
        "state": Span(use.state, STATE_TONES.get(row.state, Tone.BAD)),
        "kind": Span(use.kind, Tone.DIM),
        "wanted": Span(str(use.wanted)),
        "running": Span(str(use.running)),
        "failed": Span(str(use.failed), Tone.BAD if use.failed else Tone.DIM),
        "statements": Span(use.used("statements")),
        "cores": Span(use.used("cores")),
        "memory": Span(use.used("mib")),
        "address": Span(use.address, Tone.DIM),
    }
    return table_row(cells, pool_columns(width), width)


def pool_facts(
    use: PoolUse, look: RowContext, *, no_agent: bool, work: WorkOfPool | None, log: str = "", pid: int | None = None
) -> Iterator[SheetFact]:
    """Yield the facts of a pool, in order. `work` is None if nobody was asked what the pool really does.

    `log` is the path of the log of a server that Headgate starts, and `pid` the process id of one that runs.
    """
    row, declared = use.row, use.row.declared
    tone = Tone.DIM if no_agent else STATE_TONES.get(row.state, Tone.BAD)
    yield SheetFact("state", (Span(row.state, tone), Span(row.detail, tone)))
    yield SheetFact("says", (Span(_who_says(use, no_agent=no_agent), Tone.DIM),))
    if row.loss is not None:
        yield SheetFact("lost", (Span(str(row.loss)),))
    if row.cordoned_at is not None:
        cordon = f"by {row.cordoned_by}, {clock(row.cordoned_at)}: takes no new statements"
        yield SheetFact("cordoned", (Span(cordon, Tone.CHANGING),))
    size = f"{counted(declared.cores, 'core')}, {declared.memory}" if declared and not declared.url else ""
    each = f"{size} for each executor" if declared and declared.master else size
    address = "" if use.kind == LOCAL else use.address
    engine = Span(f"Spark {row.engine}" if row.engine else "")
    of_class = Span(f"class {declared.of_class}" if declared and declared.of_class else "")
    yield SheetFact("server", (Span(use.kind), Span(address), Span(each), engine, of_class))
    if log:
        yield SheetFact("process", (Span(str(pid) if pid is not None else "none"),))
        yield SheetFact("log", (Span(log),))
    began = f"since {clock(row.began_at)}" if row.began_at is not None else ""
    session = (Span(row.session_id), Span(f"session {row.generation} of this pool", Tone.DIM), Span(began, Tone.DIM))
    yield SheetFact("session", session if row.session_id else (Span("none", Tone.DIM),))
    units = (("cores", "cores"), ("mib", "of memory"))
    if used := tuple(f"{load} {unit}" for name, unit in units if (load := use.used(name, of=" of "))):
        yield SheetFact("capacity", (*map(Span, used), Span("what statements need, of what they may need", Tone.DIM)))
    most = use.capacity.statements
    capacity = f" of at most {most}" if most is not None else ""
    failed = Span(f"{use.failed} failed", Tone.BAD if use.failed else Tone.DIM)
    yield SheetFact(
        "statements", (Span(f"{use.wanted} wanted running{capacity}"), Span(f"{use.running} running"), failed)
    )
    if work is not None:
        if cluster := _cluster(work):
            yield SheetFact("cluster", tuple(map(Span, cluster)))
        if work.unread:
            yield SheetFact("executors", (Span(f"not known: {work.unread}", Tone.DIM),))
        if work.heap is not None:
            live, limit = short_size(work.heap.live), f"{short_size(work.heap.limit)} for old objects"
            heap = f"{live} of {limit} is in use" if work.heap.live else f"{limit}; its use is not measured yet"
            yield SheetFact("memory", (Span(heap, Tone.BAD if work.heap.shortage else Tone.PLAIN),))
        for number, executor in enumerate(work.executors):
            yield SheetFact("" if number else "executors", tuple(map(Span, _executor(executor, declared))))
    for number, (line, share) in enumerate(use.busiest(look.now)[:MOST_BUSY]):
        took = f"{(line.batch_ms or 0) / 1000:.1f} s in a batch, trigger {line.trigger}"
        words = (Span(f"{line.table}@v{line.version}"), Span(f"{share:.0%} busy"), Span(took, Tone.DIM))
        yield SheetFact("" if number else "busiest", words)


def _who_says(use: PoolUse, *, no_agent: bool) -> str:
    if no_agent:
        return "the agent, whose last heartbeat is old: it has ended, or is very late"
    match use.row.state:
        case PoolState.UP:
            return "the agent, whose calls it answers"
        case PoolState.SILENT:
            return "the agent, whose calls it does not answer"
        case PoolState.DEGRADED if use.row.declared is not None:
            master = use.row.declared.master or use.row.declared.master_page
            return f"the agent, which asks the master of its cluster, {master}"
        case _:
            return "the agent"


def _cluster(work: WorkOfPool) -> tuple[str, ...]:
    found = work.cluster
    if found is None:
        return (f"not known: {work.cluster_unread}",) if work.cluster_unread else ()
    gone = f", {counted(found.gone, 'other')} gone" if found.gone else ""
    who, node = ("ResourceManager", "node") if found.on_yarn else (f"master {found.status}", "worker")
    return (
        who,
        f"{counted(found.alive, node)} alive{gone}",
        f"{found.free_cores} of {counted(found.cores, 'core')} free",
        counted(found.applications, "application"),
        *(_application(found.application) if found.application is not None else ()),
    )


def _application(found: ManagedApplication) -> tuple[str, ...]:
    memory = short_size(found.memory_mib << 20)
    if found.containers is None:
        uses = f"{counted(found.cores, 'core')}, {memory} for each executor"
    else:
        uses = f"{counted(found.containers, 'container')}, {counted(found.cores, 'core')}, {memory}"
    return f"its application {found.id} {found.state}", uses


def _executor(executor: Executor, declared: Pool | None) -> tuple[str, ...]:
    is_server = executor.id == "driver"
    name = "its server" if is_server else f"executor {executor.id} on {executor.host}"
    share = executor.gc_share
    heap = ""
    if executor.heap_peak is not None:
        runs_tasks = declared is not None and not declared.url and executor.cores
        of = f" of {declared.memory}" if runs_tasks and declared is not None else ""
        heap = f"heap up to {short_size(executor.heap_peak)}{of}"
    if not executor.cores:
        return name, "no tasks", heap
    return (
        name,
        # Spark counts a task that has just ended for some time.
        f"{min(executor.active_tasks, executor.cores)} of {counted(executor.cores, 'core')} busy",
        f"{'up for' if is_server else 'tasks ran'} {long_duration(executor.ran_ms / 1000)}",
        "" if share is None else f"{share:.1%} of it garbage collection",
        heap,
    )
