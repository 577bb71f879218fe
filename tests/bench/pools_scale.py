"""Measures an agent with many statements: `python -m tests.bench.pools_scale [STATEMENTS [POOLS]]`, six minutes.

The statements read one external table without rows, once a minute, so that the figures are those of the agent and not
of batches. They are evenly in the pools, which are local servers of two cores. Everything runs on the same machine, the
servers and this program included. A third argument is the heap of each server, such as 1g.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from live_project import until
from many_statements import ManyStatements, cpu_s, memory_mib
from measured_stops import called, client_of, p99, stop

AT_REST_S = 60.0
STOPS = 50


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    pools = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    root = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
    many = ManyStatements(root)
    memory = sys.argv[3] if len(sys.argv) > 3 else "3g"
    print(f"{count} statements in {pools} pools of {memory}, load average {os.getloadavg()[0]:.1f}", flush=True)
    try:
        many.write(count, pools=pools, memory=memory, trigger="60 seconds")
        began = time.monotonic()
        many.done("up")
        print(f"agent and pools are up after {time.monotonic() - began:.1f} s", flush=True)
        began = time.monotonic()
        applied = many.apply(many.plan("--all", "--children", "all"))
        assert applied.returncode == 0, applied.stderr[-600:]
        until(lambda: len(many.tables_in("running")) == count, 600, "all statements run")
        print(f"deployed after {time.monotonic() - began:.1f} s", flush=True)
        at_rest(many)
        stops(many, count)
        another_agent(many, count, pools)
        at_rest(many)
    finally:
        many.run("down", "--confirm", "")
        shutil.rmtree(root, ignore_errors=True)


def at_rest(many: ManyStatements) -> None:
    """Print the share of a core that the agent uses while no row arrives, and how long its rounds of the lag take."""
    # What the agent does after a start or a deployment is not its work at rest.
    time.sleep(30.0)
    used, began, rounds = cpu_s(many.agent_pid()), time.monotonic(), dict[float, float]()
    while time.monotonic() - began < AT_REST_S:
        first, last = map(float, map(str, many.ledger("SELECT min(at), max(at) FROM measurement")[0]))
        rounds[first] = last - first
        time.sleep(1.0)
    share = (cpu_s(many.agent_pid()) - used) / (time.monotonic() - began)
    took = sorted(rounds.values())
    lag = f"round of the lag p50 {statistics.median(took):.3f} s, longest {took[-1]:.3f} s"
    load = os.getloadavg()[0]
    uses = f"{share:.1%} of a core, {memory_mib(many.agent_pid())} MiB, {many.threads()} threads"
    servers = ", ".join(str(memory_mib(pid)) for pid in many.pool_pids())
    print(f"at rest: {uses}, {lag}, load average {load:.1f}; servers {servers} MiB", flush=True)


def stops(many: ManyStatements, count: int) -> None:
    """Stop statements one by one, print the times, and start them again."""
    client = client_of(many)
    tables = [f"t{n * count // STOPS}" for n in range(STOPS)]
    found = [each for table in tables for each in stop(client, table)]
    assert {each.outcome for each in found} == {"stopped"}, found
    for name, values in (("Spark called", called(found)), ("proven gone", [each.took_ms for each in found])):
        print(f"{STOPS} stops, {name}: p50 {statistics.median(values):.0f} ms, p99 {p99(values):.0f} ms", flush=True)
    for table in tables:
        client.call("start", {"tables": [table]}, confirm="yes")
    until(lambda: len(many.tables_in("running")) == count, 300, "all statements run again")


def another_agent(many: ManyStatements, count: int, pools: int) -> None:
    """End the agent, start another one, and print how long it takes to find all statements."""
    many.done("down", "--keep-pool", "--confirm", "")
    began, started = time.monotonic(), time.time()
    many.done("up")
    up_s = time.monotonic() - began
    sql = "SELECT count(*) FROM pool WHERE state = 'up'"
    until(lambda: many.ledger(sql) == [(pools,)], 300, "all pools are up")
    attached_s = time.monotonic() - began
    measured = "SELECT count(*) FROM measurement WHERE at > ? AND lag_files IS NOT NULL"
    until(lambda: many.ledger(measured, started) == [(count,)], 300, "all statements are measured")
    print(
        f"another agent: `up` {up_s:.1f} s, pools attached after {attached_s:.1f} s, all measured after "
        f"{time.monotonic() - began:.1f} s",
        flush=True,
    )
    until(lambda: len(many.tables_in("running")) == count, 300, "all statements run")


if __name__ == "__main__":
    main()
