"""Drill: stop statements in five situations and print p50 and p99 of each, in the agent and at the client.

Run: PYTHONPATH=. python tests/drills/stop_latency.py [STOPS [SITUATION ...]]. By default at least 25 stops in each
situation; takes about twelve minutes. Situations: gate (a rebuild waits at its gate), busy (batch queries also keep
both cores busy), locked (another process holds the ledger), sockets (1,000 idle connections are held), attaching (the
pool comes back under 100 statements). Exits 1 if a stop is not proven, if a situation breaks one of its bounds
(`stop_latency_many`), or if p99 from a command's arrival to Spark's stop exceeds 300 ms.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from measured_stops import Situation, called, p99, table
from stop_latency_demo import BATCHES, DEMO_SITUATIONS, batch_queries, measure_demo
from stop_latency_many import MANY_SITUATIONS, measure_many


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    words = sys.argv[2:] or [*DEMO_SITUATIONS, *MANY_SITUATIONS]
    found = tuple(measured(count, words))
    print(table(found))
    wrong = [f"{situation.name}: {what}" for situation in found for what in situation.wrong]
    for one in found:
        if (late := p99(called(one.stops))) > one.called_within_ms:
            wrong.append(f"{one.name}: Spark is called after {late:.0f} ms, not within {one.called_within_ms:.0f} ms")
    print("\n".join(wrong) or "every stop is proven, and within its bounds")
    return 1 if wrong else 0


def measured(count: int, words: Sequence[str]) -> Iterator[Situation]:
    """Measure the named situations, grouped by project."""
    if chosen := [word for word in words if word in DEMO_SITUATIONS]:
        yield from measure_demo(count, chosen)
    if chosen := [word for word in words if word in MANY_SITUATIONS]:
        yield from measure_many(count, chosen)


if __name__ == "__main__":
    if sys.argv[1:2] == [BATCHES]:
        batch_queries(*sys.argv[2:4])
    run_drill(main)
