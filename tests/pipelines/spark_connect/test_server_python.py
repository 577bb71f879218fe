"""The Python of a pool: the message if it cannot run a writer, and a check that our own pool's Python can."""

import sys
from typing import Any

import pytest

from pipelines.spark_connect.upsert_writers import describe_python_mismatch

OURS = sys.version_info[:2]


def test_another_version_and_missing_packages_are_named() -> None:
    assert describe_python_mismatch(OURS, []) is None
    assert describe_python_mismatch((3, 9), ["pandas"]) == f"the pool runs Python 3.9, and Headgate {OURS[0]}.{OURS[1]}"
    assert describe_python_mismatch(OURS, ["pandas", "grpc"]) == "the pool's Python has no pandas, grpc"


@pytest.mark.spark
def test_a_pool_of_ours_runs_our_python(ground: Any) -> None:
    assert ground.queries.python_mismatch() is None
