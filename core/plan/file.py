"""Plan files: a plan, the project files from which it was computed, its creation time and a digest, but no secrets.

The agent does not trust the file: it computes the plan again from the project files, with its own ledger, observations
and policy. The digest detects damage and careless edits before anything is sent.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from core.model.errors import Refused, UsageError
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash
from core.plan.model import PLANNER_VERSION, Plan
from core.project.unreadable_file import texts_from_json

PLAN_FILE_FORMAT = "headgate.plan-file/1"

_PASSWORD = r"(?:password|passwd|passphrase|pwd|(?:api|account)[._-]?key)[\w.-]*"
_CALLED = rf"(?:{_PASSWORD}|(?:secret|token|credential|access[._-]?key)[\w.-]*)"
_YML_SECRET = re.compile(rf"{_CALLED}[\"']?\s*:\s*(?!\{{)[\"']?(?!\$\{{)[^\s\"'#]", re.I)
_SQL_SECRET = re.compile(
    rf"[\"'`][\w.-]*{_CALLED}[\"'`]\s*[=,]?\s*[\"'](?!\$\{{)[^\"']"
    r"|\b(?:OPTIONS|PROPERTIES|TBLPROPERTIES|SERDEPROPERTIES|WITH)\s*\((?:[^()\"']|\"[^\"]*\"|'[^']*')*?"
    rf"{_CALLED}\s*=?\s*[\"'](?!\$\{{)[^\"']",
    re.I,
)
"""Matches a literal secret: a key named like a secret, with a value other than `${…}`."""
_ANY_SECRET = re.compile(
    rf"{_PASSWORD}\s*=>?\s*\\*[\"'](?!\$\{{)[^\"'\\]"  # password = 'x', password="x" of a JAAS configuration
    r"|jaas\.config[^;]{0,2000}?password\s*=\s*(?!\$\{)[^\s\"'\\]"
    rf"|[?&;][\w.-]*{_CALLED}=(?!\$\{{)[^\s\"'&;]"
    r"|://[^\s/:@\"']*:(?!\$\{)[^\s/@\"']+@",  # a URL's user:password@
    re.I,
)
_KNOWN_BY_FORM = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\b(?:gh[oprsu]|github_pat)_[0-9A-Za-z_]{20}|-----BEGIN [A-Z ]*PRIVATE KEY"
)
"""Matches AWS keys, GitHub tokens and private keys by their form."""


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The content of a plan file."""

    plan: Plan
    texts: Mapping[str, str]
    """Contents of the declared project files, by path within the project."""
    created_at: float
    """Creation time of the plan, in epoch seconds."""
    expires_at: float
    """When the plan expires by the project's setting, in epoch seconds; the agent applies its environment's setting."""
    author: str
    """Login that made the plan; the agent instead records the login that submits the file as the author."""


def refuse_secrets(texts: Mapping[str, str]) -> None:
    """Raise Refused if a file seems to contain a password or token, because plan files are shared."""
    for path in sorted(texts):
        text = texts[path]
        patterns = (_SQL_SECRET if path.endswith(".sql") else _YML_SECRET, _ANY_SECRET, _KNOWN_BY_FORM)
        # A match may start at an earlier option; the secret itself is at its end.
        ends = [found.end() for pattern in patterns if (found := pattern.search(text))]
        if ends:
            line = text.count("\n", 0, min(ends) - 1) + 1
            raise Refused(
                f"{path}:{line} contains what looks like a secret, and a plan file includes the full text of each file",
                remedy="put it in the pool's own configuration, not in a project file",
            )


def saved_as_text(saved: SavedPlan) -> str:
    """Return the content of a plan file: a single line of canonical JSON."""
    body = {
        "format": PLAN_FILE_FORMAT,
        "created_at": saved.created_at,
        "expires_at": saved.expires_at,
        "author": saved.author,
        "plan": plan_as_json(saved.plan),
        "texts": dict(saved.texts),
    }
    return canonical_text({**body, "digest": _digest(body)}) + "\n"


def saved_from_text(text: str, name: str) -> SavedPlan:
    """Parse the content of a plan file.

    Raises UsageError if it is damaged or not a plan file, and Refused if another planner version made the plan.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a plan file: {error}", remedy=_SAVE) from error
    if not isinstance(data, dict) or data.get("format") != PLAN_FILE_FORMAT:
        said = data.get("format") if isinstance(data, dict) else None
        raise UsageError(
            f"{name} is not a plan file in format {PLAN_FILE_FORMAT}" + (f": {said}" if said else ""), remedy=_SAVE
        )
    said = data["plan"].get("planner") if isinstance(data.get("plan"), dict) else PLANNER_VERSION
    if said != PLANNER_VERSION:
        raise Refused(
            f"{name} was planned by planner version {said}, but this program has version {PLANNER_VERSION}",
            remedy="plan again",
        )
    if data.pop("digest", None) != _digest(data):
        raise UsageError(f"{name} is damaged or was edited: its digest does not match its content", remedy=_SAVE)
    plan = plan_from_json(data["plan"]) if isinstance(data.get("plan"), dict) else None
    times = [at for at in (data.get("created_at"), data.get("expires_at")) if _is_time(at)]
    texts, author = data.get("texts"), data.get("author")
    if (
        plan is None
        or len(times) < 2
        or not isinstance(texts, dict)
        or not all(isinstance(text, str) for text in texts.values())
        or not isinstance(author, str)
    ):
        raise UsageError(f"{name} lacks its plan, texts, author or creation time", remedy=_SAVE)
    if plan_hash(plan) != plan.hash:
        raise UsageError(f"{name} was edited: its hash does not match its plan", remedy=_SAVE)
    return SavedPlan(plan, texts_from_json(texts), times[0], times[1], author)


_SAVE = "plan again: headgate plan … --save FILE"


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _digest(body: Mapping[str, Any]) -> str:
    try:
        text = canonical_text(body)
    except ValueError:
        # Python parses NaN and Infinity, which are not JSON and which Headgate never writes.
        return ""
    return hashlib.sha256(text.encode("ascii")).hexdigest()
