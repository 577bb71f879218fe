"""Another owner's Delta table, read through agent and pool while a session outside Headgate writes it."""

import json
import os
import shutil
import signal
from collections.abc import Iterator

import pytest
from external_table import LANDED, Owner
from tiny_project import DML, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

DDL = {
    "landed": LANDED,
    "kept": "CREATE TABLE kept (id BIGINT, kind STRING) USING delta;",
}
ERROR = 'SELECT error_class, error FROM deployment WHERE "table" = ? AND active = 1'
SOURCES = """SELECT m.sources FROM measurement m JOIN deployment d ON d.id = m.deployment
WHERE d."table" = 'kept' AND d.active = 1"""


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    given = {"ddl": DDL, "dml": {"kept": DML["kept"]}}
    with tiny_that_runs(tmp_path_factory.mktemp("others"), landed=0, format="delta", **given) as tiny:
        yield Owner(tiny)


def arrived(owner: Owner, version: int = 1) -> bool:
    return owner.tiny.ids("kept", version) == list(range(1, owner.rows + 1))


def said(owner: Owner, table: str = "kept") -> str:
    ((error_class, error),) = owner.tiny.ledger(ERROR, table)
    return f"{error_class}: {error}"


def test_nothing_is_created_where_an_external_table_is_missing(owner: Owner) -> None:
    owner.folder.parent.mkdir(parents=True)
    refused = owner.tiny.run("plan", "--all")
    assert refused.returncode != 0 and "landed has no table" in refused.stdout + refused.stderr
    checks = json.loads(owner.tiny.run("doctor", "--json").stdout)["checks"]
    (told,) = [check for check in checks if check["name"] == "inputs"]
    assert not told["ok"] and told["remedy"] and not owner.folder.exists()


def test_an_external_table_is_streamed_measured_and_survives_a_server_restart(owner: Owner) -> None:
    owner.make()
    owner.append(20)
    before = owner.content()
    applied = owner.tiny.apply(owner.tiny.plan("--all"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    until(lambda: arrived(owner), 60, "all rows are in kept")
    assert owner.content() == before, "nothing was made there"
    owner.tiny.done("stop", "kept", "--confirm", "yes")
    owner.append(7)

    def waiting() -> bool:
        ((found,),) = owner.tiny.ledger(SOURCES)
        (source,) = json.loads(str(found))
        return (source["rows"], source["versions"], source["exact"]) == (7, 1, True)

    until(waiting, 30, "seven rows in one version wait")
    os.kill(owner.tiny.pool_pid(), signal.SIGKILL)
    until(lambda: owner.tiny.run("start", "kept", "--confirm", "yes").returncode == 0, 120, "it starts again")
    owner.append(5)
    until(lambda: arrived(owner), 90, "each row came once")


def test_no_row_is_lost_when_the_owner_adds_a_column(owner: Owner) -> None:
    owner.sql("ALTER TABLE {t} ADD COLUMNS (more INT)")
    owner.append(3, ", 1")
    until(lambda: owner.tiny.statements()["kept"]["state"] == "failed", 60, "Spark ends its reader")
    owner.tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: arrived(owner), 90, "it goes on from its checkpoint")


@pytest.mark.parametrize("change", ["DELETE FROM {t} WHERE id <= 2", "RESTORE TABLE {t} TO VERSION AS OF 5"])
def test_a_change_by_the_owner_ends_the_reader_with_headgates_own_message(change: str, owner: Owner) -> None:
    owner.sql(change)
    until(lambda: owner.tiny.statements()["kept"]["state"] == "failed", 60, "its reader is ended")
    assert f"landed, which kept@v{version(owner)} reads, was changed by {change.split()[0]} in version" in said(owner)
    assert "headgate plan kept --rebuild reads what is there now" in said(owner)
    rebuilt = owner.tiny.apply(owner.tiny.plan("kept", "--rebuild"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr


def version(owner: Owner) -> int:
    return int(owner.tiny.statements()["kept"]["version"])


def test_a_replaced_external_table_is_reported_with_both_ids_and_refused(owner: Owner) -> None:
    shutil.rmtree(owner.folder)
    owner.make()
    owner.sql("INSERT INTO {t} VALUES (1, 'a')")
    until(lambda: owner.tiny.statements()["kept"]["state"] == "failed", 60, "its reader is ended")
    assert "was re-created: its id is" in said(owner) and "and what was read had" in said(owner)
    before = owner.content()
    for words in (("optimize", "landed"), ("vacuum", "landed"), ("plan", "delete", "landed"), ("rollback", "landed")):
        refused = owner.tiny.run(*words)
        assert refused.returncode != 0 and "external" in refused.stdout + refused.stderr, words
    assert owner.content() == before
