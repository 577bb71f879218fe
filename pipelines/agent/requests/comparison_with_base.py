"""Compares the tables that an overlay has built with those of its base, at positions that both have read.

The comparison only reads. It runs in a thread of its own and is stored when it is complete, so a kill leaves the result
of the comparison before it.
"""

import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any

from core.changes.classification import classify
from core.changes.kinds import ChangeKind
from core.model.errors import HeadgateError, LedgerUnavailable, PoolUnreachable, Refused, TryAgain, UsageError
from core.model.names import TableName
from core.model.states import State, WantedState
from core.observed.aligned_positions import AlignedPair, Unaligned, Version
from core.observed.versions import Deployment
from core.plan.descriptions import evidence_lines
from core.project.model import Settings
from core.project.overlay import Overlay
from core.project_reader.revision_reader import read_revision
from core.run.records import OVERLAY_COMPARISON, CheckResultRow
from core.text.secret_masking import mask_secrets
from core.text.sentence import Sentence
from core.text.wording import short_duration
from core.validation.verdicts import CheckResult, CheckVerdict, OverlayCheck, RowsLeftOut
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.common_positions import (
    GONE_EVERY_S,
    STRICT_S,
    ended_upstream,
    find_position,
    why_never_aligned,
)
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.differences_explained_by_release import VersionPair
from pipelines.agent.runs.overlay_versions import OWN, OverlayVersions, number_in_ledger
from pipelines.agent.runs.version_comparison import VersionComparison
from state.ledger import LedgerReader
from state.overlay_files import read_overlay
from state.promotion_source import open_source

COMPARE_S = 300.0
"""Default time, in seconds, for which positions that both environments have read are waited for."""

LONGEST_WAIT_S = 6 * 3600.0
"""Longest time, in seconds, that a caller may wait for positions."""

POLL_S = 2.0
"""Seconds between two looks at the positions of tables that have none in common yet."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Work:
    """A comparison in progress, or the latest one; its fields are read by the threads of requests."""

    id: str
    done: int = 0
    of: int = 0
    about: str = "looking at both environments"
    running: bool = True
    error: HeadgateError | None = None


class ComparisonWithBase:
    """The comparison of the agent's environment with its base; at most one runs at a time."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._lock = Lock()
        self._work: _Work | None = None

    def begin(self, seconds: float) -> dict[str, Any]:
        """Begin a comparison that waits at most `seconds` for positions, or join the one that is running.

        Raises UsageError if the environment is no overlay.
        """
        overlay = _overlay_of(self._agent)
        with self._lock:
            joined = self._work is not None and self._work.running
            if self._work is None or not joined:
                self._work = work = _Work(secrets.token_hex(4))
                Thread(target=self._run, args=(work, overlay, seconds), name="comparison", daemon=True).start()
            return {"id": self._work.id, "joined": joined}

    def progress(self, id: str) -> dict[str, Any]:
        """Return how far a comparison is. Raises its error if it failed, and TryAgain if it is not known any more."""
        with self._lock:
            work = self._work
        if work is None or work.id != id:
            raise TryAgain(
                "the comparison ended without a result, because the agent was restarted",
                remedy="headgate release diff compares again",
            )
        running = work.running
        if work.error is not None:
            raise work.error
        return {"running": running, "done": work.done, "of": work.of, "about": work.about}

    def _run(self, work: _Work, overlay: Overlay, seconds: float) -> None:
        agent = self._agent
        try:
            with closing(_ledger_of_base(agent, overlay)) as reader:
                versions = OverlayVersions(
                    LedgerVersions(reader), LedgerVersions(agent.ledger), overlay, agent.layout.environment.name
                )
                rows = tuple(_Comparison(agent, versions, work, seconds).rows())
            agent.faults.pass_by("comparison with the base before it is stored")
            agent.ledger.put_overlay_comparison(rows)
        except HeadgateError as error:
            work.error = error
        except Exception:
            log.exception("the comparison with %s failed", overlay.base)
            work.error = HeadgateError("the comparison failed", remedy="see `headgate logs agent`")
        finally:
            work.running = False


def _ledger_of_base(agent: AgentContext, overlay: Overlay) -> LedgerReader:
    path, here = f"{overlay.base_home}/ledger.db", agent.layout.environment.name
    again = f"headgate down --env {here} --purge, then create the overlay again"
    try:
        return open_source(path, overlay.base, agent.project_id)
    except UsageError as error:
        base = f"{overlay.base}, which {here} overlays,"
        if not os.path.exists(path):
            raise Refused(f"{base} is gone: there is no ledger {path}", remedy=again) from error
        raise Refused(f"{base} was replaced: {error.summary}", remedy=again) from error


def _overlay_of(agent: AgentContext) -> Overlay:
    overlay = read_overlay(agent.places.home)
    if overlay is None:
        name = agent.layout.environment.name
        raise UsageError(
            f"{name} overlays no other environment, so there is nothing to compare it with",
            remedy="headgate release diff RUN shows the comparison of a release",
        )
    return overlay


@dataclass(frozen=True, slots=True)
class _Compared:
    """The checks of one table, with the numbers that its versions have in their ledgers."""

    table: TableName
    old: int
    new: int
    checks: tuple[CheckResult, ...]
    at: AlignedPair | None = None


class _Comparison:
    """One comparison of all tables that both environments serve."""

    def __init__(self, agent: AgentContext, versions: OverlayVersions, work: _Work, seconds: float) -> None:
        self._agent, self._versions, self._work = agent, versions.as_of_now(), work
        self._seconds = seconds
        self._began = agent.monotonic()
        self._looked_at: dict[TableName, float] = {}
        self._here, self._there = self._versions.serving_here(), self._versions.serving_in_base()
        self._changes = {
            table: _change(self._there[table], new) for table, new in self._here.items() if table in self._there
        }

    def rows(self) -> Iterator[CheckResultRow]:
        """Compare table by table, and return the results as rows of the ledger."""
        found = [*self._on_one_side(), *self._compared()]
        at = self._agent.clock()
        for each in found:
            batches = (each.at.blue, each.at.green) if each.at is not None else (None, None)
            for n, check in enumerate(each.checks, 1):
                yield CheckResultRow(
                    OVERLAY_COMPARISON, each.table, n=n, at=at, old_version=each.old, new_version=each.new,
                    old_batch=batches[0], new_batch=batches[1], check=check.check, verdict=check.verdict.value,
                    summary=check.summary, counts=dict(check.counts), examples=tuple(map(dict, check.examples)),
                )  # fmt: skip

    def _on_one_side(self) -> Iterator[_Compared]:
        here, base = self._versions.environment, self._versions.overlay.base
        for table, new in self._here.items():
            if table not in self._there:
                why = CheckResult(OverlayCheck.PRESENCE, CheckVerdict.SKIPPED, f"only {here} has it")
                yield _Compared(table, 0, number_in_ledger(new.version), (why,))
        pending = {
            table: version for table, version in self._versions.deployed() if version > OWN and table not in self._here
        }
        for table, old in self._there.items():
            if table in pending:
                words = f"{self._versions.name(table, pending[table])} does not serve yet"
                why = _left_out(RowsLeftOut.NOT_SERVING, words)
                yield _Compared(table, old.version, number_in_ledger(pending[table]), (why,))
            elif table not in self._here and table not in self._versions.overlay.inherited:
                words = f"only {base} has it: {here} has not built it, and does not read it"
                why = CheckResult(OverlayCheck.PRESENCE, CheckVerdict.SKIPPED, words)
                yield _Compared(table, old.version, 0, (why,))

    def _compared(self) -> Iterator[_Compared]:
        waiting = [table for table in self._here if table in self._there]
        self._work.of = len(waiting)
        reasons: dict[TableName, str] = {}
        while waiting:
            waited = self._agent.monotonic() - self._began
            over = waited >= self._seconds
            strict = not over and waited < min(STRICT_S, self._seconds / 2)
            self._versions = self._versions.as_of_now()
            for table in tuple(waiting):
                found = self._try(table, strict=strict, over=over)
                if isinstance(found, _Compared):
                    waiting.remove(table)
                    self._work.done += 1
                    self._agent.faults.pass_by(f"comparison of {table} with the base")
                    yield found
                    if found.at is not None:
                        # Comparing rows took time, in which the base may have replaced or deleted versions.
                        self._versions = self._versions.as_of_now()
                else:
                    reasons[table] = str(found)
            if waiting:
                self._work.about = f"{waiting[0]} waits for a position that both have read: {reasons[waiting[0]]}"
                if self._agent.stopping.wait(POLL_S):
                    raise TryAgain("the agent is stopping", remedy="headgate release diff compares again")

    def _try(self, table: TableName, *, strict: bool, over: bool) -> _Compared | Sentence:
        """Compare a table if there is a position; return why there is none yet if the table has to wait."""
        key, base_key = ((each.table, each.version) for each in (self._here[table], self._there[table]))
        deployed = self._versions.deployed()
        if key not in deployed or base_key not in deployed:
            gone = self._versions.name(*(key if key not in deployed else base_key))
            return self._skipped(table, RowsLeftOut.DELETED, Sentence(f"{gone} was deleted during the comparison"))
        old, new = deployed[base_key], deployed[key]
        if moved := self._moved(old, new):
            return self._skipped(table, RowsLeftOut.BASE, moved, check=OverlayCheck.BASE)
        if new.writes_topic or old.writes_topic:
            words = Sentence("it writes a topic, whose messages are not compared")
            return self._skipped(table, RowsLeftOut.TOPIC, words)
        try:
            found = find_position(self._agent, self._versions, old, new, strict=strict)
        except TryAgain as error:
            why = Sentence(error.summary)
            return self._skipped(table, RowsLeftOut.POSITION, why) if over else why
        if isinstance(found, Unaligned):
            final = Sentence(found.why) if found.final else self._never(old, new, found.why)
            if final is not None:
                reason = RowsLeftOut.CHANGES if found.incomparable else RowsLeftOut.POSITION
                return self._skipped(table, reason, final)
            if over:
                limit = f"within {short_duration(self._seconds)} no position was found that both have read"
                return self._skipped(table, RowsLeftOut.POSITION, Sentence(f"{limit}: {found.why}"))
            return Sentence(found.why)
        return self._rows_of(old, new, found)

    def _never(self, old: Deployment, new: Deployment, why: str) -> Sentence | None:
        """Return why both versions will have no position in common, or None if they may."""
        name = self._versions.name(new.table, new.version)
        if new.wanted == WantedState.STOPPED or new.state in (State.FAILED, State.STOPPED):
            return Sentence(f"{name} is {new.state}: {why}")
        if ended := ended_upstream(self._versions, new):
            return Sentence(f"{name} has stopped reading, because {ended}: {why}")
        measured = self._versions.measurement(new.table, new.version)
        if measured is None or measured.lag_files != 0:
            # It may still come to the position at which the base stands.
            return None
        now, looked_at = self._agent.monotonic(), self._looked_at.get(new.table)
        looks = looked_at is None or now - looked_at >= GONE_EVERY_S
        if looks:
            self._looked_at[new.table] = now
        return why_never_aligned(self._agent, self._versions, old, files=looks)

    def _rows_of(self, old: Deployment, new: Deployment, at: AlignedPair) -> _Compared:
        self._work.about = f"comparing {new.table}"
        comparison = VersionComparison(self._agent, self._versions)
        position = _position(self._versions, old, new, at)
        layout = self._agent.layout
        names = {
            found.table: layout.catalog_name(found.table, number_in_ledger(found.version))
            for found in self._versions.own.deployed().values()
            if found.active
        }
        try:
            with comparison.turn():
                compared = comparison.compare(VersionPair(old, new, at))
                # The project's checks read the overlay's tables by their names in the catalog.
                checked = comparison.check(new, at.green, names)
        except (PoolUnreachable, LedgerUnavailable):
            raise
        except HeadgateError as error:
            why = Sentence(mask_secrets(" ".join(error.summary.split())))
            return self._skipped(new.table, RowsLeftOut.FAILED, why)
        return self._result(new.table, (self._change_check(new), position, *compared, *checked), at)

    def _skipped(self, table: TableName, reason: RowsLeftOut, why: Sentence, check: str = "differences") -> _Compared:
        skipped = _left_out(reason, str(why), check)
        return self._result(table, (self._change_check(self._here[table]), skipped))

    def _result(self, table: TableName, checks: tuple[CheckResult, ...], at: AlignedPair | None = None) -> _Compared:
        old, new = self._there[table].version, number_in_ledger(self._here[table].version)
        return _Compared(table, old, new, checks, at)

    def _change_check(self, new: Deployment) -> CheckResult:
        kind, words = self._changes[new.table]
        if kind is not ChangeKind.NONE:
            return CheckResult(OverlayCheck.CHANGE, CheckVerdict.EXPECTED, words, {"kind": kind.value})
        upstream = sorted(
            {
                version[0]
                for version in _upstream(self._versions.deployed(), (new.table, new.version))
                if version[1] > OWN and self._changes.get(version[0], (ChangeKind.NONE, ""))[0] is not ChangeKind.NONE
            }
        )
        words = f"unchanged, downstream of {', '.join(upstream)}" if upstream else "unchanged"
        return CheckResult(OverlayCheck.CHANGE, CheckVerdict.OK, words, {"kind": kind.value})

    def _moved(self, old: Deployment, new: Deployment) -> Sentence | None:
        """Return which tables both versions read in different versions of the base, or None if there are none."""
        overlay, here = self._versions.overlay, self._versions.environment
        of_base: dict[TableName, set[int]] = {}
        for table, version in _upstream(self._versions.deployed(), (old.table, old.version)):
            of_base.setdefault(table, set()).add(version)
        found = []
        for table, version in sorted(_inputs_from_base(self._versions.deployed(), (new.table, new.version))):
            inherited = overlay.inherited.get(table, 0)
            if version == OWN and table in overlay.inherited:
                name = self._versions.name(table, inherited)
                found.append(f"{name}, which {here} reads, is no longer where it was")
            elif version and table in of_base and version not in of_base[table]:
                now = " and ".join(self._versions.name(table, each) for each in sorted(of_base[table]))
                found.append(f"{overlay.base} now reads {now}, and {here} still {self._versions.name(table, version)}")
        if not found:
            return None
        again = f"headgate down --env {here} --purge and headgate up --env {here} --from {overlay.base} build it anew"
        return Sentence(f"{overlay.base} has moved on: {'; '.join(found)}; {again}")


def _left_out(reason: RowsLeftOut, words: str, check: str = "differences") -> CheckResult:
    return CheckResult(check, CheckVerdict.SKIPPED, words, {"left_out": reason.value})


def _change(old: Deployment, new: Deployment) -> tuple[ChangeKind, str]:
    """Return the kind of the branch's change to a statement, and its edits in words."""
    before, after = (read_revision(each.table, each.texts, Settings()) for each in (old, new))
    if before is None or after is None:
        return ChangeKind.STATE_CHANGED, "its texts cannot be compared"
    change = classify(before, replace(after, pool=before.pool))
    edits = mask_secrets("; ".join(evidence_lines(change.evidence)))
    label = change.kind.definition.label if change.kind is not ChangeKind.NONE else ""
    return change.kind, f"{label}: {edits}" if edits else label


def _position(versions: OverlayVersions, old: Deployment, new: Deployment, at: AlignedPair) -> CheckResult:
    sides = ((old, at.blue), (new, at.green))
    words = (f"batch {batch} of {versions.name(each.table, each.version)}" for each, batch in sides)
    told = " and ".join(words) if at.blue >= 0 and at.green >= 0 else "neither version has a batch"
    told += "" if at.same_watermarks else ", with different watermarks"
    waters = {"old_watermark_ms": at.blue_watermark_ms, "new_watermark_ms": at.green_watermark_ms}
    return CheckResult(OverlayCheck.POSITION, CheckVerdict.OK, told, waters)


def _upstream(deployed: Mapping[Version, Deployment], version: Version) -> frozenset[Version]:
    """Return all versions that a version reads, directly or through others."""
    found: set[Version] = set()
    open_ = [version]
    while open_:
        known = deployed.get(open_.pop())
        fresh = {(binding.parent, binding.version) for binding in known.bindings} - found if known else set()
        found |= fresh
        open_ += fresh
    return frozenset(found)


def _inputs_from_base(deployed: Mapping[Version, Deployment], version: Version) -> Iterable[Version]:
    """Return the inputs of the overlay's versions, up from this one, that the overlay does not build."""
    found: set[Version] = set()
    open_, seen = [version], set[Version]()
    while open_:
        known = deployed.get(each := open_.pop())
        if known is None or each in seen:
            continue
        seen.add(each)
        for binding in known.bindings:
            parent = (binding.parent, binding.version)
            if binding.version > OWN:
                open_.append(parent)
            else:
                found.add(parent)
    return found
