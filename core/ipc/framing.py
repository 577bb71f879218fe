"""Frames of the agent's socket: a length of four bytes, big endian, then that many bytes of JSON."""

import json
from typing import Any

PROGRAM_VERSION = "0.1.0"
"""What both sides say of themselves."""

PROTOCOL = 1
"""Raised when an old console or agent could misread the other."""

FRAME_LIMIT = 64 * 1024 * 1024
"""Bytes of the largest frame."""

FRAME_HEADER = 4


class BadFrame(ValueError):
    """The other side sent something that is not a frame of ours."""


def encode_frame(message: dict[str, Any]) -> bytes:
    """Write one message; raises BadFrame when it is larger than the limit."""
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    if len(body) > FRAME_LIMIT:
        raise BadFrame(f"the message has {len(body):,} bytes; at most {FRAME_LIMIT:,} are allowed")
    return len(body).to_bytes(FRAME_HEADER, "big") + body


def frame_length(header: bytes, limit: int = FRAME_LIMIT) -> int:
    """Read the length of the frame that follows; raises BadFrame when it is over the limit."""
    size = int.from_bytes(header, "big")
    if size > limit:
        raise BadFrame(f"the other side announced a message of {size:,} bytes; at most {limit:,} are allowed")
    return size


def decode_frame(body: bytes) -> dict[str, Any]:
    """Read one message; raises BadFrame unless it is a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame("the message is not valid JSON") from error
    if not isinstance(message, dict):
        raise BadFrame("the message is not a JSON object")
    return message
