"""The life of an environment for a branch, beside the environment that it reads and a third one, on one server."""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from live_project import alive, until
from shared_servers import Checkout, Server, server

pytestmark = [pytest.mark.drill, pytest.mark.spark, pytest.mark.long]

EDITED = "INSERT INTO marked SELECT id, lower(kind) AS kind FROM STREAM kept WHERE id > 2;"
ROWS = 40


class Walk:
    """dev, stage and a branch of one project, on one server."""

    def __init__(self, root: Path, place: Server, stack: ExitStack, format: str) -> None:
        self.server = place
        main, branch = root / "main", root / "branch"
        self.dev = Checkout(main, name="dev", naming=lambda table: f"default.dev_{table}")
        self.stage = Checkout(main, name="stage", environment="stage", naming=lambda table: f"stage.{table}")
        self.pr = Checkout(branch, {"HEADGATE_HOME": str(main / "home")}, name="pr", environment="pr-1")
        sections = {
            "dev": f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{place.url}'}}",
            "stage": f"naming: {{database: stage}}, sources: dev, pool: {{name: one, url: '{place.url}'}}",
        }
        for each in (self.dev, self.pr):
            each.write(format=format, **sections)
        self.dev.land(ROWS)
        self.dev.deploy()
        stack.callback(self.dev.run, "down", "--confirm", "")
        self.stage.done("up")
        stack.callback(self.stage.run, "down", "--confirm", "")
        stack.callback(self.pr.run, "down", "--purge", "--confirm", "tiny")
        self.pr.script("marked").write_text(EDITED)

    def pid(self, environment: str) -> int:
        return int((self.dev.home().parent / environment / "agent.lock").read_text())

    def is_gone(self) -> bool:
        return not (self.dev.home().parent / "pr-1").exists()

    def has(self, view: str, rows: int) -> None:
        until(lambda: self.server.count(view) == rows, 120, f"{view} has {rows} rows")

    def world(self) -> dict[str, Any]:
        """Return what an overlay must not change: files of tables and checkpoints, versions, and the catalog."""
        columns = '"table", version, revision, checkpoint_id, active, wanted, run_id'
        return {
            "dev": self.dev.content(),
            "stage": self.stage.content(),
            "versions": self.dev.ledger(f"SELECT {columns} FROM deployment ORDER BY 1, 2"),
            "catalog": self.server.entries(),
        }


def applied(checkout: Checkout, plan: dict[str, Any], *more: str) -> str:
    """Apply a reviewed plan, and return what the command printed."""
    review = checkout.run("review", plan["hash"][:12]).stderr
    return checkout.done("apply", *shlex.split(review.split("headgate apply ", 1)[1]), *more)


@pytest.fixture(params=["parquet", "delta"])
def walk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Walk]:
    with ExitStack() as stack:
        place = stack.enter_context(server(tmp_path / "server"))
        yield Walk(tmp_path, place, stack, request.param)


def test_a_branch_is_built_compared_and_purged_beside_environments_that_stay_as_they_were(walk: Walk) -> None:
    dev, stage, pr = walk.dev, walk.stage, walk.pr
    promotion = json.loads(stage.done("promote", "--all", "--from", "dev", "--json"))
    applied(stage, promotion)
    for view in ("default.dev_marked", "stage.marked"):
        walk.has(view, ROWS)
    before = walk.world()

    print(pr.done("up", "--from", "dev", "--expires", "1d"))
    plan = pr.plan("--all")
    assert {n["table"]: n["action"] for n in plan["nodes"]} == {"kept": "start", "marked": "start"}
    run = applied(pr, plan, "--detach").strip()
    for environment in ("pr-1", "dev"):
        os.kill(walk.pid(environment), signal.SIGKILL)
    dev.done("up")
    pr.done("up")
    until(lambda: json.loads(pr.run("runs", run, "--json").stdout)["state"] == "done", 120, "a new agent ends the run")
    walk.has("default.pr_1_marked", ROWS - 2)

    # A second actor stops and starts a statement of the base meanwhile.
    dev.done("stop", "marked", "--yes")
    dev.done("start", "marked", "--yes")
    compared = pr.run("release", "diff", "--json", "--timeout", "120")
    print(compared.stdout, compared.stderr)
    assert compared.returncode == 0
    print(pr.run("release", "diff", "--last", "--markdown").stdout)
    print(dev.run("env").stdout)

    refused = dev.run("down", "--purge", "--confirm", "tiny")
    assert refused.returncode == 3 and "pr-1 reads kept of dev" in refused.stderr, refused.stderr
    print(pr.done("down", "--purge", "--confirm", "tiny"))
    assert walk.is_gone() and not Path(f"{dev.data}.pr-1").exists()
    after = walk.world()
    # Its operator started marked of dev again, which gave it another run of the query and further empty batches.
    restarted = {path for path in after["dev"] if "/checkpoints/dev_marked__v1" in path}
    for world in (before, after):
        world["dev"] = {path: digest for path, digest in world["dev"].items() if path not in restarted}
        world["versions"] = [row[:-1] for row in world["versions"]]
    assert after == before
    print(f"compared {len(after['dev']) + len(after['stage'])} files and {len(after['catalog'])} names: equal")


def test_an_overlay_that_expires_is_deleted_by_its_agent(walk: Walk) -> None:
    pr = walk.pr
    walk.has("default.dev_marked", ROWS)
    pr.done("up", "--from", "dev", "--expires", "1d")
    applied(pr, pr.plan("--all"))
    walk.has("default.pr_1_marked", ROWS - 2)
    walk.dev.land(5, after=ROWS)
    walk.has("default.dev_marked", ROWS + 5)
    walk.has("default.pr_1_marked", ROWS + 3)
    agent = walk.pid("pr-1")
    pr.done("up", "--from", "dev", "--expires", "1m")
    until(walk.is_gone, 180, "the overlay is gone", every_s=1)
    until(lambda: not alive(agent), 30, "its agent is gone")
    assert not Path(f"{walk.dev.data}.pr-1").exists()
    assert not any("pr_1_" in name for name in walk.server.entries())
    assert walk.server.count("default.dev_marked") == ROWS + 5
