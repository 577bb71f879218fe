"""Submitted plans, from the ledger: found by the first characters of their hash, and read back as values."""

import json
from typing import Any

from core.model.errors import LedgerUnavailable, UsageError
from core.plan.model import Plan
from state.ledger import LedgerReader
from state.row_types import PlanRow

_SHORTEST = 4


def find_plan_row(reader: LedgerReader, hash_prefix: str) -> PlanRow:
    """Find the row of the one submitted plan whose hash begins so; raises UsageError, also when it could be several."""
    # An unset variable in a script gives an empty text, and the newest plan is not what it meant.
    if len(hash_prefix) < _SHORTEST:
        remedy = f"give the first {_SHORTEST} characters of its hash, or more; headgate review lists the plans"
        raise UsageError(f"{hash_prefix!r} is too short to identify a plan", remedy=remedy)
    hashes = reader.plan_hashes(hash_prefix)
    if len(hashes) > 1:
        named = ", ".join(found[:12] for found in hashes)
        raise UsageError(f"{hash_prefix} matches several plans: {named}", remedy="give more characters of the hash")
    row = reader.plan(hash_prefix)
    if row is None:
        raise UsageError(f"there is no plan {hash_prefix}", remedy="headgate review lists the plans")
    return row


def plan_of_row(row: PlanRow) -> Plan:
    """Read the plan's body; raises LedgerUnavailable when it cannot be read back."""
    from core.plan.codec import plan_from_json

    try:
        body: dict[str, Any] = json.loads(row.body)
        return plan_from_json(body)
    except (ValueError, KeyError) as error:
        raise LedgerUnavailable(f"plan {row.hash[:12]} cannot be read back", remedy="plan again") from error
