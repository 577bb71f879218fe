"""Unlocks: a protected environment is read-only for each actor who has not unlocked it for a limited time."""

import re
from dataclasses import dataclass

from core.model.errors import UsageError
from core.text.secret_masking import mask_secrets

SHORTEST_S, LONGEST_S = 60.0, 8 * 3600.0
"""Bounds of the length of an unlock, in seconds."""

TICKET_LIMIT = 200
"""Maximum length of a ticket, in characters."""

_LENGTH = re.compile(r"([1-9][0-9]{0,4})([smh])\Z")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Unlock:
    """One actor's unlock of an environment. It ends by wall clock or by uptime, whichever is first."""

    uid: int
    """Login uid of the actor, as the kernel reported it."""
    actor: str
    ticket: str
    """Why the environment was unlocked, in the actor's words."""
    at: float
    until: float
    """End by the wall clock, in epoch seconds; shifted like other deadlines if that clock is set."""
    boot: str
    """Id of the machine's boot; a reboot ends the unlock."""
    uptime_s: float
    """Uptime of the machine at `at`, in seconds."""
    seconds: float
    """Length of the unlock, which no change of the wall clock prolongs."""

    def remaining_s(self, now: float, *, boot: str, uptime_s: float) -> float:
        """Return the seconds that are left at a time of the wall clock and an uptime; 0 if the unlock has ended."""
        passed = uptime_s - self.uptime_s
        if boot != self.boot or passed < 0:
            return 0.0
        return max(0.0, min(self.until - now, self.seconds - passed))


def parse_unlock_length(text: str) -> float:
    """Parse the length of an unlock, such as `30m` or `2h`, to seconds. Raises UsageError for any other text."""
    found = _LENGTH.match(text)
    return checked_length(float(found[1]) * _UNIT_S[found[2]] if found else 0.0, text)


def checked_length(seconds: float, shown: str) -> float:
    """Return `seconds` if it is a possible length of an unlock. Raises UsageError, which quotes `shown`, otherwise."""
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise UsageError(f"{shown!r} is not a time from 1m to 8h", remedy="write 30m or 2h")
    return seconds


def checked_ticket(text: str) -> str:
    """Return a ticket without surrounding spaces, and with secrets masked, because audit log and lists show it.

    Raises UsageError if it is empty, too long or unprintable.
    """
    ticket = mask_secrets(text.strip())
    if not ticket or len(ticket) > TICKET_LIMIT or not ticket.isprintable():
        raise UsageError(
            f"an unlock needs a ticket: one line of at most {TICKET_LIMIT} characters that says why",
            remedy="headgate unlock 30m OPS-1234",
        )
    return ticket
