"""A scenario of the demo in a folder of its own, started and ended by the commands that a user types."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from live_project import Driven, committed


@dataclass
class ScenarioFolder(Driven):
    """The folder of a scenario; `root` must be open to the user nobody, because PostgreSQL refuses to run as root."""

    number: int = 0

    @property
    def folder(self) -> Path:
        return self.root / "scenario"

    def begin(self, *words: str) -> dict[str, Any]:
        """Start the scenario, or the parts of it that are not running; return the decoded JSON."""
        number = str(self.number)
        found: dict[str, Any] = json.loads(
            self.done("demo", str(self.folder), "--scenario", number, "--no-console", "--json", *words)
        )
        return found

    def servers(self) -> dict[str, int]:
        """Return the recorded process ids of the servers."""
        record = json.loads((self.folder / "servers/servers.json").read_text())
        return {name: int(found["pid"]) for name, found in record["processes"].items()}

    def tickets(self) -> list[dict[str, Any]]:
        """Return the rows of the target."""
        files = committed(self.folder / "data/tables/pizzas_to_bake__v1")
        return [row for file in files for row in parquet.read_table(file).to_pylist()]

    def count(self) -> int:
        """Return how many rows the target has."""
        files = committed(self.folder / "data/tables/pizzas_to_bake__v1")
        return sum(int(parquet.read_metadata(file).num_rows) for file in files)

    def end_application(self) -> None:
        """Let the application that changes the database finish its transaction and end."""
        words = ("--stop", "--data", str(self.folder / "data"))
        subprocess.run([sys.executable, "-I", "-m", "pipelines.demo", *words], check=True, capture_output=True)
