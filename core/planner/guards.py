"""Verdicts on a plan: loss of rows is always denied; measurements and policy decide the rest, unknown is never good."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from core.changes.revision_diff import RATE_LIMITS
from core.model.actions import FORKS, Action, StepKind, Strategy
from core.model.names import TableName, physical_name
from core.model.table_formats import table_format
from core.observed.table_statistics import Headroom
from core.plan.model import Guard, PlanNode, PlanRefusal, Retention, RetentionKind, Step
from core.plan.request import EARLIEST, PlanRequest
from core.planner.context import DeclaredTables, ObservedTables
from core.policy.model import DISK_FACTOR, Policy
from core.project.model import Table
from core.text.sentence import Sentence
from core.text.wording import counted, long_duration, short_number, short_size

OK, WARN, DENY = "ok", "warn", "deny"
UNKNOWN, NEEDS_APPROVAL = "unknown", "approve"

WHOLE_HISTORY = frozenset({"", Strategy.EARLIEST, Strategy.KEYED})
"""Strategies of a rebuild that read the whole history."""


@dataclass(frozen=True)
class GuardInput:
    """The input of the guards: nodes and steps of a plan, and the state of its environment."""

    declared: DeclaredTables
    observed: ObservedTables
    request: PlanRequest
    nodes: Sequence[PlanNode]
    steps: Sequence[Step]
    policy: Policy
    """The policy in force, with recorded and declared protections."""
    headroom: Headroom

    @cached_property
    def rebuilt(self) -> tuple[PlanNode, ...]:
        """Nodes that get a new version beside the old one."""
        return tuple(n for n in self.nodes if n.action is Action.REBUILD and n.version != n.from_version)

    @cached_property
    def replaying(self) -> tuple[PlanNode, ...]:
        """Nodes that read history: rebuilt ones, and new statements."""
        begun = (Action.REBUILD, Action.START)
        return tuple(node for node in self.nodes if node.action in begun and node.version)

    @cached_property
    def running(self) -> frozenset[TableName]:
        """Statements that run now, in the whole environment."""
        observed = self.observed
        return frozenset(t for t in observed.tables() if observed.is_running(t) and not observed.is_external(t))

    @cached_property
    def queries(self) -> int:
        """Number of queries in the pool: running statements, and older versions that run on."""
        observed = self.observed
        return len(self.running) + sum(len(observed.deployment(table).retained) for table in observed.tables())

    def protects(self, table: TableName) -> bool:
        """Return whether a table must not be changed in place."""
        return self.policy.protected or table in self.policy.protected_tables


@dataclass(frozen=True, slots=True)
class GuardVerdicts:
    """The guards of a plan, and the refusals and approvals that follow from them."""

    guards: tuple[Guard, ...]

    @property
    def refusals(self) -> tuple[PlanRefusal, ...]:
        """Refusals for the denied guards, with their remedies."""
        return tuple(
            PlanRefusal("", g.summary, g.remedy or Sentence(""), g.name) for g in self.guards if g.verdict == DENY
        )

    @property
    def approvals(self) -> int:
        """Number of other logins that must approve: 0, or 1 for any number of reasons."""
        return int(any(guard.verdict == NEEDS_APPROVAL for guard in self.guards))


def judge_plan(
    declared: DeclaredTables,
    observed: ObservedTables,
    request: PlanRequest,
    nodes: Sequence[PlanNode],
    steps: Sequence[Step],
    *,
    policy: Policy,
    headroom: Headroom,
) -> GuardVerdicts:
    """Judge the nodes and steps of a plan under a policy and the declared protections."""
    case = GuardInput(
        declared, observed, request, nodes, steps, policy=_protecting(declared, policy), headroom=headroom
    )
    found = (_checkpoints(case), _views(case), _readers(case), _rates(case), *_in_place(case))
    return GuardVerdicts((*found, *policy_guards(case)))


def _protecting(declared: DeclaredTables, policy: Policy) -> Policy:
    """Return the policy with declared protections added; declarations never remove protection."""
    protected = {table for table, found in declared.tables.items() if found.settings.protect}
    return replace(
        policy,
        protected=policy.protected or declared.environment.protected,
        protected_tables=tuple(sorted({*policy.protected_tables, *protected})),
    )


def _checkpoints(case: GuardInput) -> Guard:
    created = {(step.table, step.version) for step in case.steps if step.do is StepKind.CREATE}
    used = {(node.table, node.from_version) for node in case.nodes if node.from_version}
    wrong = sorted(
        physical_name(step.table, step.version)
        for step in case.steps
        if step.do is StepKind.START
        and ((step.table, step.version) not in created or (step.table, step.version) in used)
    )
    if wrong:
        words = f"a new checkpoint on the existing table {', '.join(wrong)} would {_harm(case, wrong)}"
        return Guard.of("checkpoint", DENY, words, "rebuild it into a new table: --rebuild")
    return Guard.of("checkpoint", OK, "every new checkpoint has a new table")


def _harm(case: GuardInput, physical: list[str]) -> str:
    """Return the harm of a new checkpoint by table format: some skip files, others repeat rows."""
    declared = (case.declared.tables.get(TableName(name.rpartition("__v")[0])) for name in physical)
    repeated = {
        table is not None and table_format(table.parsed_ddl.format).repeated_by_new_checkpoint for table in declared
    }
    return " or ".join(what for what, said in (("lose rows", False), ("write rows twice", True)) if said in repeated)


def _views(case: GuardInput) -> Guard:
    wrong = sorted(
        f"{node.table} reads {binding.parent}"
        for node in case.nodes
        for binding in node.bindings
        if not binding.version and not case.observed.is_external(binding.parent)
    )
    if wrong:
        words = f"a pointer cannot be streamed: {', '.join(wrong)}"
        return Guard.of("views", DENY, words, "deploy the tables it reads in the same plan")
    return Guard.of("views", OK, "every stream reads a table, not a view")


def _readers(case: GuardInput) -> Guard:
    deleted = {node.table for node in case.nodes if node.action is Action.DELETE}
    left = sorted(
        node.table
        for node in case.nodes
        if node.table not in deleted and any(binding.parent in deleted for binding in node.bindings)
    )
    if left:
        words = f"tables would be dropped while they are still read: {', '.join(left)}"
        return Guard.of("readers", DENY, words, f"delete the readers as well: headgate plan delete {' '.join(left)} …")
    return Guard.of("readers", OK, "no table is dropped while it is read")


def _rates(case: GuardInput) -> Guard:
    """Deny a rate-limited rebuild below a watermark, which drops rows while it reads history in small batches.

    A statement that starts or resumes drops rows only if its backlog is large, so that is just a warning.
    """
    limited = [
        node for node in case.nodes if node.action in _READING and _is_limited(case.declared.tables.get(node.table))
    ]
    replayed = (node for node in limited if node.action is Action.REBUILD and node.strategy not in _NO_REPLAY)
    rebuilt = sorted(node.table for node in replayed)
    if rebuilt:
        words = f"{', '.join(rebuilt)}: with a rate limit below a watermark, a replay drops historical rows"
        return Guard.of(
            "rates", DENY, words, "remove the limit from its SQL, rebuild, and restore it with a later plan"
        )
    if limited:
        names = ", ".join(sorted(node.table for node in limited))
        words = f"{names}: if its backlog is large, its rate limit below a watermark drops rows"
        return Guard.of("rates", WARN, words)
    return Guard.of("rates", OK, "no statement with a rate limit below a watermark is rebuilt")


_NO_REPLAY = FORKS | {Strategy.SEEDED}
_READING = frozenset({Action.REBUILD, Action.START, Action.RESUME, Action.RESTART, Action.ROLLBACK, Action.UNDELETE})


def _is_limited(table: Table | None) -> bool:
    if table is None or table.parsed is None:
        return False
    reads = table.parsed.reads
    has_rate = any(key.lower() in RATE_LIMITS for read in reads if read.streaming for key, _ in read.options)
    return has_rate and any(read.watermark for read in reads)


def _in_place(case: GuardInput) -> Iterator[Guard]:
    """Deny mixing old and new rows in a protected table or environment."""
    wrong = sorted(node.table for node in case.nodes if _is_in_place(node) and case.protects(node.table))
    if wrong:
        words = f"{', '.join(wrong)} would be changed in place but is protected"
        yield Guard.of(
            "in place", DENY, words, "choose no strategy: by default the plan rebuilds beside the old version"
        )


def _is_in_place(node: PlanNode) -> bool:
    return node.strategy == Strategy.KEYED or (node.lowered and node.strategy == Strategy.IN_PLACE)


def policy_guards(case: GuardInput) -> tuple[Guard, ...]:
    """Return the guards by measurements and policy in a fixed order; a policy without a rule yields no guard for it."""
    found = (
        _history(case),
        _replay(case),
        _time(case),
        _disk(case),
        _pool(case),
        _stopped(case),
        _approval(case),
        _freeze(case),
    )
    return tuple(guard for guard in found if guard is not None)


def _history(case: GuardInput) -> Guard:
    """Deny a replay whose input files are gone, since their rows would be lost."""
    replayed = [node for node in case.nodes if node.action is Action.REBUILD]
    if not replayed:
        return Guard.of("history", OK, "nothing is replayed")
    short = [f"{node.table}: {_gone(found)}" for node in case.nodes if (found := node.retention) and _is_short(found)]
    if short and case.request.start == EARLIEST:
        return Guard.of("history", WARN, f"{'; '.join(short)}; the request accepts what is left")
    if short:
        remedy = "restore the files, accept what is left with --from earliest, or start later with --from TIME"
        return Guard.of("history", DENY, f"{'; '.join(short)}; a rebuild misses their rows", remedy)
    whole = [node for node in replayed if node.strategy in WHOLE_HISTORY]
    if not whole:
        return Guard.of("history", OK, "everything that is replayed is still available")
    unknown = sum(node.retention is None or node.retention.kind is not RetentionKind.OK for node in whole)
    words = f"{counted(unknown or len(whole), 'rebuild')} from the earliest row"
    if unknown:
        return Guard.of("history", UNKNOWN, f"{words}; how far back that reaches is unknown")
    return Guard.of("history", OK, f"{words}, and no input is missing")


def _is_short(retention: Retention) -> bool:
    return retention.kind is RetentionKind.SHORT


def _gone(retention: Retention) -> str:
    since = f", earliest {retention.earliest}" if retention.earliest else ""
    gone = retention.files_gone
    return f"{counted(gone, 'file')} that it has read no longer {'exists' if gone == 1 else 'exist'}{since}"


def _replay(case: GuardInput) -> Guard | None:
    most = case.policy.max_replay_rows
    if most is None:
        return None
    rows, unknown = _sum(case.replaying, lambda node: node.replay_rows)
    return _bounded(
        Guard.of("replay", OK, _known(f"{short_number(rows)} rows", rows, unknown)),
        unknown=bool(unknown),
        exceeds=rows > most,
        bound=f"{short_number(most)} rows",
        remedy="plan fewer tables at once, or raise max_replay_rows: headgate policy apply",
    )


def _time(case: GuardInput) -> Guard | None:
    """Judge the longest replay: levels are filled in parallel, and a node's time includes that of its parents."""
    if case.policy.max_replay_h is None:
        return None
    seconds = max((node.eta_s for node in case.replaying if node.eta_s is not None), default=0.0)
    unknown = [node.table for node in case.replaying if node.eta_s is None]
    most = case.policy.max_replay_h * 3600
    return _bounded(
        Guard.of("time", OK, _known(long_duration(seconds), seconds, unknown)),
        unknown=bool(unknown),
        exceeds=seconds > most,
        bound=long_duration(most),
        remedy="plan fewer tables at once, or raise max_replay_h: headgate policy apply",
    )


def _disk(case: GuardInput) -> Guard:
    if any(node.action is Action.OPTIMIZE for node in case.nodes):
        return Guard.of("disk", OK, "small files are stored twice until a vacuum")
    if not case.rebuilt:
        return Guard.of("disk", OK, "no table is stored twice")
    needed, unknown = _sum(case.rebuilt, _disk_bytes)
    factor, free = case.policy.disk_factor or DISK_FACTOR, case.headroom.disk_free
    words = f"{counted(len(case.rebuilt), 'table')} stored twice; "
    words += _known(short_size(needed), needed, unknown) if needed or not unknown else "size unknown"
    if needed:
        words += f"; {short_size(free)} free" if free is not None else "; free disk space is unknown"
    return _bounded(
        Guard.of("disk", OK, words),
        unknown=bool(unknown) or free is None,
        exceeds=free is not None and needed * factor > free,
        bound=f"{factor:g} times the estimate is free" if case.policy.disk_factor else None,
        denied=f"{factor:g} times the estimate must be free",
        remedy="free disk space, or plan fewer tables at once",
    )


def _pool(case: GuardInput) -> Guard:
    """Judge the additional statements of a plan; both versions of a rebuild run at once."""
    begun = [node for node in case.nodes if node.version and _begins(node, case)]
    name = case.declared.environment.pool.name
    if not begun:
        return Guard.of("pool", OK, f"no additional statements on {name}")
    more = f"{counted(len(begun), 'additional statement')} on {name}"
    both = " while both versions run" if case.rebuilt else ""
    words = more + both
    most, most_busy, busy = case.policy.max_statements, case.policy.max_busy_percent, case.headroom.busy
    after = case.queries + len(begun)
    if most is not None and after > most:
        remedy = "plan fewer tables at once, or stop what is not needed"
        return Guard.of("pool", DENY, f"{more} would bring it to {after}{both}; the policy allows {most}", remedy)
    cores = case.headroom.cores
    if busy is None or cores is None or not case.running:
        guard = Guard.of("pool", OK, words if most_busy is None else f"{words}; the pool's load is unknown")
        return _bounded(guard, unknown=most_busy is not None, exceeds=False, bound=_percent(most_busy), remedy="")
    then = busy * after / case.queries
    load = f"{words}: load {busy * cores:.1f} → {then * cores:.1f} of {counted(cores, 'core')}"
    return _bounded(
        Guard.of("pool", OK, load) if then <= 1 else Guard.of("pool", WARN, f"{load}, so batches wait for each other"),
        unknown=False,
        exceeds=most_busy is not None and 100 * then > most_busy,
        bound=f"{_percent(most_busy)} of them",
        remedy="plan fewer tables at once, or give the pool more cores",
    )


def _stopped(case: GuardInput) -> Guard | None:
    most = case.policy.max_stopped_percent
    if most is None:
        return None
    ends = (Action.RESTART, Action.STOP, Action.DELETE)
    stopped = sum(node.action in ends and node.table in case.running for node in case.nodes)
    share = 100 * stopped / max(len(case.running), 1)
    return _bounded(
        Guard.of("stopped", OK, f"{counted(stopped, 'running statement')} stopped or restarted"),
        unknown=False,
        exceeds=share > most,
        bound=_percent(most),
        denied=f"{_percent(share)} of the running statements; the policy allows {_percent(most)}",
        remedy="plan fewer tables at once: use --exclude, or plan one product at a time",
    )


def _approval(case: GuardInput) -> Guard | None:
    """Ask for an approval if the policy requires it, a table is protected, or a choice is less than the default."""
    asked, policy = frozenset(case.policy.approve), case.policy
    deleted = [node.table for node in case.nodes if node.action is Action.DELETE]
    rebuilt = [node.table for node in case.nodes if node.action is Action.REBUILD]
    retired = [node.table for node in case.nodes if node.action is Action.RETIRE]
    vacuumed = [node.table for node in case.nodes if node.action is Action.VACUUM]
    why = []
    if "all" in asked and case.steps:
        why.append("the policy requires it for every plan")
    if "delete" in asked and deleted:
        why.append(f"it deletes {_named(deleted)}")
    if "delete" in asked and retired:
        why.append(f"it retires versions of {_named(retired)}")
    if "delete" in asked and vacuumed:
        why.append(f"it deletes files of {_named(vacuumed)}")
    if "rebuild" in asked and rebuilt:
        why.append(f"it rebuilds {_named(rebuilt)}")
    if "swap" in asked and any(step.do is StepKind.SWAP for step in case.steps):
        why.append("it swaps pointers")
    back = [node.table for node in case.nodes if node.action is Action.ROLLBACK]
    if protected := [
        table for table in (*deleted, *rebuilt, *back, *retired, *vacuumed) if table in policy.protected_tables
    ]:
        why.append(f"protected: {_named(sorted(protected))}")
    keeping = [node.table for node in case.nodes if node.lowered and node.strategy == Strategy.KEYED]
    if keeping:
        why.append(f"rows may stay that a rebuild would not produce: {_named(keeping)}")
    if lowered := [node.table for node in case.nodes if node.lowered and node.table not in keeping]:
        why.append(f"less severe than the default: {_named(lowered)}")
    if policy.approve_rows is not None and case.replaying:
        rows, unknown = _sum(case.replaying, lambda node: node.replay_rows)
        if rows > policy.approve_rows:
            why.append(f"more than {short_number(policy.approve_rows)} rows to replay")
        elif unknown:
            why.append("the number of rows it replays is unknown")
    return Guard.of("approval", NEEDS_APPROVAL, f"another login must approve it: {'; '.join(why)}") if why else None


def _freeze(case: GuardInput) -> Guard | None:
    """List the freeze windows; whether one is active is judged when the plan is applied."""
    windows = case.policy.freeze
    return Guard.of("freeze", OK, f"no plan is applied during {', '.join(windows)} (UTC)") if windows else None


def _bounded(guard: Guard, *, unknown: bool, exceeds: bool, bound: str | None, remedy: str, denied: str = "") -> Guard:
    """Return the verdict on a measurement; `bound` is the policy's limit in words, None without one."""
    if exceeds:
        return Guard.of(guard.name, DENY, f"{guard.summary}; {denied or f'the policy allows {bound}'}", remedy)
    if unknown and bound is not None:
        return Guard.of(
            guard.name, NEEDS_APPROVAL, f"{guard.summary}; the policy allows {bound}, so another login must approve it"
        )
    return replace(guard, verdict=UNKNOWN) if unknown else guard


def _begins(node: PlanNode, case: GuardInput) -> bool:
    if node.action is Action.ROLLBACK:
        # A former version may still run.
        return any(step.do is StepKind.RESUME and step.table == node.table for step in case.steps)
    if node.action is Action.UNDELETE or (node.action is Action.REBUILD and node.version != node.from_version):
        return True
    goes_on = (Action.START, Action.RESUME, Action.RESTART, Action.REBUILD)
    return node.action in goes_on and node.table not in case.running


def _disk_bytes(node: PlanNode) -> int | None:
    return node.offers[0].disk_bytes if node.offers else None


def _sum(nodes: Iterable[PlanNode], cost: Callable[[PlanNode], int | None]) -> tuple[int, list[TableName]]:
    """Return the sum of the known values, and the tables whose value is unknown."""
    total, unknown = 0, []
    for node in nodes:
        value = cost(node)
        if value is None:
            unknown.append(node.table)
        else:
            total += value
    return total, unknown


def _known(words: str, value: float, unknown: Sequence[TableName]) -> str:
    if not unknown:
        return words
    return (f"{words} and more" if value else "amount unknown") + f": no table statistics for {_named(unknown)}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} %"


def _named(tables: Sequence[TableName], most: int = 3) -> str:
    """Return a list of tables, shortened after `most`."""
    more = f" and {len(tables) - most} more" if len(tables) > most else ""
    return ", ".join(tables[:most]) + more
