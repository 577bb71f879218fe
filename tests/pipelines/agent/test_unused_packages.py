"""Environments of packages are kept as long as a version can be started again, also one in the trash."""

from pathlib import Path

import pytest
from ledger_rows import deployment_row

from core.ipc.environment_paths import job_packages
from core.sql.python_jobs import JobInput, PythonJob, job_text
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping import remove_packages
from pipelines.python_jobs.job_environments import JobEnvironments


def test_the_packages_of_each_version_that_has_files_are_in_use(
    agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, float]] = []
    monkeypatch.setattr(JobEnvironments, "remove_unused", lambda self, *found: asked.append(found) or ())
    gone = {"drop_after": 1.0, "active": False}
    for version, more in enumerate(({}, {"trash": "/trash/a", **gone}, {"trash": "", **gone}), 1):
        job = PythonJob("a", (JobInput("landed", "STREAM landed"),), "", (f"p{version}",))
        compiled = job_text("a", job).partition("\n")[2]
        agent.ledger.put_deployment(deployment_row("a", version=version, compiled=compiled, **more))
    agent.ledger.put_deployment(deployment_row("b"))
    remove_packages(agent, 7.0)
    assert asked == [], "no environment was ever created on this machine"
    Path(job_packages(agent.places.home)).mkdir()
    remove_packages(agent, 7.0)
    assert asked == [({("p1",), ("p2",)}, 7.0)]
