"""A real ledger with many statements, written at a steady rate, and the console over it."""

import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from core.ipc.environment_paths import EnvironmentPaths
from core.model.names import TableName
from core.observed.versions import Binding, Deployment, Measurement
from state.ledger import Ledger, create_or_open
from tests.support.ledger_rows import environment_row
from tests.terminal.pizzeria_values import deployment
from tui.project_folder.environment_selection import SelectedEnvironment

LAYERS = ("source", "intermediate", "fact")
TRENDS = ("steady", "draining", "growing", "idle")
PER_PRODUCT = 40


def place_of(home: Path) -> SelectedEnvironment:
    """Return an environment that lives in a folder."""
    where = EnvironmentPaths(home=str(home), socket=str(home / "agent.sock"), owner=os.getuid())
    return SelectedEnvironment(str(home), "pizzeria", "00000000-0000-0000-0000-000000000001", "dev", False, where)


def name_of(index: int) -> TableName:
    return TableName(f"table_{index:05d}")


def row_of(index: int, now: float) -> Deployment:
    """Return one statement's row; each statement reads the one before it in its product."""
    first = index % PER_PRODUCT == 0
    parents = () if first else (Binding(name_of(index - 1), 1, True),)
    row = deployment(name_of(index), f"product_{index // PER_PRODUCT:03d}", LAYERS[index % 3], "running", ())
    return replace(row, version=1, bindings=parents, state_since=now - 90_000.0)


def figures_of(index: int, now: float, lag: int) -> Measurement:
    return Measurement(
        table=name_of(index), version=1, at=now, lag_rows=lag, lag_files=1, lag_bytes=1000, trend=TRENDS[lag % 4],
        rate_rows_s=-1.0, eta_s=float(lag % 600),
        in_rows_s=float(lag % 900), out_rows_s=float(lag % 700), rows_total=lag * 10,
        batch=lag, batch_ms=lag % 3000, committed_at=now,
    )  # fmt: skip


def make(home: Path, statements: int) -> Ledger:
    """Create a ledger with statements and their first measurements."""
    now = time.time()
    facts = environment_row(
        project_id="00000000-0000-0000-0000-000000000001", project="pizzeria", agent_pid=4711, agent_started_at=now,
        agent_seen_at=now,
    )  # fmt: skip
    ledger = create_or_open(home / "ledger.db", facts)
    ledger.put_agent(4711, now)
    ledger.heartbeat(now)
    for index in range(statements):
        ledger.put_deployment(row_of(index, now))
    ledger.put_measurements([figures_of(index, now, index) for index in range(statements)])
    return ledger


def write(ledger: Ledger, chance: random.Random, statements: int, changes: int) -> None:
    """Write one tick: a heartbeat and changed measurements."""
    now = time.time()
    ledger.heartbeat(now)
    chosen = chance.sample(range(statements), changes)
    ledger.put_measurements([figures_of(index, now, chance.randrange(100_000)) for index in chosen])


def open_over(home: Path) -> int:
    """Run the console over a folder's ledger."""
    from tui.presentation.screen_content.screen_frame import ConsoleIdentity
    from tui.screens.backend import ConsoleBackend
    from tui.screens.startup import run_console
    from tui.services.environment_service import EnvironmentService

    service = EnvironmentService(place_of(home), {})
    return run_console(
        ConsoleIdentity("pizzeria", "dev", protected=False, user="alice"),
        service.last_known,
        lambda: ConsoleBackend(service),
    )


if __name__ == "__main__":
    sys.exit(open_over(Path(sys.argv[1])))
