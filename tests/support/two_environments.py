"""A tiny project with two environments, dev and stage, on one Spark server that the agent of dev starts."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tiny_project import FIRST_COMPILER, Tiny

HEAD = f"""project: tiny
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    policy: {{validate: true}}
    pool: {{cores: 2, memory: 1g, conf: {{spark.driver.extraJavaOptions: '{FIRST_COMPILER}'}}}}
  stage:
    data: staged
    naming: {{prefix: stage_}}
    pool: {{name: shared, url: '@URL@'}}
defaults: {{trigger: 1 second}}
"""


class TwoEnvironments(Tiny):
    """A project whose environment `stage` runs on the server of `dev`, with data, names and ledger of its own."""

    url: str = "sc://127.0.0.1:9"

    def write(self, **dml: str) -> None:
        super().write(**dml)
        (self.folder / "headgate.yml").write_text(HEAD.replace("@URL@", self.url))

    def share_server(self) -> None:
        """Have `stage` use the server that the agent of `dev` has started."""
        place = json.loads((self.home() / "pool.json").read_text())
        self.url = (
            f"sc://127.0.0.1:{place['port']}/;authorization=Bearer%20{(self.home() / 'pool.token').read_text().strip()}"
        )
        self.write()

    def home_of(self, environment: str) -> Path:
        return self.home().parent / environment

    def stage_pid(self) -> int:
        """Return the process id of the agent of `stage`."""
        return int((self.home_of("stage") / "agent.lock").read_text())

    def serving(self, environment: str) -> dict[str, tuple[int, str]]:
        """Return the serving version of each statement in an environment, with the hash of its revision, by table."""
        sql = 'SELECT "table", version, revision FROM deployment WHERE active AND NOT external AND drop_after IS NULL'
        with closing(sqlite3.connect(f"file:{self.home_of(environment) / 'ledger.db'}?mode=ro", uri=True)) as ledger:
            return {table: (version, revision) for table, version, revision in ledger.execute(sql)}

    def revisions(self, environment: str) -> dict[str, str]:
        """Return the hash of the serving revision of each statement in an environment, by table."""
        return {table: revision for table, (_, revision) in self.serving(environment).items()}
