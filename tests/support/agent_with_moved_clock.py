"""Run the agent with a shifted wall clock: `python agent_with_moved_clock.py FILE --project DIR --env E`.

The file contains the shift in seconds, which is added to `time.time`, because the machine's own clock cannot be set
inside a container. Uptime and sleeping are unaffected, as when a real clock is set.
"""

import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path

_true = time.time


def main() -> None:
    place = Path(sys.argv.pop(1))

    def moved() -> float:
        by_s = 0.0
        with suppress(OSError, ValueError):
            by_s = float(place.read_text())
        return _true() + by_s

    time.time = moved
    runpy.run_module("pipelines.agent", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
