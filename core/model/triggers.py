"""Triggers as Spark writes them, in seconds; light, because the console's first picture needs it."""

import re

_UNIT_S = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_INTERVAL = re.compile(r"\s*(?:interval\s+)?([0-9]{1,18})\s*(millisecond|second|minute|hour)s?\s*")


def trigger_s(text: str) -> float:
    """Read Spark's processing-time interval as seconds; 10 when it is written in a way that is not known here."""
    found = _INTERVAL.fullmatch(text.lower())
    return int(found[1]) * _UNIT_S[found[2]] if found else 10.0
