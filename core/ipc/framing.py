"""Frames of the agent's socket: a four-byte big-endian length, followed by that many bytes of JSON."""

import json
import math
import re
from itertools import chain
from typing import Any

from core.text.escaping import escape_surrogates

PROGRAM_VERSION = "0.1.0"
"""The program version that console and agent report to one another."""

PROTOCOL = 1
"""Version of the protocol, increased whenever a console and an agent of different versions could misread each other."""

FRAME_LIMIT = 64 * 1024 * 1024
"""Maximum size of a frame in bytes."""

FRAME_HEADER = 4

VALUES_LIMIT = 2_000_000
"""Maximum number of brackets, colons and commas in a frame, since each may add a value to the message.

This bounds memory (`[],` takes 3 bytes in a frame, but 72 as a list) and time: decoding blocks all threads, for one
second per million lists. A message about 10,000 tables needs 250,000.
"""

DEPTH_LIMIT = 50
"""Maximum nesting of a message, low enough for recursive code."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class BadFrame(ValueError):
    """Raised for received bytes that are not a valid frame, and for an outgoing message that is too large."""


def encode_frame(message: dict[str, Any]) -> bytes:
    r"""Encode a message as a frame; raises BadFrame if the frame is too large.

    Characters that are not valid UTF-8, as in file names, are written as `\\xff`.
    """
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    body = escape_surrogates(text, backslash="\\\\").encode()
    if len(body) > FRAME_LIMIT:
        raise BadFrame(f"the message has {len(body):,} bytes; at most {FRAME_LIMIT:,} are allowed")
    return len(body).to_bytes(FRAME_HEADER, "big") + body


def frame_length(header: bytes, limit: int = FRAME_LIMIT) -> int:
    """Return the length of a frame, given its header; raises BadFrame if the length exceeds `limit`."""
    size = int.from_bytes(header, "big")
    if size > limit:
        raise BadFrame(f"the other side announced a message of {size:,} bytes; at most {limit:,} are allowed")
    return size


def decode_frame(body: bytes) -> dict[str, Any]:
    """Decode a message; raises BadFrame unless the message is a JSON object of bounded size and depth.

    Every string in the result can be encoded as UTF-8, and every integer fits into 64 bits. NaN and infinities become
    None.
    """
    if sum(body.count(each) for each in (b"[", b"{", b":", b",")) > VALUES_LIMIT:
        raise BadFrame(f"the message may have more than {VALUES_LIMIT:,} values")
    try:
        message = json.loads(body.decode(), parse_int=_whole, parse_float=_finite, parse_constant=lambda _: None)
        if _SURROGATE.search(body):
            json.dumps(message, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise BadFrame("the message contains text that is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise BadFrame("the message is not valid JSON") from error
    if not isinstance(message, dict):
        raise BadFrame("the message is not a JSON object")
    _refuse_deep(message)
    return message


def _whole(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError(digits)
    return number


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _refuse_deep(message: dict[str, Any]) -> None:
    level: list[Any] = [message]
    for _ in range(DEPTH_LIMIT):
        values = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [value for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise BadFrame(f"the message has more than {DEPTH_LIMIT} levels")
