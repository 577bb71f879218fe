"""`python -I -m pipelines.integration_tests`: answers requests about tables, each in one line of JSON.

A request has an `op` and its arguments; the answer is an object, or has an `error`. The end of stdin ends the process.
"""

import json
import sys
from typing import Any

from core.model.errors import HeadgateError
from pipelines.integration_tests.table_access import TableAccess


def main() -> int:
    """Answer requests until stdin ends, then close the session."""
    access = TableAccess()
    try:
        for line in sys.stdin:
            print(json.dumps(_answer(access, json.loads(line))), flush=True)
    finally:
        access.close()
    return 0


def _answer(access: TableAccess, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return access.answer(str(request.pop("op")), request)
    except HeadgateError as error:
        return {"error": error.as_json()}
    except OSError as error:
        found = HeadgateError(f"{error.filename} cannot be used: {error.strerror}", remedy="free some disk space")
        return {"error": found.as_json()}


if __name__ == "__main__":
    sys.exit(main())
