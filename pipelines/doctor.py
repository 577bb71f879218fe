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
    facts = {"path": found.path, "home": found.home, "version": found.version}
    facts |= {"bundled": found.bundled, "oldest": OLDEST_JAVA}
    return _verdict("java", found.summary, found.remedy, ok=found.works, **facts)


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
    return _verdict("spark", f"pyspark {installed}", ok=True, version=installed)


def pool_program() -> dict[str, Any]:
    """Judge what the Connect client and its server need beside pyspark itself."""
    missing = [name for name in ("grpc", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        return _verdict(
            "connect", f"{', '.join(missing)} missing for Spark Connect", "pip install 'pyspark[connect]==4.2.0'"
        )
    return _verdict("connect", "Spark Connect libraries are installed", ok=True)


def _verdict(name: str, summary: str, remedy: str = "", *, ok: bool = False, **facts: object) -> dict[str, Any]:
    return {"name": name, "ok": ok, "summary": summary, "remedy": remedy, "facts": facts}


if __name__ == "__main__":
    sys.exit(main())
