"""A drill that is told to end leaves no process behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
DRILL = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from drill_process import run_drill

def main():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        print("begun", flush=True)
        # A wait without timeout would never see a signal that arrives just before it begins.
        while child.poll() is None:
            time.sleep(0.01)
        return 0
    finally:
        print("ending", flush=True)
        sys.stdin.readline()
        child.kill()
        print(f"ended {child.wait()}", flush=True)

run_drill(main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_drill_ends_its_processes_on_one_signal_or_two(number: signal.Signals) -> None:
    command = [sys.executable, "-c", DRILL, str(SUPPORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as drill:
        assert drill.stdin and drill.stdout
        assert drill.stdout.readline() == "begun\n"
        drill.send_signal(number)
        assert drill.stdout.readline() == "ending\n"
        drill.send_signal(number)
        drill.stdin.write("\n")
        drill.stdin.flush()
        assert drill.stdout.readline() == "ended -9\n"
        assert drill.wait(60) == 128 + number
