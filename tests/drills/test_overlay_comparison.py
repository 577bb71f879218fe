"""An overlay of dev, compared with it on Spark: what a branch explains, what it does not, and a base that moves on."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tiny_project import DDL, DML, Tiny, alive, committed, until

from pipelines.storage.delta_log import DeltaLog

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

MORE = ("report", "tagged")
TABLES = DDL | {name: DDL["marked"].replace("marked", name) for name in MORE}
STATEMENTS = DML | {
    "report": "INSERT INTO report SELECT id, kind FROM STREAM marked;",
    "tagged": "INSERT INTO tagged SELECT id, kind FROM STREAM kept;",
}
BRANCH = {
    "marked": "INSERT INTO marked SELECT id, upper(kind) AS kind FROM STREAM kept WHERE id > 5;",
    "tagged": "INSERT INTO tagged SELECT id, lower(kind) AS kind FROM STREAM kept;",
}
OVERLAY = ("--env", "pr-123")


class WithOverlay(Tiny):
    """dev with landed → kept → marked → report and kept → tagged; the overlay pr-123 inherits kept."""

    def home_of(self, environment: str) -> Path:
        return self.home().parent / environment

    def pid_of(self, environment: str) -> int:
        return int((self.home_of(environment) / "agent.lock").read_text())

    def files_of(self, table: str) -> list[Path]:
        """Return the files of the overlay's first version of a table."""
        folder = self.folder / f"data.pr-123/tables/pr_123_{table}__v1"
        if self.format != "delta":
            return committed(folder)
        log = DeltaLog(f"{folder}/delta")
        log.refresh()
        return [Path(log.place_of(file)) for file in log.files_at(log.head)]

    def compared(self, code: int, *words: str) -> dict[str, Any]:
        """Compare the overlay with dev; return the document, whose exit code must be `code`."""
        found = self.run("release", "diff", *OVERLAY, "--json", *words)
        assert found.returncode == code, f"{found.returncode}\n{found.stdout}\n{found.stderr}"
        document: dict[str, Any] = json.loads(found.stdout)
        return document


@pytest.fixture(scope="module", params=["parquet", "delta"])
def two(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithOverlay]:
    root = tmp_path_factory.mktemp(f"overlay-{request.param}")
    found = WithOverlay(root, {"HEADGATE_MEASURE_S": "1"}, format=request.param, ddl=TABLES, dml=STATEMENTS)
    found.write()
    found.land(20)
    found.done("up")
    agents = [found.agent_pid()]
    try:
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: found.ids("report", 1) == list(range(1, 21)), 90, "dev has every row")
        found.write(**BRANCH)
        found.done("up", *OVERLAY, "--from", "dev", "--expires", "2h")
        agents.append(found.pid_of("pr-123"))
        plan = json.loads(found.done("plan", "--all", *OVERLAY, "--json"))
        said = found.run("review", plan["hash"][:12], *OVERLAY).stderr
        confirm = said.rsplit("--confirm '", 1)[1].split("'")[0] if "--confirm '" in said else ""
        found.done("apply", plan["hash"][:12], *OVERLAY, "--confirm", confirm)
        yield found
    finally:
        found.run("down", *OVERLAY, "--confirm", "")
        found.down()
        assert not any(map(alive, agents))


def is_at_rest(data: Path) -> bool:
    """True if all batches are committed, and all Delta commits have their checksums, which follow the rows."""
    begun = data.glob("checkpoints/*/offsets/[0-9]*")
    logs = data.glob("tables/*/delta/_delta_log/*.json")
    committed = all((each.parent.parent / f"commits/.{each.name}.crc").exists() for each in begun)
    return committed and all((each.parent / f".{each.stem}.crc.crc").exists() for each in logs)


def digest(folder: Path) -> dict[str, str]:
    """Return the hash of every file in the data folder of dev, except the mark that its own agent updates."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "_headgate_world")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def results(document: dict[str, Any], table: str) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in document["results"] if each["table"] == table}


def test_what_the_branch_explains_is_expected_and_nothing_of_the_base_is_touched(two: WithOverlay) -> None:
    two.land(10)
    until(lambda: two.ids("report", 1) == list(range(1, 31)), 90, "dev has read the second file")
    until(lambda: is_at_rest(two.folder / "data"), 30, "dev has committed what it has written")
    before = digest(two.folder / "data")
    found = two.compared(0)
    assert digest(two.folder / "data") == before
    assert found["base"] == "dev" and found["unexpected"] == [] and found["not_compared"] == {}
    marked, report = results(found, "marked"), results(found, "report")
    assert marked["differences"]["verdict"] == "expected" and "id > 5" in marked["differences"]["summary"]
    assert marked["rows"]["counts"] == {"old": 30, "new": 25}
    assert report["change"]["summary"] == "unchanged, downstream of marked"
    assert report["differences"]["verdict"] == "expected" and report["rows"]["counts"] == {"old": 30, "new": 25}
    assert results(found, "tagged")["rows"]["counts"] == {"old": 30, "new": 30}
    assert "kept@v1 of dev" not in json.dumps(found["only_here"]) and not results(found, "kept")
    assert two.compared(0, "--last") == found


def test_a_killed_agent_leaves_the_result_before_and_never_half_of_one(two: WithOverlay) -> None:
    before = two.compared(0)
    place = {"HEADGATE_HOME": str(two.root / "home"), **two.environ}
    os.kill(two.pid_of("pr-123"), signal.SIGKILL)
    two.done("up", *OVERLAY, HEADGATE_FAULT_AT="comparison with the base before it is stored")
    died = subprocess.run(
        [str(Path(sys.executable).with_name("headgate")), "release", "diff", *OVERLAY],
        cwd=two.folder, env={**os.environ, **place}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert died.returncode not in (0, 1, 2) and "Traceback" not in died.stderr, died.stderr
    assert two.compared(0, "--last") == before
    two.done("up", *OVERLAY)
    assert two.compared(0)["at"] > before["at"]


def test_rows_that_the_branch_does_not_explain_are_unexpected_and_shown(two: WithOverlay) -> None:
    until(lambda: two.files_of("tagged"), 60, "the overlay has written")
    file = two.files_of("tagged")[0]
    rows = parquet.read_table(file)
    # Hadoop would notice another content by its checksum.
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    parquet.write_table(rows.slice(1), file)
    gone = rows["id"][0].as_py()
    found = two.compared(1)
    assert found["unexpected"] == ["tagged"]
    (example,) = results(found, "tagged")["differences"]["examples"]
    assert example["old"]["id"] == gone and example["new"] is None and example["why"] == ""
    shown = two.run("release", "diff", *OVERLAY, "--last", "--markdown")
    assert shown.returncode == 1
    print(shown.stdout)
    verdict = "unexpected: tagged, of 3 compared tables; 1 column not compared"
    assert shown.stdout.startswith(f"### pr-123 compared with dev: {verdict}\n")
    assert f'- {{"id": {gone}' in shown.stdout
    parquet.write_table(rows, file)


def test_a_base_that_moves_on_is_reported_instead_of_its_rows(two: WithOverlay) -> None:
    two.write(kept="INSERT INTO kept SELECT id, kind FROM STREAM landed WHERE id > 3;")
    assert two.apply(two.plan("kept", "--rebuild", "--children", "all")).returncode == 0
    found = two.compared(1)
    assert set(found["not_compared"]) == {"marked", "report", "tagged"}
    for why in found["not_compared"].values():
        assert why.startswith("dev has moved on: dev now reads kept@v2 of dev, and pr-123 still kept@v1 of dev")
    os.kill(two.agent_pid(), signal.SIGKILL)
    assert set(two.compared(1)["not_compared"]) == {"marked", "report", "tagged"}, "the ledger is read without an agent"
    two.done("up")
