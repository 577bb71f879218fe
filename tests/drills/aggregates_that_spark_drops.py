"""Drill: two statements differ in one choice above an aggregate, and we plan a restart; are Spark's aggregates equal?

Run: PYTHONPATH=. python tests/drills/aggregates_that_spark_drops.py [--seed N] [--count N]. Spark's optimizer drops
aggregates that are no longer read, and with them part of the state (core/sql/comparison/optimizer_folding.py): both
texts of a random pair are optimized over files, and the remaining aggregates are compared. Returns 1 if they differ
although we plan a restart. 1,000 pairs take a minute on an idle core.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill, spark_server
from optimized_aggregates import OptimizedAggregates, judged
from random_aggregate_conditions import pair


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--count", type=int, default=2_000)
    asked = words.parse_args()
    began, outcomes = time.monotonic(), Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-optimized-") as folder,
        spark_server(Path(folder), memory="1g") as pool,
        OptimizedAggregates(pool) as spark,
    ):
        for number in range(asked.count):
            old, new = pair(Random(f"{asked.seed}/{number}"))
            outcome = judged(spark, old, new)
            outcomes[outcome] += 1
            if outcome == "UNSAFE":
                print(f"UNSAFE {asked.seed}/{number}\n    {old}\n    {new}", flush=True)
    listed = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
    print(f"seed {asked.seed}: {asked.count:,} pairs: {listed}; {time.monotonic() - began:.0f} s")
    return int(outcomes["UNSAFE"] > 0)


if __name__ == "__main__":
    run_drill(main)
