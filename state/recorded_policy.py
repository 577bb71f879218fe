"""The recorded policy: at most one is in force, at most one waits for an approval, and the others are kept."""

from dataclasses import replace

from core.model.errors import Refused
from core.policy.model import Policy, policy_from_json
from state.row_mapping import values_by_column
from state.row_types import PolicyRow
from state.transactions import LedgerReads, LedgerWrites, insert

IN_FORCE, WAITING, REPLACED = "in force", "waits", "replaced"


class PolicyReads(LedgerReads):
    """Reads of policies."""

    def policy_in_force(self) -> PolicyRow | None:
        """Read what is in force; None before anything was recorded."""
        return self._row(PolicyRow, "SELECT * FROM policy WHERE status = ?", (IN_FORCE,))

    def policy_that_waits(self) -> PolicyRow | None:
        """Read what waits for an approval."""
        return self._row(PolicyRow, "SELECT * FROM policy WHERE status = ?", (WAITING,))

    def recorded_policy(self) -> Policy | None:
        """Return the policy in force as the planner takes it."""
        row = self.policy_in_force()
        return policy_of(row) if row else None


class PolicyWrites(PolicyReads, LedgerWrites):
    """Writes of policies."""

    def put_policy(self, row: PolicyRow) -> None:
        """Write a policy that is in force, or one that waits; it replaces the one of its status.

        One in force also ends the waiting of another, and says of the environment whether it is protected.
        """
        ended = (IN_FORCE, WAITING) if row.status == IN_FORCE else (WAITING, WAITING)
        with self._transaction() as connection:
            connection.execute("UPDATE policy SET status = ? WHERE status IN (?, ?)", (REPLACED, *ended))
            insert(connection, "policy", values_by_column(row, without=("id",)))
            if row.status == IN_FORCE:
                connection.execute("UPDATE facts SET protected = ?", (policy_of(row).protected,))

    def approve_policy(self, digest: str, *, seen: int, approver: str, at: float) -> PolicyRow:
        """Put the policy that is waiting into force; raises Refused if it is not the one that was seen, by its id."""
        with self._transaction() as connection:
            waiting = self.policy_that_waits()
            if waiting is None or (waiting.id, waiting.digest) != (seen, digest):
                raise Refused(f"no policy {digest} is waiting for approval", remedy="headgate policy show")
            row = replace(waiting, status=IN_FORCE, approver=approver, in_force_at=at)
            connection.execute("UPDATE policy SET status = ? WHERE status = ?", (REPLACED, IN_FORCE))
            connection.execute(
                "UPDATE policy SET status = ?, approver = ?, in_force_at = ? WHERE id = ?",
                (row.status, approver, at, row.id),
            )
            connection.execute("UPDATE facts SET protected = ?", (policy_of(row).protected,))
        return row


def policy_of(row: PolicyRow) -> Policy:
    """Read a row's policy."""
    return policy_from_json(row.body)
