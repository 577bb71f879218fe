"""A ledger in a folder of its own, and rows with every field filled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.model.names import TableName
from core.observed.versions import Binding, Deployment
from core.project.revision import RevisionTexts
from state.ledger import Ledger, create_or_open
from state.row_types import EnvironmentRow

FACTS = EnvironmentRow(
    ledger_id="9f2c", project_id="0b8e", project="pizzeria", environment="dev", protected=False, agent_pid=None,
    agent_started_at=None, agent_seen_at=None,
)  # fmt: skip


def made(table: str, version: int = 1, **fields: Any) -> Deployment:
    every = dict(
        table=TableName(table), version=version, product="sales", layer="fact", owner="ana", revision=f"rev {table}",
        texts=RevisionTexts("CREATE …", "INSERT …", "trigger: 5 seconds"), compiled="SELECT 'é'",
        compiled_ddl="CREATE …", columns=("id", "at"), format="parquet", folder="/data/t", checkpoint="/data/c",
        checkpoint_id="id-1", trigger="5 seconds", mode="append", stateful=True, wanted="running", state="running",
        state_since=12.25, active=True,
        bindings=(Binding(TableName("orders"), 3, True), Binding(TableName("pizzas"), 0, False)),
        query_id="q", run_id="r", restarts=2, error_class="DIVIDE_BY_ZERO", error="by zero", started_at=13.5,
        created_at=11.0, plan_hash="abcd", drop_after=None, trash="", external=False,
    )  # fmt: skip
    return Deployment(**(every | fields))  # type: ignore[arg-type]  # The fields are given by name.


@pytest.fixture
def facts() -> EnvironmentRow:
    return FACTS


@pytest.fixture
def deployment() -> Callable[..., Deployment]:
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pizzeria-0b8e" / "dev" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with create_or_open(path, FACTS, busy_s=0.2) as opened:
        yield opened
