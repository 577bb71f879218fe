"""Migration tickets at a swap: who stays on what is replaced, up to which batch, and until when."""

from collections.abc import Iterator, Mapping

from core.model.names import TableName, physical_name, split_physical
from pipelines.agent.runs.open_run import OpenRun
from pipelines.agent.trash_purge import checked_now
from state.migration_tickets import MigrationTicket

DAY_S = 86400.0


def tickets_of(run: OpenRun, targets: Mapping[TableName, int]) -> tuple[MigrationTicket, ...]:
    """Return a ticket for each statement that stays on the old version, and for each declared reader of the pointer.

    What is deleted is kept for as long as a reader is given to move: `drop_after_d` of the environment.
    """
    # Before a ledger's transaction, in which they are written.
    return tuple(_tickets(run, targets, checked_now(run.world)))


def _tickets(run: OpenRun, targets: Mapping[TableName, int], now: float) -> Iterator[MigrationTicket]:
    world = run.world
    deadline = now + world.layout.environment.drop_after_d * DAY_S

    def ticket(
        table: TableName, old: str, reader: str, *, product: str, owner: str, statement: bool
    ) -> MigrationTicket:
        before = split_physical(old)
        measured = world.ledger.measurement(*before) if before is not None else None
        batch = measured.batch if measured is not None else None
        new = physical_name(table, targets[table])
        return MigrationTicket(run.id, table, reader, product, owner, statement, old, new, batch, now, deadline)

    for left in run.plan.left_behind:
        through = TableName(left.through)
        if left.depth == 1 and through in targets and left.reads != physical_name(through, targets[through]):
            yield ticket(through, left.reads, left.table, product=left.product, owner=left.owner, statement=True)
    for one in run.plan.readers:
        if one.table in targets and split_physical(one.before) and one.before != one.after:
            yield ticket(one.table, one.before, one.reader, product="", owner=one.owner, statement=False)
