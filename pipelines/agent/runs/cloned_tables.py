"""What a version of a table with a log begins with: rows of another one, and the batch that it goes on after.

Its table was made empty. Rows of the other version come as a clone, which names files of that one and copies none; then
its own log says that it has the batch, so that a start compares it with its checkpoint like any other. That is done
last, and tells whoever comes again that all of it was done.
"""

from typing import Any

from core.model.errors import Refused
from core.model.names import query_name
from core.model.table_formats import table_format
from core.ports.storage import Cut, OriginRows, VersionFolders
from core.text.wording import counted
from pipelines.agent.context import WRITE_CALL_S
from pipelines.agent.deployment_compiler import column_types, compile_before
from pipelines.agent.deployment_lifecycle import query_of
from pipelines.agent.runs.open_run import OpenRun
from state.row_types import Deployment

CLONE_CALL_S = 120.0
"""A clone writes the name of each file into one commit."""


def take_rows(run: OpenRun, origin: Deployment, made: Deployment, cut: Cut, rows: OriginRows) -> dict[str, Any]:
    """Make the rows that a version begins with, and return what the registry is to say of it; twice is once."""
    if cut.batch is None:
        return {}
    if _recorded(run, made, cut) is None:
        if rows is not OriginRows.LEFT:
            _clone(run, origin, made, cut.batch, rows)
        run.world.faults.pass_by("fork clone")
        record_cut(run, made, cut)
    clone_of = 0 if rows is OriginRows.LEFT else origin.version
    return {"clone_of": clone_of, "table_id": run.world.files.identity(made.folder, made.format)}


def record_cut(run: OpenRun, made: Deployment, cut: Cut) -> None:
    """Have the table of a version say that it has the batch that its checkpoint goes on after."""
    if cut.batch is None or _recorded(run, made, cut) is not None:
        return
    pool, place = run.world.pool.connection(), table_format(made.format).place_in(made.folder)
    pool.call(WRITE_CALL_S, pool.tables.record_batch, place, cut.id, cut.batch)


def place_before(made: Deployment) -> str:
    """Return where the rows from before a version lie that are served beside it."""
    return table_format(made.format).place_in(VersionFolders(made.folder, made.checkpoint).before)


def _recorded(run: OpenRun, made: Deployment, cut: Cut) -> int | None:
    return run.world.files.sink_batch(made.folder, format=made.format, query=cut.id)


def _clone(run: OpenRun, origin: Deployment, made: Deployment, batch: int, rows: OriginRows) -> None:
    world, layout, format = run.world, run.world.layout, table_format(origin.format)
    name = query_name(origin.table, origin.version)
    version = world.files.written_version(origin.folder, query_of(world, origin), batch)
    if version is None:
        raise Refused(
            f"the log of {name} no longer tells batch {batch} from those after it", remedy="choose another strategy"
        )
    if lost := world.files.lost_files(origin.folder, version):
        # Delta clones names, and looks for no file (4.4.0): what reads the clone would fail.
        raise Refused(
            f"{counted(len(lost), 'file')} of {name} {'is' if len(lost) == 1 else 'are'} not there, such as "
            f"{lost[0]}: neither it nor a clone of it can be read",
            remedy=f"restore them, or headgate plan {origin.table} --rebuild",
        )
    pool, source = world.pool.connection(), format.place_in(origin.folder)
    if rows is OriginRows.BEFORE:
        name, place = layout.before_name(made.table, made.version), place_before(made)
    else:
        name, place = layout.catalog_name(made.table, made.version), table_format(made.format).place_in(made.folder)
    pool.call(CLONE_CALL_S, pool.tables.clone, name, source, version, place)
    # A catalog that was filled since the clone was made does not know it: its id is not that of the empty table.
    pool.call(
        WRITE_CALL_S, pool.tables.create, name, compile_before(origin.texts, made.table, name, place), exists=True
    )
    if rows is OriginRows.INSIDE:
        columns = column_types(made.texts, made.table)
        pool.call(WRITE_CALL_S, pool.tables.add_columns, name, columns)
        pool.call(WRITE_CALL_S, pool.tables.widen_columns, name, columns, format.widening_property)
