"""Verdicts over a plan: what would lose rows is denied whatever the policy says, the rest by figures and policy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.changes.revision_diff import RATE_LIMITS
from core.model.actions import FORKS, Action, StepKind, Strategy
from core.model.names import TableName, physical_name
from core.model.table_formats import table_format
from core.observed.table_statistics import Headroom
from core.plan.model import Guard, PlanNode, PlanRefusal, Step
from core.plan.request import PlanRequest
from core.planner.context import DeclaredTables, ObservedTables
from core.planner.policy_guards import DENY, NEEDS_APPROVAL, OK, WARN, GuardInput, policy_guards
from core.policy.model import Policy
from core.project.model import Table
from core.text.sentence import Sentence


@dataclass(frozen=True, slots=True)
class GuardVerdicts:
    """What the guards say of a plan, and what follows from it."""

    guards: tuple[Guard, ...]

    @property
    def refusals(self) -> tuple[PlanRefusal, ...]:
        """What is denied, with its way out."""
        return tuple(
            PlanRefusal("", g.summary, g.remedy or Sentence(""), g.name) for g in self.guards if g.verdict == DENY
        )

    @property
    def approvals(self) -> int:
        """How many others must approve it: one is enough for all that asks for it."""
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
    """Judge a plan's nodes and steps under a policy; what is declared to be protected is so too."""
    case = GuardInput(declared, observed, request, nodes, steps, _protecting(declared, policy), headroom)
    found = (_checkpoints(case), _views(case), _readers(case), _rates(case), *_in_place(case))
    return GuardVerdicts((*found, *policy_guards(case)))


def _protecting(declared: DeclaredTables, policy: Policy) -> Policy:
    """Add what the files protect to what is recorded: a file can add protection and never take it away."""
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
    """Return what a new checkpoint does to tables, by format: files are skipped, other rows are written again."""
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
    """Deny a rebuild that would lose rows: a watermark closes windows over history read in thin batches.

    What goes on from a checkpoint, or begins, loses them only if much waits, which changes by the minute.
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
    """Deny to mix old and new rows in one table where it, or the whole environment, is protected."""
    wrong = sorted(node.table for node in case.nodes if _is_in_place(node) and case.protects(node.table))
    if wrong:
        words = f"{', '.join(wrong)} would be changed in place but is protected"
        yield Guard.of(
            "in place", DENY, words, "choose no strategy: by default the plan rebuilds beside the old version"
        )


def _is_in_place(node: PlanNode) -> bool:
    return node.strategy == Strategy.KEYED or (node.lowered and node.strategy == Strategy.IN_PLACE)
