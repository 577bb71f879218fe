"""What an upgrade test has proved of two texts: that the new one must not go on from the old one's checkpoint.

Kept where Spark's answers are, by the two texts. Only what shows a fault is kept: no test proves that there is none.
"""

from collections.abc import Mapping

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.evidence import Notice
from core.project.revision import Revision


def proof_key(old: str, new: str) -> str:
    """Return the key of what is known of an upgrade between two revisions, by their hashes."""
    return f"upgrade {old} {new}"


def with_upgrade_proof(change: Change, known: Mapping[str, str], *, old: Revision | None, new: Revision) -> Change:
    """Return the change; where a test has shown that a restart makes rows wrong, it is treated as the worst."""
    if old is None or change.action in (Action.START, Action.REBUILD):
        return change
    shown = known.get(proof_key(old.hash, new.hash), "")
    if not shown:
        return change
    evidence = (Notice.UPGRADE_TEST.of(shown=shown), *change.evidence)
    return Change(ChangeKind.STATE_CHANGED, Action.REBUILD, evidence, classified=False)
