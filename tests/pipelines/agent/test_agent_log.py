"""The agent's log has a bounded size, whichever process writes into it."""

import logging
import subprocess
import sys
from pathlib import Path

from pipelines.agent.__main__ import KEPT, AgentLog

WRITES = """
import logging, os, sys
from pipelines.agent.__main__ import AgentLog
logging.basicConfig(handlers=[AgentLog(sys.argv[1], most_bytes=1000)], level=logging.INFO, format="%(message)s")
for n in range(200):
    logging.info("line %d %s", n, "x" * 50)
os.write(1, b"printed\\n")
"""


def test_a_log_consists_of_a_few_files_and_output_goes_into_the_newest(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", WRITES, str(log)], stdout=output, check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "agent.log",
        *(f"agent.log.{n + 1}" for n in range(KEPT)),
    ]
    assert all(path.stat().st_size < 1100 for path in tmp_path.iterdir())
    assert "line 199" in log.read_text() and log.read_text().endswith("printed\n")


def test_a_deleted_log_file_is_created_again(tmp_path: Path) -> None:
    log = AgentLog(str(tmp_path / "agent.log"), most_bytes=1000)
    try:
        for n in range(50):
            log.emit(logging.LogRecord("agent", logging.INFO, "", 0, f"line {n} {'x' * 50}", (), None))
            if n == 20:
                Path(log.baseFilename).unlink()
    finally:
        log.close()
    assert "line 49" in Path(log.baseFilename).read_text()
