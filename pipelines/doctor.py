"""`python -I -m pipelines.doctor --json`: what only the Spark side can judge of this machine, as JSON; starts nothing.

Run as a child by `headgate doctor`, which adds what it can see itself.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from pipelines.local_pool.java_check import OLDEST_JAVA, find_java

ENGINE = "4.2.0"
"""The only engine that is supported (pyproject.toml pins it)."""


def main() -> int:
    """Print the verdicts; 0 also when one is bad: whoever asked decides."""
    print(json.dumps({"checks": [java(), engine(), pool_program()]}))
    return 0


def java() -> dict[str, Any]:
    """Judge the Java that a local pool would run on."""
    found = find_java()
    return {
        "name": "java",
        "ok": found.works,
        "summary": found.summary,
        "remedy": found.remedy,
        "facts": {"path": found.path, "home": found.home, "version": found.version, "oldest": OLDEST_JAVA},
    }


def engine() -> dict[str, Any]:
    """Judge the installed Spark client."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return _verdict("spark", "pyspark is not installed", "install headgate again: pip install -e .")
    if installed != ENGINE:
        return _verdict(
            "spark", f"pyspark {installed} is installed, {ENGINE} is needed", f"pip install pyspark=={ENGINE}"
        )
    return {
        "name": "spark",
        "ok": True,
        "summary": f"pyspark {installed}",
        "remedy": "",
        "facts": {"version": installed},
    }


def pool_program() -> dict[str, Any]:
    """Judge what the Connect client and its server need beside pyspark itself."""
    missing = [name for name in ("grpc", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        return _verdict(
            "connect", f"{', '.join(missing)} missing for Spark Connect", "pip install 'pyspark[connect]==4.2.0'"
        )
    return {
        "name": "connect",
        "ok": True,
        "summary": ("Spark Connect libraries are installed"),
        "remedy": "",
        "facts": {},
    }


def _verdict(name: str, summary: str, remedy: str) -> dict[str, Any]:
    return {"name": name, "ok": False, "summary": summary, "remedy": remedy, "facts": {}}


if __name__ == "__main__":
    sys.exit(main())
