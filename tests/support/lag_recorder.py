"""Records the sample's lag as compact text: the agent's measurements of every statement, round by round.

Run: PYTHONPATH=. python -m tests.support.lag_recorder FILE PHASE=SECONDS… The phases are `quiet` (nothing is done),
`busy` (two other processes use the CPU), `stopped` (src_orders is stopped), `started`, `frozen` (the pool's server gets
SIGSTOP), `thawed` and `removed` (the folder of src_orders is removed). The recorder starts its own demo and ends it.
`lag_replay.replay` reads the file, in which each line is a tab-separated record of one statement in one round:

at, table, state, wanted, trigger, rows, files, behind, batch_ms, produced, consumed, started, committed, watermark,
limited (0 or 1), and for each source: table:newest:missing:external:state

`# at phase` marks the beginning of a phase. Times are seconds since the beginning of the recording, to a tenth.
"""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from drill_process import run_drill
from pizzeria_demo import Pizzeria

from core.model.names import TableName
from core.observed.versions import Deployment, Measurement
from state.ledger import LedgerReader

EVERY_S = 0.5
PARENT = "src_orders"


def main() -> int:
    target, *phases = sys.argv[1:]
    demo = Pizzeria(Path(tempfile.mkdtemp(prefix="headgate-lag-")))
    burners: list[subprocess.Popen[bytes]] = []
    try:
        demo.begin()
        acts = _acts(demo, burners)
        recorder = Recorder(demo)
        for phase in phases:
            name, _, seconds = phase.partition("=")
            recorder.mark(name)
            acts[name]()
            recorder.watch(float(seconds))
            print(f"{name}: {len(recorder.lines)} lines after {recorder.seconds():.0f} s", flush=True)
        Path(target).write_bytes(gzip.compress("\n".join(recorder.lines).encode() + b"\n", mtime=0))
        return 0
    finally:
        for burner in burners:
            burner.kill()
        demo.down()
        shutil.rmtree(demo.root, ignore_errors=True)


class Recorder:
    """Reads the ledger after each of the agent's measuring rounds, and records the new measurements."""

    def __init__(self, demo: Pizzeria) -> None:
        self.lines: list[str] = []
        self._ledger = LedgerReader(demo.home() / "ledger.db")
        self._began = time.time()
        self._seen: dict[tuple[TableName, int], float] = {}

    def seconds(self) -> float:
        return time.time() - self._began

    def mark(self, phase: str) -> None:
        """Record the beginning of a phase."""
        self.lines.append(f"# {self.seconds():.1f} {phase}")

    def watch(self, seconds: float) -> None:
        """Record measurements for this many seconds."""
        ends_at = self.seconds() + seconds
        while self.seconds() < ends_at:
            self._round()
            time.sleep(EVERY_S)

    def _round(self) -> None:
        deployments = {(one.table, one.version): one for one in self._ledger.deployments()}
        for found in self._ledger.measurements():
            key = (found.table, found.version)
            if key in deployments and deployments[key].active and self._seen.get(key, 0.0) < found.at:
                self._seen[key] = found.at
                self.lines.append(self._line(deployments[key], found, deployments))

    def _line(
        self, deployment: Deployment, found: Measurement, deployments: Mapping[tuple[TableName, int], Deployment]
    ) -> str:
        samples = self._ledger.samples(found.table, found.version, since=found.at - 1.0)
        sample = samples[-1] if samples else None
        version_by_parent = {binding.parent: binding.version for binding in deployment.bindings}
        fields: list[object] = [
            self._time(found.at), found.table, deployment.state, deployment.wanted, deployment.trigger, found.lag_rows,
            found.lag_files, _tenth(found.behind_s), found.batch_ms, sample.produced_rows if sample else None,
            sample.consumed_rows if sample else None, self._time(deployment.started_at), self._time(found.committed_at),
            found.watermark, int("maxfilespertrigger" in deployment.compiled.lower()),
        ]  # fmt: skip
        for source in found.sources:
            table = TableName(str(source["table"]))
            parent = deployments.get((table, version_by_parent.get(table, 0)))
            state, external = (parent.state, int(parent.external)) if parent else ("absent", 0)
            newest = source["newest_s"]
            said = "" if not isinstance(newest, float) else f"{newest:.1f}"
            fields.append(f"{table}:{said}:{int(bool(source['missing']))}:{external}:{state}")
        return "\t".join("" if value is None else str(value) for value in fields)

    def _time(self, at: float | None) -> str:
        return "" if at is None else f"{at - self._began:.1f}"


def _acts(demo: Pizzeria, burners: list[subprocess.Popen[bytes]]) -> Mapping[str, Callable[[], object]]:
    def busy() -> None:
        burners.extend(subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2))

    folder = demo.folder / "data/tables/src_orders__v1"
    return {
        "quiet": lambda: None,
        "busy": busy,
        "stopped": lambda: demo.done("stop", PARENT, "--confirm", "yes"),
        "started": lambda: demo.done("start", PARENT, "--confirm", "yes"),
        "frozen": lambda: os.kill(demo.pool_pid(), signal.SIGSTOP),
        "thawed": lambda: os.kill(demo.pool_pid(), signal.SIGCONT),
        "removed": lambda: shutil.move(folder, demo.folder / "data/gone"),
    }


def _tenth(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    run_drill(main)
