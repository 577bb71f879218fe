"""The slot of an external table over changes: its name, and when the agent advances or drops it."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from ledger_rows import deployment_row, external_row

from core.model.errors import TryAgain
from core.model.names import TableName
from core.project.revision import RevisionTexts
from pipelines.agent.runs.common_positions import why_never_equal
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.tables import replication_slots
from pipelines.agent.tables.replication_slots import SlotUpkeep, holder_of_log, with_slot_address
from pipelines.storage.change_slots import ChangeSlots

OPTIONS = "url 'jdbc:postgresql://db/shop', user 'reader', dbtable 'orders', publication 'headgate'"
DDL = f"CREATE TABLE landed (id BIGINT) USING postgres_changes OPTIONS ({OPTIONS});"
URL = "postgresql://reader@db:5432/shop?slot=headgate_ledger_landed&publication=headgate#public.orders"
READS = RevisionTexts("CREATE TABLE a (id BIGINT) USING parquet;", "INSERT INTO a SELECT id FROM STREAM landed;", "")


@pytest.fixture
def acts(agent: Any, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The operations performed on the slot of a registered external table, whose readers `read_by` deploys."""
    done: list[object] = []

    def advance(slots: ChangeSlots, table: str, url: str, positions: Collection[int | None], *, in_use: bool) -> None:
        done.append((url, sorted(positions, key=str), *(["not in use"] if not in_use else [])))

    monkeypatch.setattr(ChangeSlots, "advance", advance)
    monkeypatch.setattr(replication_slots, "drop_slot", lambda table, url: done.append(f"drop {table}") or True)
    texts = RevisionTexts(DDL, "", "")
    agent.ledger.put_deployment(with_slot_address(agent, external_row(texts=texts, format="postgres_changes")))
    return done


def read_by(agent: Any, monkeypatch: pytest.MonkeyPatch, **positions: int | Exception | None) -> None:
    """Deploy a version of the table `a` for each position."""

    def position(checkpoint: str, ordinal: int) -> int | None:
        found = positions[checkpoint]
        if isinstance(found, Exception):
            raise found
        return found

    for version, checkpoint in enumerate(positions, start=1):
        agent.ledger.put_deployment(deployment_row(version=version, checkpoint=checkpoint, texts=READS))
    monkeypatch.setattr(agent.files, "position", position, raising=False)


def test_the_address_has_the_slot_of_this_ledger_and_keeps_one_that_is_registered(
    agent: Any, acts: list[object]
) -> None:
    registered = agent.ledger.deployment("landed", 0)
    assert registered.folder == URL and "'slot'='headgate_ledger_landed'" in registered.compiled_ddl
    agent.ledger_id = "other"
    assert with_slot_address(agent, registered).folder == URL
    plain = external_row("elsewhere")
    assert with_slot_address(agent, plain) is plain


def test_all_versions_that_read_the_table_decide_together(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(agent, monkeypatch, one=30, two=None, three=20)
    SlotUpkeep(agent).round()
    assert acts == [(URL, [20, 30, None])]


def test_a_slot_whose_readers_are_all_stopped_is_not_kept_in_use(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(agent, monkeypatch, one=30, two=20)
    for version in (1, 2):
        agent.ledger.update_deployment("a", version, state="stopped", wanted="stopped")
    SlotUpkeep(agent).round()
    assert acts == [(URL, [20, 30], "not in use")]


@pytest.mark.parametrize(
    ("changes", "holder"),
    [
        ({"state": "running"}, None),
        ({"state": "stopped", "wanted": "stopped"}, 2),
        ({"state": "failed"}, 2),
        ({"state": "stopped", "checkpoint_ok": False}, 1),
    ],
)
def test_the_version_that_holds_the_log_is_the_slowest_one_without_a_query(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], holder: int | None
) -> None:
    read_by(agent, monkeypatch, one=30, two=20)
    agent.ledger.update_deployment("a", 1, state="stopped", wanted="stopped")
    agent.ledger.update_deployment("a", 2, **changes)
    by_version = {(d.table, d.version): d for d in agent.ledger.deployments()}
    found = holder_of_log(agent, by_version["landed", 0], by_version)
    assert (found.version if found else None) == holder


def test_a_deleted_version_does_not_hold_the_slot(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(agent, monkeypatch, one=30, two=20)
    agent.ledger.tombstone("a", 2, drop_after=1.0, trash="/trash")
    SlotUpkeep(agent).round()
    assert acts == [(URL, [30])]


def test_nothing_moves_while_a_checkpoint_cannot_be_read(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(agent, monkeypatch, one=30, two=TryAgain("not mounted", remedy="mount it"))
    SlotUpkeep(agent).round()
    assert acts == []


def test_a_slot_without_a_reader_is_dropped_once(agent: Any, acts: list[object]) -> None:
    upkeep = SlotUpkeep(agent)
    for _ in range(3):
        upkeep.round()
    assert acts == ["drop landed"]


def test_nothing_moves_while_the_ledger_may_be_an_old_copy(agent: Any, acts: list[object]) -> None:
    class Doubt(type(agent.identity)):  # type: ignore[misc]
        def refuse_doubt(self) -> None:
            raise TryAgain("in doubt", remedy="headgate adopt")

    with pytest.raises(TryAgain):
        SlotUpkeep(replace(agent, identity=Doubt())).round()
    assert acts == []


def test_versions_over_changes_of_a_database_are_never_compared(
    agent: Any, acts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by(agent, monkeypatch, old=5, new=9)
    versions = LedgerVersions(agent.ledger)
    why = why_never_equal(versions, versions.deployed(), (TableName("a"), 1), (TableName("a"), 2))
    assert why == "a@v2 reads the changes of a database (landed), which do not begin at the same place for all versions"
