"""A base that is vacuumed, rebuilt, retired or deleted under an overlay, on Spark: nothing is lost without a warning.

Each test begins with dev, which runs landed → kept → marked, and with pr-1, whose own marked reads kept@v1 of dev.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live_project import until
from shared_servers import Checkout, Server, server

pytestmark = [pytest.mark.drill, pytest.mark.spark, pytest.mark.long]

EDITED = "INSERT INTO marked SELECT id, lower(kind) AS kind FROM STREAM kept WHERE id > 2;"
REBUILT = "INSERT INTO kept SELECT id, kind FROM STREAM landed WHERE id > 3;"
ROWS = 40
AT_ONCE = "delta TBLPROPERTIES ('delta.deletedFileRetentionDuration'='interval 0 hours')"
"""Delta whose files are deleted at once when only older versions contain them."""


class Pair:
    """dev and its overlay pr-1 on one server."""

    def __init__(self, root: Path, place: Server, stack: ExitStack, format: str) -> None:
        self.server = place
        self.dev = Checkout(root / "main", name="dev", naming=lambda table: f"default.dev_{table}")
        self.pr = Checkout(root / "branch", {"HEADGATE_HOME": str(root / "main/home")}, name="pr", environment="pr-1")
        for each in (self.dev, self.pr):
            each.write(format=format, dev=f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{place.url}'}}")
        self.dev.land(ROWS)
        self.dev.deploy()
        stack.callback(self.dev.run, "down", "--confirm", "")
        stack.callback(self.pr.run, "down", "--confirm", "")
        self.pr.script("marked").write_text(EDITED)
        self.pr.done("up", "--from", "dev", "--expires", "1d")
        assert self.pr.apply(self.pr.plan("--all")).returncode == 0
        self.has("default.pr_1_marked", ROWS - 2)

    def has(self, view: str, rows: int) -> None:
        until(lambda: self.server.count(view) == rows, 120, f"{view} has {rows} rows")

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pr.statements()["marked"]
        return found

    def last_note(self) -> str:
        """Return the note of the last step of the newest run in dev."""
        note = (
            "SELECT note FROM step WHERE run_id = (SELECT id FROM run ORDER BY started_at DESC LIMIT 1) ORDER BY n DESC"
        )
        return str(self.dev.ledger(note)[0][0])


def warnings(plan: dict[str, Any]) -> list[str]:
    return [each["summary"] for each in plan["warnings"] if "pr-1" in each["summary"]]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def test_a_vacuum_of_the_base_waits_for_a_stopped_statement_of_the_overlay(tmp_path: Path, stack: ExitStack) -> None:
    pair = Pair(tmp_path, stack.enter_context(server(tmp_path / "server")), stack, AT_ONCE)
    dev, pr = pair.dev, pair.pr
    pr.done("stop", "marked", "--yes")
    dev.land(5, after=ROWS)
    for view in ("default.dev_kept", "default.dev_marked"):
        pair.has(view, ROWS + 5)
    dev.done("optimize", "kept", "--confirm", "yes")
    files = {path for path in dev.content() if "dev_kept__v1" in path and path.endswith(".parquet")}
    plan = dev.plan("vacuum", "kept", "--retain", "0")
    assert warnings(plan) == [
        "pr-1 reads kept__v1: the step fails while its statements still need what this deletes; it overlays this "
        "environment"
    ]
    run = dev.apply(plan)
    print(run.stdout, run.stderr)
    assert run.returncode == 1
    words = "marked@v1 of pr-1 has not read version"
    assert f"files that it would delete have not been read yet: {words}" in pair.last_note()
    assert "and is stopped: headgate start marked --env pr-1 lets it continue" in pair.last_note()
    assert files <= set(dev.content())
    pr.done("start", "marked", "--yes")
    pair.has("default.pr_1_marked", ROWS + 3)
    (run_id,) = dev.ledger("SELECT id FROM run ORDER BY started_at DESC LIMIT 1")[0]
    again = ("runs", "retry", str(run_id), "--follow")
    # The rows are visible before their batch is committed, and the vacuum is refused until then.
    until(lambda: dev.run(*again).returncode == 0, 60, "the vacuum ended", every_s=1.0)
    assert not files <= set(dev.content())
    dev.land(5, after=ROWS + 5)
    pair.has("default.pr_1_marked", ROWS + 8)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_version_that_the_base_replaces_and_removes_is_named_before_and_after(
    tmp_path: Path, stack: ExitStack, format: str
) -> None:
    pair = Pair(tmp_path, stack.enter_context(server(tmp_path / "server")), stack, format)
    dev, pr = pair.dev, pair.pr
    dev.script("kept").write_text(REBUILT)
    plan = dev.plan("kept", "--rebuild", "--children", "all")
    assert warnings(plan) == [
        "pr-1 reads kept__v1 and gets no more rows once that is replaced: it overlays this environment"
    ]
    assert dev.apply(plan).returncode == 0
    dev.land(5, after=ROWS)
    pair.has("default.dev_kept", ROWS + 2)
    assert pair.server.count("default.pr_1_marked") == ROWS - 2
    behind = pr.run("env").stdout
    print(behind)
    assert "dev now serves kept@v2, and pr-1 still reads kept@v1, which gets no more rows" in behind

    plan = dev.plan("retire", "kept")
    fails = ["pr-1 reads kept__v1, and its statements will fail: it overlays this environment"]
    assert warnings(plan) == fails
    assert dev.apply(plan).returncode == 0
    gone_under(pair)
    refused = pr.run("up", "--from", "dev")
    print(refused.stderr)
    assert refused.returncode == 3 and "dev has deleted kept@v1, which pr-1 reads" in refused.stderr
    pr.done("down", "--purge", "--confirm", "tiny")
    pr.script("kept").write_text(REBUILT)
    pr.done("up", "--from", "dev")
    assert pr.apply(pr.plan("--all")).returncode == 0
    pair.has("default.pr_1_marked", ROWS + 2)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_what_the_base_deletes_under_an_overlay_can_be_brought_back(
    tmp_path: Path, stack: ExitStack, format: str
) -> None:
    pair = Pair(tmp_path, stack.enter_context(server(tmp_path / "server")), stack, format)
    dev, pr = pair.dev, pair.pr
    pr.done("down", "--confirm", "")
    before = dev.home().parent / "pr-1/overlay.json"
    hidden = before.with_name("hidden.json")
    before.rename(hidden)
    plan = dev.plan("delete", "kept", "marked")
    hidden.rename(before)
    assert warnings(plan) == []
    # The overlay is there again only after the plan.
    assert dev.apply(plan).returncode == 1
    assert dev.statements()["kept"]["state"] == "running"
    ((note,),) = dev.ledger("SELECT note FROM step WHERE state = 'failed'")
    assert "pr-1 now reads kept__v1, of which this plan does not warn" in str(note)
    plan = dev.plan("delete", "kept")
    assert warnings(plan) == ["pr-1 reads kept__v1, and its statements will fail: it overlays this environment"]
    assert dev.apply(plan).returncode == 0
    pr.done("up")
    gone_under(pair)
    dev.done("undelete", "kept", "--confirm", "yes")
    dev.land(5, after=ROWS)
    pr.done("start", "marked", "--yes")
    pair.has("default.pr_1_marked", ROWS + 3)


def gone_under(pair: Pair) -> None:
    """Check that the statement of the overlay is stopped with the reason, and that a start is refused with a remedy."""
    why = "marked@v1 reads kept@v1 of dev, which is gone"
    until(lambda: pair.shown()["state"] == "failed", 90, "the agent has seen that the base is gone")
    assert why in pair.shown()["error"]
    print(pair.pr.run("show", "marked").stdout)
    refused = pair.pr.run("start", "marked", "--yes")
    print(refused.stderr)
    assert refused.returncode == 3 and why in refused.stderr
    assert "headgate undelete kept --env dev" in refused.stderr
    assert "headgate down --env pr-1 --purge, then headgate up --env pr-1 --from dev" in refused.stderr
