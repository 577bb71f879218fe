"""Tables with ids: registered at their location; refused, or their statement stopped, if another table has replaced
them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import put_made
from ledger_rows import deployment_row

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.states import State, TableFaultKind
from core.observed.versions import Binding
from core.ports.storage import TableFault
from core.project.revision import RevisionTexts
from pipelines.agent.pool.pool_catalog import register_together
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.statements.changed_tables import BY_HAND, ChangedTables
from pipelines.agent.statements.deployment_lifecycle import check_checkpoint
from pipelines.agent.tables.table_identities import fault_of_tables, register_again
from state.emergency_journal import EmergencyJournal
from state.planner_input_from_registry import observe

DELETES = RevisionTexts(
    "CREATE TABLE t (id BIGINT, at BIGINT, gone BOOLEAN) USING delta;",
    "INSERT INTO t SELECT id, at, gone FROM STREAM s;",
    "mode: upsert\nkey: [id]\nsequence: at\ndeletes: gone\n",
)


def on_delta(agent: Any, **more: Any) -> Any:
    """Register a running version of a table on Delta, whose table and checkpoint exist."""
    found = deployment_row("t", format="delta", table_id="id-1", **more)
    agent.ledger.put_deployment(found)
    agent.files.folders |= {found.folder: {"run": ""}, found.checkpoint: {"run": ""}}
    agent.files.ids[found.folder] = "id-1"
    return found


def test_a_table_that_is_gone_is_not_registered_as_an_empty_one(agent: Any) -> None:
    found = on_delta(agent)
    register_again(agent, agent.pools.default.connection(), found)
    assert list(agent.pools.default.client.tables) == ["t__v1"]
    del agent.files.ids[found.folder]
    with pytest.raises(Refused, match=f"the table of t@v1 is gone: there is no folder {found.folder}"):
        register_again(agent, agent.pools.default.connection(), found)


def test_a_replaced_table_is_not_registered_together_with_others(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, mine = agent.pools.default.client, on_delta(agent)
    for name in ("replaced", "unmounted"):
        agent.ledger.put_deployment(replace(mine, table=TableName(name), folder=f"/t/{name}"))
    agent.files.ids["/t/replaced"] = "id-2"
    identity = agent.files.identity

    def mounted(folder: str, format: str) -> str:
        if folder == "/t/unmounted":
            raise TryAgain("/t is not there", remedy="mount it")
        return str(identity(folder, format))

    monkeypatch.setattr(agent.files, "identity", mounted)
    deployments = agent.ledger.deployments()
    assert register_together(agent, pool.connection(), deployments) == {(mine.table, mine.version)}
    assert list(pool.tables) == ["t__v1"]
    assert register_together(agent, pool.connection(), deployments[:0]) == set()


def test_a_start_over_a_different_table_is_refused_with_the_reason(agent: Any) -> None:
    found = on_delta(agent)
    check_checkpoint(agent, found)
    agent.files.ids[found.folder] = "id-2"
    with pytest.raises(Refused, match="the table of t@v1 was re-created: its id is id-2 and was id-1") as refused:
        check_checkpoint(agent, found)
    assert "--rebuild" in refused.value.remedy


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_replaced_table_of_a_statement_at_rest_is_noticed_so_plans_do_not_resume_it(
    state: str, agent: Any, tmp_path: Path
) -> None:
    found = on_delta(agent, wanted="stopped" if state == "stopped" else "running", state=state)
    reconciler = Reconciler(agent, EmergencyJournal(tmp_path / "emergency"))

    def is_ok() -> bool:
        reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())
        return bool(agent.ledger.deployment(TableName("t"), 1).checkpoint_ok)

    assert is_ok()
    agent.files.ids[found.folder] = "id-2"
    assert not is_ok() and not is_ok()
    (told,) = [event for event in agent.ledger.events_of(TableName("t"), "state") if "could not" in event.summary]
    why = "the table of t@v1 was re-created: its id is id-2 and was id-1"
    assert why in told.detail and agent.ledger.deployment(TableName("t"), 1).lost == why
    agent.files.ids[found.folder] = "id-1"
    assert is_ok(), "its folder was restored"
    assert agent.ledger.deployment(TableName("t"), 1).lost == ""


def test_a_column_lost_from_a_table_is_reported_before_a_start_and_while_it_is_written(agent: Any) -> None:
    found = on_delta(agent)
    agent.files.types[found.folder] = {"ID": "bigint", "more": "int"}
    check_checkpoint(agent, found)
    agent.files.types[found.folder] = {"key": "bigint"}
    why = "it was renamed or dropped by hand, and a new name can be taken back"
    words = f"the table of t@v1 has no column id any more: {why}"
    with pytest.raises(Refused, match=words):
        check_checkpoint(agent, found)
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert (after.state, after.error_class) == (
        State.FAILED,
        TableFaultKind.COLUMNS_CHANGED,
    ) and after.error.startswith(words)


def test_a_statement_whose_table_is_replaced_is_stopped_with_the_reason(agent: Any) -> None:
    found = on_delta(agent)
    ChangedTables(agent).round()
    assert agent.ledger.deployment(TableName("t"), 1).state == State.RUNNING
    agent.files.ids[found.folder] = "id-2"
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert (after.state, after.error_class) == (State.FAILED, TableFaultKind.REPLACED)
    why = "the table of t@v1 was re-created: its id is id-2 and was id-1"
    assert after.error == f"{why}; headgate plan t --rebuild, or restore its folder from a backup"


@pytest.mark.parametrize(
    "since",
    [{"wanted": "stopped", "state": "stopped"}, {"drop_after": 9.0}, {"table_id": "id-2"}],
    ids=["stopped", "deleted", "given another table by a run"],
)
def test_a_statement_stopped_or_rebound_meanwhile_is_not_reported_as_replaced(
    since: dict[str, Any], agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_delta(agent)
    looks: list[str] = []

    def identity(folder: str, format: str) -> str:
        looks.append(folder)
        if len(looks) == 1:
            agent.ledger.update_deployment(TableName("t"), 1, **since)
        return "id-2"

    monkeypatch.setattr(agent.files, "identity", identity)
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert after.state == since.get("state", State.RUNNING) and not after.error
    assert not agent.ledger.events_of(TableName("t"), "exception")


def test_a_replaced_source_is_named_with_its_readers(agent: Any) -> None:
    parent = on_delta(agent)
    texts = RevisionTexts("CREATE TABLE c (id BIGINT) USING delta;", "INSERT INTO c SELECT id FROM STREAM t;", "")
    reads = (Binding(TableName("t"), 1, True),)
    child = deployment_row("c", version=2, revision="rc", format="delta", table_id="id-c", texts=texts, bindings=reads)
    agent.ledger.put_deployment(child)
    agent.files.ids[child.folder] = "id-c"
    agent.files.others[child.checkpoint] = (
        TableName("t"),
        TableFault(TableFaultKind.REPLACED, "was re-created: its id is y, and what was read had x"),
    )
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("c"), 2)
    why = "t__v1, which c@v2 reads, was re-created: its id is y, and what was read had x"
    assert after.error == f"{why}; headgate plan c --rebuild, or restore its folder from a backup"
    assert agent.ledger.deployment(TableName("t"), 1).state == State.RUNNING, parent


@pytest.mark.parametrize(
    ("select", "there", "lost"),
    [
        ("SELECT p.id, t.name FROM STREAM p JOIN t ON t.id = p.id", {"id": "bigint", "label": "string"}, "name"),
        ("SELECT p.id, t.* FROM STREAM p JOIN t ON t.id = p.id", {"id": "bigint"}, "name"),
        ("SELECT p.id FROM STREAM p JOIN t ON t.id = p.id", {"id": "bigint"}, ""),
        ("SELECT p.id, t.name FROM STREAM p JOIN t ON t.id = p.id", {"ID": "bigint", "Name": "string", "x": "int"}, ""),
    ],
    ids=["renamed", "dropped under a star", "not read", "all there"],
)
def test_a_column_lost_from_a_static_side_is_reported_to_its_readers(
    select: str, there: dict[str, str], lost: str, agent: Any
) -> None:
    side = on_delta(agent, columns=("id", "name"))
    texts = RevisionTexts("CREATE TABLE c (id BIGINT) USING parquet;", f"INSERT INTO c {select};", "")
    reads = (Binding(TableName("p"), 1, True), Binding(TableName("t"), 1, False))
    child = deployment_row("c", revision="rc", texts=texts, bindings=reads)
    agent.ledger.put_deployment(child)
    agent.files.folders |= {child.folder: {"run": ""}, child.checkpoint: {"run": ""}}
    check_checkpoint(agent, child)
    agent.files.types[side.folder] = there
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("c"), 1)
    if not lost:
        check_checkpoint(agent, child)
        assert after.state == State.RUNNING
        return
    words = "t__v1, a static side of c@v1, has no column name any more: it was renamed or dropped by hand"
    with pytest.raises(Refused, match=words):
        check_checkpoint(agent, child)
    assert (after.state, after.error_class) == (
        State.FAILED,
        TableFaultKind.COLUMNS_CHANGED,
    ) and after.error.startswith(words)


def test_a_lost_column_of_a_stream_hides_no_fault_of_another_input(agent: Any) -> None:
    side = on_delta(agent, columns=("id", "name"))
    select = "SELECT p.id, t.name FROM STREAM p JOIN t ON t.id = p.id"
    texts = RevisionTexts("CREATE TABLE c (id BIGINT) USING parquet;", f"INSERT INTO c {select};", "")
    parent = deployment_row("p", revision="rp", format="delta", table_id="id-p")
    reads = (Binding(TableName("p"), 1, True), Binding(TableName("t"), 1, False))
    child = deployment_row("c", revision="rc", texts=texts, bindings=reads)
    put_made(agent, parent)
    put_made(agent, child)
    kind = TableFaultKind.STREAM_COLUMNS_CHANGED
    agent.files.others[child.checkpoint] = (TableName("p"), TableFault(kind, "has changed since version 3"))
    found = fault_of_tables(agent, child)
    assert found is not None and found.kind is kind
    agent.files.types[side.folder] = {"id": "bigint"}
    found = fault_of_tables(agent, child)
    assert found is not None and found.kind is TableFaultKind.COLUMNS_CHANGED


def test_a_column_dropped_behind_a_stream_is_recorded_as_survivable_by_tracking(agent: Any, tmp_path: Path) -> None:
    on_delta(agent)
    texts = RevisionTexts("CREATE TABLE c (id BIGINT) USING delta;", "INSERT INTO c SELECT id FROM STREAM t;", "")
    reads = (Binding(TableName("t"), 1, True),)
    child = deployment_row("c", revision="rc", format="delta", table_id="id-c", texts=texts, bindings=reads)
    put_made(agent, child)
    agent.files.ids[child.folder] = "id-c"
    kind = TableFaultKind.STREAM_COLUMNS_CHANGED
    agent.files.others[child.checkpoint] = (TableName("t"), TableFault(kind, "has changed since version 3"))
    ChangedTables(agent).round()
    failed = agent.ledger.deployment(TableName("c"), 1)
    assert (failed.state, failed.error_class) == (State.FAILED, kind)
    reconciler = Reconciler(agent, EmergencyJournal(tmp_path / "emergency"))
    reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())
    seen = observe(agent.ledger.deployments())[TableName("c")]
    assert (seen.checkpoint_ok, seen.lost_kind) == (False, kind)
    agent.files.owner = "9f2d"
    reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())
    seen = observe(agent.ledger.deployments())[TableName("c")]
    assert (seen.checkpoint_ok, seen.lost_kind) == (False, ""), "tracking does not help where the checkpoint is another"
    agent.files.owner = agent.ledger_id
    agent.files.others.clear()
    reconciler.round(BeforeRound.of(agent), agent.pools.default.connection().queries.active(), ())
    assert observe(agent.ledger.deployments())[TableName("c")].lost_kind == ""


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_rows_written_into_a_keyed_table_by_hand_are_reported_once_and_it_continues(state: str, agent: Any) -> None:
    texts = RevisionTexts("CREATE TABLE t (id BIGINT) USING delta;", "INSERT INTO t SELECT id FROM STREAM s;",
                          "mode: upsert\nkey: [id]\n")  # fmt: skip
    found = on_delta(agent, mode="upsert/1", texts=texts, state=state, wanted=state)
    agent.files.by_hand[found.folder] = (7, "WRITE")
    place = f"{found.folder}/delta"
    agent.files.ids[place], agent.files.log_heads[place], commits = "id-1", 9, {7: "first"}
    agent.files.log_commits[place] = commits

    def said() -> list[tuple[str, str]]:
        return [(event.summary, event.detail) for event in agent.ledger.events_of(TableName("t"), "exception")]

    rounds = ChangedTables(agent)
    rounds.round()
    rounds.round()
    ChangedTables(agent).round()
    words = "rows of t__v1 were written by hand (WRITE in version 7), not by its statement: a key may occur twice "
    assert said() == [(BY_HAND, words + "or be missing; headgate plan t --rebuild reads everything again")]
    assert agent.ledger.deployment(TableName("t"), 1).state == state
    agent.files.by_hand[found.folder] = (9, "DELETE")
    rounds.round()
    assert len(said()) == 2
    agent.files.by_hand[found.folder], commits[7] = (7, "WRITE"), "after a restore"
    rounds.round()
    rounds.round()
    assert len(said()) == 3, "another commit of the same version"


def test_a_lost_table_of_deleted_keys_is_reported_before_late_rows_bring_keys_back(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_delta(agent, mode="upsert/2", texts=DELETES)
    log, read = f"{found.folder}/deleted/_delta_log", agent.files.read
    check_checkpoint(agent, found)
    agent.files.removed.add(log)
    with monkeypatch.context() as at_first:
        at_first.setattr(agent.files, "read", lambda folder: replace(read(folder), batch=None))
        check_checkpoint(agent, found)
    with pytest.raises(Refused, match="the table of the keys that were deleted from t@v1 is gone") as refused:
        check_checkpoint(agent, found)
    assert "--rebuild" in refused.value.remedy
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert (after.state, after.error_class) == (State.FAILED, TableFaultKind.GONE)
    agent.files.removed.discard(log)
    check_checkpoint(agent, found)


def with_deleted_keys(agent: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """Register a keyed version whose table of deleted keys was looked for; return the version and that folder."""
    found = on_delta(agent, mode="upsert/2", texts=DELETES)
    place, read = f"{found.folder}/deleted", agent.files.read
    ChangedTables(agent).round()
    assert not agent.ledger.deployment(TableName("t"), 1).deleted_keys_id, "there is none yet"
    monkeypatch.setattr(agent.files, "read", lambda folder: replace(read(folder), planned=5, batch=1))
    agent.files.ids[place], agent.files.log_heads[place] = "keys-1", 7
    ChangedTables(agent).round()
    return agent.ledger.deployment(TableName("t"), 1), place


@pytest.mark.parametrize(
    ("id", "head", "commits", "words"),
    [("keys-2", 7, {}, "was re-created: its id is keys-2 and was keys-1"),
     ("keys-1", 6, {}, "is an older copy: it ends with version 6 and had version 7"),
     ("keys-1", 9, {7: "another"}, "is an older copy that was written on: its version 7 is another one than it had"),
     ("keys-1", 9, {7: ""}, ""),
     ("keys-1", 9, {}, "")],
    ids=["made anew", "an older copy", "an older copy that was written on", "its log was cleaned up", "it goes on"],
)  # fmt: skip
def test_a_replaced_table_of_deleted_keys_is_reported_by_a_later_agent(
    id: str, head: int, commits: dict[int, str], words: str, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, place = with_deleted_keys(agent, monkeypatch)
    assert (found.deleted_keys_id, found.deleted_keys_version, found.deleted_keys_batch) == ("keys-1", 7, 5)
    agent.files.ids[place], agent.files.log_heads[place], agent.files.log_commits[place] = id, head, commits
    if not words:
        check_checkpoint(agent, found)
        ChangedTables(agent).round()
        after = agent.ledger.deployment(TableName("t"), 1)
        assert (after.state, after.deleted_keys_version) == (State.RUNNING, 9)
        return
    with pytest.raises(Refused, match=f"the keys that were deleted from t@v1 {words}, and late rows") as told:
        check_checkpoint(agent, found)
    assert "--rebuild" in told.value.remedy
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert (after.state, after.error_class) == (State.FAILED, TableFaultKind.REPLACED) and words in after.error
    agent.files.ids[place], agent.files.log_heads[place], agent.files.log_commits[place] = "keys-1", 7, {}
    check_checkpoint(agent, after)


def test_a_table_of_deleted_keys_that_is_as_old_as_its_checkpoint_is_taken_and_compared_from_then_on(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place = with_deleted_keys(agent, monkeypatch)
    read = agent.files.read
    monkeypatch.setattr(agent.files, "read", lambda folder: replace(read(folder), planned=3, batch=1))
    agent.files.log_heads[place] = 6
    ChangedTables(agent).round()
    after = agent.ledger.deployment(TableName("t"), 1)
    assert (after.state, after.deleted_keys_version, after.deleted_keys_batch) == (State.RUNNING, 6, 3)
    agent.files.log_heads[place] = 5
    with pytest.raises(Refused, match="is an older copy: it ends with version 5 and had version 6"):
        check_checkpoint(agent, after)
