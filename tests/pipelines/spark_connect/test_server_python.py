"""The Python of a pool: the message if it cannot run a writer, and that our own pool's can."""

import sys
from typing import Any

import pytest

from pipelines.spark_connect.upsert_writers import other_python

OURS = sys.version_info[:2]


def test_another_version_and_missing_packages_are_named() -> None:
    assert other_python(OURS, []) is None
    assert other_python((3, 9), ["pandas"]) == f"the pool runs Python 3.9, and Headgate {OURS[0]}.{OURS[1]}"
    assert other_python(OURS, ["pandas", "grpc"]) == "the pool's Python has no pandas, grpc"


@pytest.mark.spark
def test_a_pool_of_ours_runs_our_python(ground: Any) -> None:
    assert ground.queries.other_python() is None
