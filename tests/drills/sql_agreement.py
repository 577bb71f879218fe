"""Drill: the corpus goes through our reading and through a real Spark Connect server; where do they disagree?

Run: PYTHONPATH=. python tests/drills/sql_agreement.py [--all | --recorded]. Asks Spark about each statement that has no
recorded answer (--all: about every one, some ten minutes on two cores; --recorded: about none), writes the answers to
tests/fixtures/corpus, and compares ours with them.
"""

import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from agreement import report
from corpus import Case, Verdict, cases, load, save

from core.project import Pool
from pipelines.pool import LocalPool
from pipelines.session import Session

AT_ONCE = 200
"""Statements for one server: Spark keeps the plans of stopped queries for an hour, and a server fills up."""


def main() -> int:
    found = cases()
    known = {} if "--all" in sys.argv else load()
    asked = [case for case in found if case.key not in known]
    for first in range(0, 0 if "--recorded" in sys.argv else len(asked), AT_ONCE):
        known |= ask(asked[first : first + AT_ONCE])
        save({case.key: known[case.key] for case in found if case.key in known})
    return report(found, known)


def ask(asked: list[Case]) -> dict[str, list[Verdict]]:
    """Ask a server of our own."""
    with tempfile.TemporaryDirectory(prefix="headgate-agreement-") as folder:
        home = Path(folder)
        pool = LocalPool(home, Pool(cores=2, memory="3g"))
        pool.start()
        try:
            pool.ready()
            session = Session(pool.url, pool.token, str(uuid.uuid4()))
            session.attach()
            try:
                return answers(session, asked, home)
            finally:
                session.close()
        finally:
            pool.end()


def answers(session: Session, asked: list[Case], home: Path) -> dict[str, list[Verdict]]:
    from spark_verdicts import prepare, verdict

    spark = session.spark
    prepare(spark)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda case: [verdict(spark, each, home) for each in spark_texts(case)], asked))
    print(f"Spark answered {sum(map(len, found))} statements in {time.monotonic() - began:.0f} s", flush=True)
    return {case.key: verdicts for case, verdicts in zip(asked, found, strict=True)}


def spark_texts(case: Case) -> list[str]:
    """Give the statements as Spark is asked; where every table is a stream, as we compile them."""
    if case.reads == "batch":
        return case.statements
    from agreement import compiled

    return [compiled(each) for each in case.statements]


if __name__ == "__main__":
    sys.exit(main())
