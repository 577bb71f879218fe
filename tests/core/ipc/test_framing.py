"""Frames: text of every kind arrives unchanged, and reading is bounded."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from core.ipc.framing import (
    DEPTH_LIMIT,
    FRAME_HEADER,
    FRAME_LIMIT,
    VALUES_LIMIT,
    BadFrame,
    decode_frame,
    encode_frame,
    frame_length,
)


def arrived(message: dict[str, Any]) -> dict[str, Any]:
    frame = encode_frame(message)
    assert frame_length(frame[:FRAME_HEADER]) == len(frame) - FRAME_HEADER
    return decode_frame(frame[FRAME_HEADER:])


@pytest.mark.parametrize("text", ["", "é", "😀", '"\\', "\x00\x1b\u2028\u202e", "\\ud800", "\\xff"])
def test_a_text_arrives_as_it_was_sent(text: str) -> None:
    assert arrived({"a": [text], text: {"b": text}}) == {"a": [text], text: {"b": text}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [(os.fsdecode(b"caf\xe9\xff"), r"caf\xe9\xff"), ("\ud800", r"\ud800"), ("é\udfff'\"", "é\\udfff'\"")],
)
def test_a_name_that_is_not_utf_8_arrives_written_out(text: str, shown: str) -> None:
    assert arrived({"a": [text], text: 1}) == {"a": [shown], shown: 1}


@pytest.mark.parametrize(
    "body",
    [
        rb'{"op":"stop","args":{"tables":["a"]},"line":"\ud800"}',
        rb'{"op":"stop","\udfff":1}',
        rb'{"op":"\uD83D stop"}',
        rb'{"op":["\ude00\ud83d"]}',
        b'{"op":"\xff"}',
        b'{"op":"\xed\xa0\x80"}',
        '{"op":"stop"}'.encode("utf-16"),
    ],
)
def test_a_text_that_is_not_utf_8_is_no_message(body: bytes) -> None:
    with pytest.raises(BadFrame, match=r"UTF-8|not valid JSON"):
        decode_frame(body)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode_frame(rb'{"op":"\ud83d\ude00 \\ud800"}') == {"op": "😀 \\ud800"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_nan_and_infinity_are_null(number: str) -> None:
    assert decode_frame(f'{{"a":{number},"b":[1.5]}}'.encode()) == {"a": None, "b": [1.5]}


@pytest.mark.parametrize("number", [str(2**63), str(-(2**63) - 1), "9" * 4000, "9" * 5000])
def test_an_integer_fits_into_64_bits(number: str) -> None:
    with pytest.raises(BadFrame, match="not valid JSON"):
        decode_frame(f'{{"a":{number}}}'.encode())
    assert decode_frame(f'{{"a":[{2**63 - 1},{-(2**63)}]}}'.encode()) == {"a": [2**63 - 1, -(2**63)]}


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_a_message_is_of_bounded_depth(opens: str, closes: str) -> None:
    def nested(levels: int) -> bytes:
        return f'{{"a":{opens * levels}1{closes * levels}}}'.encode()

    assert decode_frame(nested(DEPTH_LIMIT - 1))["a"]
    for levels in (DEPTH_LIMIT, 900, 40_000):
        with pytest.raises(BadFrame, match=r"levels|not valid JSON"):
            decode_frame(nested(levels))


DECODES = """
import resource, sys
from core.ipc.framing import BadFrame, decode_frame, FRAME_LIMIT
unit = sys.argv[1].encode()
body = b'{"a":[' + unit * (FRAME_LIMIT // len(unit) - 10) + b'0]}'
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_frame(body)
except BadFrame as error:
    assert "more than" in str(error), error
else:
    sys.exit("decoded")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("unit", ["[],", "{},", '{"a":1},', "0.5,", '"ab",', "1,"])
def test_the_largest_frame_of_the_smallest_values_takes_no_memory(unit: str) -> None:
    done = subprocess.run([sys.executable, "-c", DECODES, unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) < 50 * 1024, done


def test_the_texts_of_many_tables_stay_within_the_allowed_number_of_values() -> None:
    texts = {f"pipelines/facts/p/t{n}.sql": "SELECT a, b, c, d FROM STREAM x " * 20 for n in range(10_000)}
    body = json.dumps({"op": "submit_plan", "args": {"texts": texts}}).encode()
    assert decode_frame(body)["op"] == "submit_plan" and len(body) < FRAME_LIMIT
    assert body.count(b",") + body.count(b":") < VALUES_LIMIT
