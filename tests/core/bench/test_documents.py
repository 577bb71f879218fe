import json
from typing import Any

import pytest

from core.bench.quantiles import distribution
from core.bench.request import BenchKind, BenchRequest, BenchSource, BenchStatement, request_from_json
from core.bench.result import BenchResult, Figure, FigureKind, TrialRecord, result_from_json, spread_of
from core.bench.watermark_waits import WatermarkWait
from core.model.errors import UsageError
from core.model.names import TableName

A, B, SOURCE = TableName("a"), TableName("b"), TableName("source")
REQUEST = BenchRequest(
    BenchKind.LATENCY,
    (
        BenchStatement(B, "/t/b", "delta", "/c/b", ((A, "/t/a", "parquet"),), 5.0, 60.0, WatermarkWait(30, 10)),
        BenchStatement(A, "/t/a", "parquet", "/c/a", ((SOURCE, "/l", "json"),), 10.0, 300.0),
    ),
    record_bytes=(100, 200),
    sources=(
        BenchSource(SOURCE, "/l", "json", (("id", "bigint"),), {"header": "true"}, "/s", "at", (("x", True, ("y",)),)),
    ),
    static=(
        BenchSource(A, "/s", "csv", (("id", "bigint"),), joined=(("id", "source.id"),), ends=("to_at",), within="at"),
    ),
)
RESULT = BenchResult(
    kind="latency",
    project="p",
    environment="dev",
    started_at=1.0,
    took_s=2.0,
    revision="abc",
    dirty=True,
    machine={"cores": 2},
    parameters={"rate": 100.0},
    figures=(
        Figure(FigureKind.LATENCY, "idle", "a", 1, 2.0, distribution([1, 2, 3]), "source", 1, "no rows"),
        Figure(FigureKind.RATE, "", "", 1, 500.0),
    ),
    trials=(
        TrialRecord(
            1,
            500.0,
            True,
            100,
            20.0,
            ({"table": "a", "keeping": "keeps up"},),
            "100",
            (Figure(FigureKind.SERVER_CPU, "100", "", 1, 0.5),),
        ),
    ),
    stages=(("a", "source"),),
    notes=("a note",),
)


def test_a_request_survives_json_and_orders_its_statements() -> None:
    assert request_from_json(json.loads(json.dumps(REQUEST.as_json()))) == REQUEST
    assert [each.table for each in REQUEST.in_order] == [A, B]


def test_a_result_survives_json() -> None:
    assert result_from_json(json.loads(json.dumps(RESULT.as_json()))) == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"format": "headgate/tests"}, {"schema": 2}, {"figures": [{"kind": "speed"}]}, {"trials": [{}]}, {"stages": 3},
        {"machine": ...},
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_sentence(change: dict[str, Any]) -> None:
    body = {**RESULT.as_json(), **change}
    for name in [name for name, value in body.items() if value is ...]:
        del body[name]
    with pytest.raises(UsageError) as refused:
        result_from_json(body)
    assert refused.value.remedy


def test_the_spread_of_repetitions_is_their_range_in_parts_of_the_mean() -> None:
    assert spread_of([9, 10, 11]) == 0.2
    assert spread_of([9]) == spread_of([]) == 0
