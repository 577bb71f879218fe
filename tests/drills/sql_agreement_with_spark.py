"""Drill: the corpus goes through our analysis and through a real Spark Connect server; where do they disagree?

Run: PYTHONPATH=. python tests/drills/sql_agreement_with_spark.py [--all | --recorded]. Asks Spark about each statement
without a recorded answer (--all: about every statement, about ten minutes on two cores; --recorded: about none), writes
the answers to tests/fixtures/corpus, and compares ours with them.
"""

import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from corpus_agreement import compiled, report
from drill_process import run_drill, spark_server
from spark_verdicts import Unanswered, prepare, verdict
from sql_corpus import Case, Verdict, cases, load, save

from pipelines.spark_connect.session import Session

AT_ONCE = 250
"""Cases per server: Spark keeps the plans of stopped queries for an hour, and a server fills up."""


def main() -> int:
    found = cases()
    known = {} if "--all" in sys.argv else load()
    asked = [case for case in found if case.key not in known]
    for first in range(0, 0 if "--recorded" in sys.argv else len(asked), AT_ONCE):
        ask(asked[first : first + AT_ONCE], found, known)
    return report(found, known)


def ask(asked: list[Case], found: list[Case], known: dict[str, list[Verdict]]) -> None:
    """Ask a separate server, saving each answer as it arrives."""
    with tempfile.TemporaryDirectory(prefix="headgate-agreement-") as folder:
        home = Path(folder)
        with spark_server(home, memory="3g") as pool:
            session = Session(pool.url, pool.token, str(uuid.uuid4()))
            session.attach()
            try:
                prepare(session.spark)
                began = time.monotonic()
                for case, verdicts in answers(session, asked, home):
                    known[case.key] = verdicts
                    save({each.key: known[each.key] for each in found if each.key in known})
                print(f"Spark was asked about {len(asked)} cases in {time.monotonic() - began:.0f} s", flush=True)
            finally:
                session.close()


def answers(session: Session, asked: list[Case], home: Path) -> Iterator[tuple[Case, list[Verdict]]]:
    """Ask about several cases at once, and print the cases that got no answer."""

    def answer(case: Case) -> tuple[Case, list[Verdict]]:
        return case, [verdict(session.spark, each, home) for each in spark_texts(case)]

    with ThreadPoolExecutor(4) as threads:
        for future in as_completed([threads.submit(answer, case) for case in asked]):
            try:
                yield future.result()
            except Unanswered as silence:
                print(f"no answer: {silence}", flush=True)


def spark_texts(case: Case) -> list[str]:
    """Return the statements in the form in which Spark is asked: compiled if every table is a stream."""
    if case.reads == "batch":
        return case.statements
    return [compiled(each) for each in case.statements]


if __name__ == "__main__":
    run_drill(main)
