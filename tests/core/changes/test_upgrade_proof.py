"""The results of an upgrade test make a plan more careful, never less."""

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.changes.spark_cross_check import proof_key, with_upgrade_proof
from core.model.actions import Action
from core.model.evidence import Edit, EditKind
from core.project.revision import Revision
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import evidence_of, project

SHOP = project(src="", a="src", b="src")
OLD, NEW = (revision_of(table) for name, table in sorted(SHOP.tables.items()) if name != "src")
KNOWN = {proof_key(OLD.hash, NEW.hash): "case one: rows are wrong"}
FILTER = Edit(EditKind.FILTER, after="a > 1")
RESTART = Change(ChangeKind.FILTER_OR_PROJECTION, Action.RESTART, (FILTER,))


def shown(change: Change, old: Revision | None = OLD, new: Revision = NEW) -> Change:
    return with_upgrade_proof(change, KNOWN, old=old, new=new)


def test_a_restart_that_a_test_has_shown_to_be_wrong_becomes_a_rebuild() -> None:
    found = shown(RESTART)
    assert (found.action, found.classified, found.evidence[1]) == (Action.REBUILD, False, FILTER)
    assert evidence_of(found)[0].endswith("must not continue from its checkpoint: case one: rows are wrong")


def test_an_upgrade_proof_applies_only_to_its_two_texts() -> None:
    assert shown(RESTART, NEW, OLD) == shown(RESTART, None) == RESTART
    rebuild = Change(ChangeKind.STATE_CHANGED, Action.REBUILD)
    assert shown(rebuild) == rebuild
