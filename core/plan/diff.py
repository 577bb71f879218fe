"""The differences between two plans, node by node, as lines and as JSON."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.model.actions import typed_strategy
from core.plan.codec import lasting_verdict, request_as_json
from core.plan.descriptions import act_words, action_words, eta_words
from core.plan.model import Exposure, LeftBehind, Plan, PlanNode, PlanRefusal, PlanWarning, Step
from core.text.diff import unified_diff
from core.text.wording import counted, short_duration, short_number

PLAN_DIFF_FORMAT = "headgate.plan-diff/1"

FIGURES = frozenset(("replay_rows", "eta_s", "predicted"))
"""Parts of a plan, such as costs, whose values may change without an edit."""


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """One difference between two plans."""

    of: str
    """The part that differs: plan, request, node, verdict, order, step, left behind, reader, refusal or warning."""
    subject: str
    """The table, guard or field that differs; empty for any other part."""
    part: str
    """The differing part of the subject, such as `action` or `texts.dml`; empty for the whole subject."""
    before: str | None
    """Value in the first plan; None if only the second plan has the part."""
    after: str | None
    """Value in the second plan; None if only the first plan has the part."""
    lines: tuple[str, ...] = ()
    """Unified diff of SQL or YAML; empty for other values."""

    @property
    def matters(self) -> bool:
        """True if the value changes only through an edit, unlike costs."""
        if self.of == "verdict":
            return lasting_verdict(self.subject, self.before) != lasting_verdict(self.subject, self.after)
        return self.part not in FIGURES


def compare_plans(first: Plan, second: Plan) -> tuple[PlanDifference, ...]:
    """Return the differences between two plans, ignoring hashes and nonces."""
    found = [*_fields("plan", _plan_parts(first), _plan_parts(second))]
    found += _fields("request", _request_parts(first), _request_parts(second))
    found += _nodes(first.nodes, second.nodes)
    verdicts = [{guard.name: guard.verdict for guard in plan.guards} for plan in (first, second)]
    found += _fields("verdict", *verdicts)
    orders = [tuple(str(table) for table in plan.order) for plan in (first, second)]
    common = set(orders[0]) & set(orders[1])
    if [t for t in orders[0] if t in common] != [t for t in orders[1] if t in common]:
        found.append(PlanDifference("order", "", "", " ".join(orders[0]), " ".join(orders[1])))
    found += _listed("step", map(_step, first.steps), map(_step, second.steps))
    found += _listed("left behind", map(_left, first.left_behind), map(_left, second.left_behind))
    found += _listed("reader", map(_reader, first.readers), map(_reader, second.readers))
    found += _listed("refusal", map(_said, first.refusals), map(_said, second.refusals))
    found += _listed("warning", map(_said, first.lasting_warnings), map(_said, second.lasting_warnings))
    return tuple(found)


def difference_lines(first: Plan, second: Plan) -> tuple[str, ...]:
    """Return the differences as lines; changed SQL and YAML follow their node as unified diffs."""
    found = compare_plans(first, second)
    head = f"plan {first.hash[:12]} → {second.hash[:12]}: "
    if not found:
        return (head + "the same",)
    lines = [head + counted(len(found), "difference")]
    for one in found:
        subject = f"{one.subject}: " if one.subject else ""
        part = f"{_LABELS.get(one.part, one.part)} " if one.part else ""
        sign = "+" if one.before is None else "-" if one.after is None else "~"
        if one.before is None or one.after is None:
            words = one.after if one.before is None else one.before
        else:
            words = "" if one.lines else f"{one.before or 'none'} → {one.after or 'none'}"
        lines.append(f"{sign} {one.of:<12}{subject}{part}{words}".rstrip())
        lines += [f"    {line}".rstrip() for line in one.lines]
    return tuple(lines)


def difference_as_json(first: Plan, second: Plan) -> dict[str, Any]:
    """Return the differences as a JSON object; if only one plan has a value, the other plan's value is null."""
    found = compare_plans(first, second)
    return {
        "format": PLAN_DIFF_FORMAT,
        "first": first.hash,
        "second": second.hash,
        "same": not found,
        "differences": [{**asdict(one), "lines": list(one.lines), "matters": one.matters} for one in found],
    }


def difference_words(one: PlanDifference) -> str:
    """Return a difference as a phrase, for example `verdict disk: ok → deny`."""
    subject = " ".join(word for word in (one.of, one.subject, _LABELS.get(one.part, one.part)) if word)
    if one.lines:
        return f"{subject} differs"
    if one.before is None:
        return f"{subject} is new: {one.after}"
    return f"{subject} was removed: {one.before}" if one.after is None else f"{subject}: {one.before} → {one.after}"


def _plan_parts(plan: Plan) -> dict[str, str]:
    return {
        "project": plan.project_id,
        "environment": plan.environment,
        "protected": str(plan.protected).lower(),
        "planner": plan.planner,
        "policy": plan.policy,
        "approvals": str(plan.approvals),
    }


def _request_parts(plan: Plan) -> dict[str, str]:
    data = request_as_json(plan.request)
    return {name: _words(value) for name, value in data.items() if name != "nonce" and _words(value)}


def _nodes(first: Sequence[PlanNode], second: Sequence[PlanNode]) -> Iterable[PlanDifference]:
    before, after = ({node.table: node for node in nodes} for nodes in (first, second))
    for table in sorted(before.keys() | after.keys()):
        old, new = before.get(table), after.get(table)
        if old is None or new is None:
            yield PlanDifference("node", table, "", _action(old), _action(new))
            continue
        for name, words in _PARTS.items():
            if (a := words(old)) != (b := words(new)):
                yield PlanDifference("node", table, name, a, b)
        for kind in ("texts", "old"):
            texts = getattr(old, kind), getattr(new, kind)
            for name in ("dml", "ddl", "yml"):
                yield from _texts(table, f"{kind}.{name}", *(getattr(each, name) for each in texts))
                written = (getattr(each.written, name) if each.written else "" for each in texts)
                yield from _texts(table, f"{kind}.written.{name}", *written)
            a, b = (", ".join(f"{variable} = {value}" for variable, value in each.variables) for each in texts)
            if a != b:
                yield PlanDifference("node", table, f"{kind}.variables", a, b)
            declared = ("\n".join(text for _, text in each.functions) for each in texts)
            yield from _texts(table, f"{kind}.functions", *declared)


def _texts(table: str, name: str, before: str, after: str) -> Iterable[PlanDifference]:
    if before != after:
        yield PlanDifference("node", table, name, before, after, lines=unified_diff(before, after))


def _fields(of: str, first: dict[str, str], second: dict[str, str]) -> Iterable[PlanDifference]:
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            yield PlanDifference(of, name, "", first.get(name), second.get(name))


def _listed(of: str, first: Iterable[tuple[str, str]], second: Iterable[tuple[str, str]]) -> Iterable[PlanDifference]:
    before, after = dict.fromkeys(first), dict.fromkeys(second)
    yield from (
        PlanDifference(of, subject, "", words, None) for subject, words in before if (subject, words) not in after
    )
    yield from (
        PlanDifference(of, subject, "", None, words) for subject, words in after if (subject, words) not in before
    )


def _action(node: PlanNode | None) -> str | None:
    return action_words(node) if node is not None else None


def _step(step: Step) -> tuple[str, str]:
    version = f" v{step.version}" if step.version else ""
    return step.table, f"{act_words(step.do)}{version}" + (f" {' '.join(step.tables)}" if step.tables else "")


def _left(left: LeftBehind) -> tuple[str, str]:
    return left.table, f"stays on {left.reads}"


def _reader(reader: Exposure) -> tuple[str, str]:
    return reader.reader, f"{reader.table}: {reader.before} → {reader.after or 'gone'}"


def _said(one: PlanRefusal | PlanWarning) -> tuple[str, str]:
    return one.table, str(one.summary)


def _words(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(part) for part in value)
    if isinstance(value, dict):
        return " ".join(_words(part) for part in value.values() if part)
    return "" if value in (None, False) else str(value).lower() if value is True else str(value)


_PARTS: dict[str, Callable[[PlanNode], str]] = {
    "action": action_words,
    "change": lambda node: f"{node.change.definition.label} ({node.row})" if node.change is not None else "",
    "strategy": lambda node: typed_strategy(node.strategy),
    "reason": lambda node: str(node.reason.words),
    "because_of": lambda node: ", ".join(node.because_of),
    "level": lambda node: str(node.level),
    "classified": lambda node: str(node.classified).lower(),
    "to_spark": lambda node: "another statement" if node.confirmed_by_spark is False else "",
    "pool": lambda node: node.pool,
    "revision": lambda node: node.revision[:12],
    "reads": lambda node: ", ".join(f"{b.parent} v{b.version}" for b in node.bindings),
    "loses": lambda node: ", ".join(node.loses),
    "replay_rows": lambda node: short_number(node.replay_rows) if node.replay_rows is not None else "",
    "eta_s": lambda node: short_duration(node.eta_s) if node.eta_s is not None else "",
    "predicted": eta_words,
    "offers": lambda node: ", ".join(typed_strategy(offer.strategy) for offer in node.offers),
}
"""The parts of a node that are compared, in output order."""
_LABELS = {
    "because_of": "because of",
    "classified": "change is known",
    "to_spark": "for Spark",
    "replay_rows": "rows to replay",
    "eta_s": "reading time at best",
    "predicted": "ETA",
    "texts.dml": "new dml",
    "texts.ddl": "new ddl",
    "texts.yml": "new yml",
    "texts.variables": "new variables",
    "texts.functions": "new functions",
    "old.functions": "deployed functions",
    "texts.written.dml": "new dml as written",
    "texts.written.ddl": "new ddl as written",
    "texts.written.yml": "new yml as written",
    "old.variables": "deployed variables",
    "old.written.dml": "deployed dml as written",
    "old.written.ddl": "deployed ddl as written",
    "old.written.yml": "deployed yml as written",
    "old.dml": "deployed dml",
    "old.ddl": "deployed ddl",
    "old.yml": "deployed yml",
}
"""User-facing names of parts whose JSON name is not a plain word."""
