"""Conversion of plans to and from JSON, and the hash of their canonical JSON (sorted keys, no spaces, ASCII only)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind
from core.model.errors import UsageError
from core.model.evidence import evidence_from_json
from core.model.names import TableName
from core.model.reasons import Reason
from core.observed.versions import Binding
from core.plan.descriptions import evidence_as_json, undo_command
from core.plan.model import (
    PLAN_FORMAT,
    Exposure,
    Guard,
    LeftBehind,
    Placement,
    Plan,
    PlanNode,
    PlanRefusal,
    PlanWarning,
    Retention,
    RetentionKind,
    Step,
    StrategyOffer,
    Undo,
)
from core.plan.preconditions import is_there
from core.plan.request import PlanRequest, PromotedRevision, StrategyChoice
from core.project.revision import RevisionTexts, texts_as_json, texts_from_json
from core.text.sentence import Fact

T = TypeVar("T")


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as the JSON object that `--json` prints; unknown numbers are null."""
    data = {"format": PLAN_FORMAT} | {name: getattr(plan, name) for name in _PLAN_FIELDS}
    data |= {name: [_flat(each) for each in data[name]] for name in ("steps", *_KIND_BY_LIST)}
    data["request"] = request_as_json(plan.request)
    data["nodes"] = [_node_as_json(node) for node in plan.nodes]
    data["order"] = list(plan.order)
    data["preconditions"] = {table: dict(values) for table, values in plan.preconditions.items()}
    data["undo"] = [{**_flat(undo), "command": undo_command(plan, undo)} for undo in plan.undo]
    return data


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """Rebuild a plan from its JSON object, without verifying the hash.

    Raises UsageError if the format differs or the object is damaged.
    """
    if data.get("format") != PLAN_FORMAT:
        raise UsageError(f"this is not a plan in format {PLAN_FORMAT}", remedy="plan again with this version")
    try:
        given = {name: data[name] for name in _PLAN_FIELDS}
        given |= {name: tuple(_unflat(kind, each) for each in data[name]) for name, kind in _KIND_BY_LIST.items()}
        given |= {name: str(data[name]) for name in ("hash", "project_id", "environment", "planner", "policy")}
        given["protected"], given["approvals"] = bool(data["protected"]), int(data["approvals"])
        given["request"] = request_from_json(data["request"])
        given["nodes"] = tuple(_node_from_json(node) for node in data["nodes"])
        given["order"] = tuple(data["order"])
        given["steps"] = tuple(_unflat(Step, step, do=StepKind(step["do"])) for step in data["steps"])
        given["preconditions"] = {TableName(table): dict(values) for table, values in data["preconditions"].items()}
        return Plan(**given)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"this plan is damaged: {type(error).__name__} {error}", remedy="plan again") from error


def request_as_json(request: PlanRequest) -> dict[str, Any]:
    """Return a request as a JSON object; most fields are omitted if empty."""
    data = _flat(request)
    data["choices"] = [_flat(choice) for choice in request.choices]
    data["promotes"] = [_flat(each) for each in request.promotes]
    return {name: value for name, value in data.items() if value or name in _ALWAYS}


def request_from_json(data: Mapping[str, Any]) -> PlanRequest:
    """Rebuild a request from the JSON object that `request_as_json` returns."""
    parts: dict[str, Any] = {}
    for name in _NAMES_BY_KIND[PlanRequest]:
        if name in data or name in _REQUIRED:
            kind = type(getattr(_PLAIN_REQUEST, name))
            parts[name] = tuple(map(str, data[name])) if kind is tuple else kind(data[name])
    chosen = data.get("choices", ())
    parts["choices"] = tuple(
        StrategyChoice(TableName(each["table"]), str(each["strategy"]), str(each.get("at", ""))) for each in chosen
    )
    parts["promotes"] = tuple(
        PromotedRevision(TableName(each["table"]), str(each["revision"]), str(each.get("plan", "")))
        for each in data.get("promotes", ())
    )
    return PlanRequest(**parts)


def canonical_text(data: Mapping[str, Any]) -> str:
    """Return an object as canonical JSON, which is identical in every process."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def plan_hash(plan: Plan) -> str:
    """Return the SHA-256, in hex, of a plan's canonical JSON without the parts that may change without an edit.

    It excludes measured figures and costs, explanations (evidence, sentences of guards, undo), the warning about the
    pool's load, unknown topics, warnings that drift, the exact state of an existing table, and indirect readers that
    stay on an old version. A change confirmed by Spark's analysis has the same hash as one that Spark has not analysed,
    because the analysis can only make a change more severe. A change's kind is represented by its code (field `row`).
    """
    body = {"format": PLAN_FORMAT} | {name: getattr(plan, name) for name in _HASHED[Plan]}
    body["request"] = json.loads(canonical_text(request_as_json(plan.request)))
    body["refusals"] = [refusal for refusal in plan.refusals if not refusal.guard]
    body["warnings"] = plan.lasting_warnings
    body["left_behind"] = [left for left in plan.left_behind if left.depth == 1]
    body["preconditions"] = {
        table: {name: is_there(value) if name == "state" else value for name, value in sorted(values.items())}
        for table, values in sorted(plan.preconditions.items())
    }
    # Names are already sorted. The encoder asks `_hashed` for each object, so none is built and sorted in advance.
    text = json.dumps(
        dict(sorted(body.items())), separators=(",", ":"), allow_nan=False, check_circular=False, default=_hashed
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _hashed(value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is RevisionTexts:
        return texts_as_json(value)
    names, parts = _HASHED_BY_KIND[kind]
    data = dict(zip(names, parts(value), strict=True))
    if kind is PlanNode:
        data["confirmed_by_spark"] = data["confirmed_by_spark"] is not False
    elif kind is Guard:
        data["verdict"] = lasting_verdict(data["name"], data["verdict"])
    return data


def lasting_verdict(guard: str, verdict: str | None) -> str | None:
    """Return a guard's verdict for the hash: what keeps changing, or may be observed later, counts as ok.

    These are a warning about the pool's load, and topics that are not known to exist.
    """
    return "ok" if (guard, verdict) in (("pool", "warn"), ("topics", "unknown")) else verdict


_PREDICTED = ("predicted_low_s", "predicted_high_s")
_LEFT_OUT = {
    Plan: ("hash", "undo", *_PREDICTED),
    Guard: ("summary", "remedy", "kind", "fields"),
    PlanRefusal: ("guard", "kind", "fields"),
    PlanWarning: ("kind", "fields", "drifts"),
    PlanNode: (
        "placed",
        "placed_n",
        "change",
        "evidence",
        "replay_rows",
        "replay_bytes",
        "eta_s",
        "retention",
        "undo",
        *_PREDICTED,
    ),
    Step: _PREDICTED,
    StrategyOffer: ("replay_rows", "replay_bytes", "eta_s", "disk_bytes"),
}


def _flat(value: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object; its fields must be scalars or tuples of scalars."""
    names, parts = _FIELDS_BY_KIND[type(value)]
    return {
        name: part if part.__class__ in _PLAIN else _scalar(part)
        for name, part in zip(names, parts(value), strict=True)
    }


def _node_as_json(node: PlanNode) -> dict[str, Any]:
    data = _flat(node)
    data["reason_words"] = str(node.reason.words)
    data["evidence"] = [evidence_as_json(seen) for seen in node.evidence]
    data["bindings"] = [_flat(binding) for binding in node.bindings]
    data["offers"] = [{**_flat(offer), "executable": offer.executable} for offer in node.offers]
    data["retention"] = _flat(node.retention) if node.retention is not None else None
    data["texts"], data["old"] = texts_as_json(node.texts), texts_as_json(node.old)
    data["placed"] = node.placed.as_json() if node.placed is not None else None
    return data


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    return [_scalar(part) for part in value] if isinstance(value, tuple) else value


_REQUIRED = frozenset(("verb", "tables", "products", "everything", "children", "exclude", "rebuild"))
_ALWAYS = _REQUIRED | {"nonce"}
_PLAIN_REQUEST = PlanRequest()

_PLAN_FIELDS = tuple(field.name for field in fields(Plan))
_KIND_BY_LIST: Mapping[str, type] = {
    "left_behind": LeftBehind, "guards": Guard, "refusals": PlanRefusal, "warnings": PlanWarning,
    "readers": Exposure, "undo": Undo,
}  # fmt: skip
"""Fields of a plan that hold lists of flat objects, and the class of these objects."""

_PLAIN = frozenset((str, int, bool, float, type(None)))
_CODE: Mapping[type, tuple[str, ...]] = {PlanNode: ("row",)}
"""Properties written to the JSON in addition to the fields of a class."""
_NAMES_BY_KIND: Mapping[type, tuple[str, ...]] = {
    kind: (*_CODE.get(kind, ()), *(field.name for field in fields(kind)))
    for kind in (
        PlanRequest, StrategyChoice, PromotedRevision, PlanNode, StrategyOffer, Step, Binding, Retention,
        *_KIND_BY_LIST.values(),
    )
}  # fmt: skip
_FIELDS_BY_KIND = {kind: (names, attrgetter(*names)) for kind, names in _NAMES_BY_KIND.items()}
"""Field names of each dataclass, and a fast getter of all fields: a plan of 3,000 tables has 20,000 objects."""
_HASHED = {
    kind: tuple(sorted({*names} - {*_LEFT_OUT.get(kind, ())}))
    for kind, names in ((Plan, _PLAN_FIELDS), *_NAMES_BY_KIND.items())
}
_HASHED_BY_KIND = {kind: (names, attrgetter(*names)) for kind, names in _HASHED.items()}


def _unflat(kind: type[T], data: Mapping[str, Any], **parts: Any) -> T:
    """Rebuild a dataclass from an object made by `_flat`; `parts` overrides fields, and unknown names are ignored."""
    known = _NAMES_BY_KIND[kind]
    given = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items() if n in known}
    return kind(**given | parts)


def _node_from_json(data: Mapping[str, Any]) -> PlanNode:
    return _unflat(
        PlanNode,
        {name: value for name, value in data.items() if name != "row"},
        change=ChangeKind(data["change"]) if data["change"] else None,
        action=Action(data["action"]),
        reason=Reason(data["reason"]),
        evidence=tuple(map(evidence_from_json, data["evidence"])),
        bindings=tuple(_unflat(Binding, binding) for binding in data["bindings"]),
        offers=tuple(_unflat(StrategyOffer, offer) for offer in data["offers"]),
        retention=_retention(data["retention"]) if data["retention"] else None,
        texts=texts_from_json(data["texts"]),
        old=texts_from_json(data["old"]),
        # Plans of planner versions before 13 have none.
        placed=_placed(data["placed"]) if data.get("placed") else None,
    )


def _placed(data: Mapping[str, Any]) -> Fact[Placement]:
    values = tuple((name, value) for name, value in data.items() if name not in ("kind", "sentence"))
    return Fact(Placement[str(data["kind"]).upper()], values)


def _retention(data: Mapping[str, Any]) -> Retention:
    return Retention(RetentionKind(data["kind"]), int(data["files_gone"]), str(data["earliest"]))
