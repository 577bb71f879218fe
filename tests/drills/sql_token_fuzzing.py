"""Drill: delete and double every token of the corpus once; does the reader ever raise, and how long does it take?

Run: PYTHONPATH=. python tests/drills/sql_token_fuzzing.py [EACH]. Reads about 40,000 texts in a few minutes; with EACH,
every EACH-th of them. Prints how many gave a result, a Problem or both, and the slowest text; returns 1 after any
exception.
"""

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from sql_corpus import cases
from token_mutations import edited, pieces

from core.sql.statement_reader import read_any

LONGEST_S = 5.0


def main() -> int:
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    counts: Counter[str] = Counter()
    slowest = (0.0, "")
    edits = ((case, span, doubled) for case in cases() for span in pieces(case.text) for doubled in (False, True))
    for number, (case, span, doubled) in enumerate(edits):
        if number % each:
            continue
        text = edited(case.text, span, doubled=doubled)
        began = time.process_time()
        try:
            parsed, problems = read_any(text, "f.sql", every_table_streams=case.reads == "stream")
            outcome = " and ".join([*["result"] * bool(parsed), *["Problem"] * bool(problems)]) or "nothing"
        except Exception as error:
            outcome = "exception"
            print(f"{case.key}: {error!r}\n    {text}")
        counts[outcome] += 1
        counts["doubled" if doubled else "deleted"] += 1
        slowest = max(slowest, (time.process_time() - began, case.key))
    print(", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())))
    print(f"slowest {slowest[0] * 1000:.0f} ms of CPU: {slowest[1]}")
    return int(counts["exception"] + counts["nothing"] > 0 or slowest[0] > LONGEST_S)


if __name__ == "__main__":
    sys.exit(main())
