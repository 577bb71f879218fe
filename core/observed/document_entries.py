"""Conversion between parts of an `--observed` document and domain values; mistakes are collected as Problems."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from typing import Any

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment, OpenTicket, OtherVersion
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Binding
from core.policy.roles_and_rules import Policy, policy_from_json
from core.project.model import Pool
from core.project.revision import RevisionTexts, texts_as_json, texts_from_json
from core.text.wording import did_you_mean

_MOST = 2**63
"""Upper limit for numbers in a document; every real count and measurement is smaller."""
_SHOWN = 80

_LONGEST_NAME = 200
"""Maximum number of characters of a name that are parsed; every valid table name is shorter."""


def cut(value: Any, most: int = _SHOWN) -> str:
    """Format a value for a message, in at most `most` characters; collections become `a mapping` or `a list`."""
    if isinstance(value, Mapping | list | tuple | set):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    said = str(value)
    return said if len(said) <= most else f"{said[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the values in one mapping of a document; an invalid value gives a Problem and the default."""

    subject: str
    label: str
    """Prefix of messages, such as `orders` or `orders: pool`."""
    values: Mapping[str, Any]
    problems: list[Problem]

    def only(self, known: tuple[str, ...]) -> None:
        """Report a Problem for each key of the mapping that is not in `known`."""
        for key in self.values:
            if key not in known:
                word = cut(key)
                self.wrong(f"{word} is not a known key", did_you_mean(word, known) or f"known: {', '.join(known[:4])}")

    def wrong(self, summary: str, remedy: str) -> None:
        """Report a Problem with this mapping or with a value in it."""
        self.problems.append(Problem(f"{self.label}: {summary}", remedy, None, self.subject))

    def word(self, key: str, known: tuple[str, ...], default: str) -> str:
        """Read one of the `known` strings under a key; return the default if the value is missing or not in `known`."""
        value = self.values.get(key, default)
        if isinstance(value, str) and value in known:
            return str(value)
        word = cut(value)
        self.wrong(f"{word} is not a {key}", did_you_mean(word, known) or f"one of {', '.join(known)}")
        return default

    def moment(self, key: str) -> str:
        """Read the time under a key as a string, from a string or an unquoted YAML timestamp; empty if missing."""
        value = self.values.get(key)
        return value.isoformat() if isinstance(value, (date, datetime)) else self.text(key)

    def text(self, key: str, default: str = "") -> str:
        """Read the string under a key; return the default if it is missing or not a string."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(f"{key} must be a string", "put it in quotes")
            return default
        return value

    def whole(self, key: str, default: int = 0) -> int:
        """Read the non-negative integer under a key; return the default if it is missing or invalid."""
        value = self.values.get(key, default)
        if type(value) is not int or not 0 <= value < _MOST:
            self.wrong(f"{key} must be a whole number", f"write {key}: 1")
            return default
        return value

    def number(self, key: str, *, whole: bool) -> Any:
        """Read the non-negative number under a key; None if it is missing or invalid."""
        value = self.values.get(key)
        kinds = (int,) if whole else (int, float)
        if value is not None and (type(value) not in kinds or not 0 <= value < (_MOST if whole else float("inf"))):
            what = "a whole number" if whole else "a number"
            self.wrong(f"{key} must be {what}, 0 or greater", f"write {key}: 1, or leave it out")
            return None
        return value

    def wholes(self, key: str) -> tuple[int, ...]:
        """Read the list of version numbers under a key, sorted and without duplicates; empty if missing or invalid."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int and 0 < item < _MOST for item in value):
            self.wrong(f"{key} must be a list of versions", f"write {key}: [1]")
            return ()
        return tuple(sorted(set(value)))

    def texts(self, key: str) -> tuple[str, ...]:
        """Read the list under a key as strings; empty if it is missing."""
        return tuple(map(str, self.values.get(key) or ()))

    def flag(self, key: str, default: bool = True) -> bool:
        """Read the Boolean under a key; return the default if it is missing or invalid."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.wrong(f"{key} must be true or false", f"write {key}: {'true' if default else 'false'}")
            return default
        return value

    def part(self, key: str, what: str) -> "EntryReader | None":
        """Return a reader for the mapping under a key; None if it is missing or invalid."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.wrong(f"{key} must be {what}", f"write {key}: {{}}, or leave it out")
            return None
        return EntryReader(self.subject, f"{self.label}: {key}", value, self.problems)


def read_name(name: Any, problems: list[Problem]) -> TableName | None:
    """Parse a table name; if it is invalid, report a Problem and return None."""
    try:
        return parse_table_name(cut(name, _LONGEST_NAME))
    except BadName as error:
        problems.append(Problem(f"{cut(name)!r} is not a table name", error.remedy, None, cut(name)))
        return None


_KEYS = {"orphan_versions": "spare", "statistics": "figures"}
"""Keys of a document that differ from the name of their field."""

FIELD_BY_KEY = {_KEYS.get(field.name, field.name): field.name for field in fields(ObservedDeployment)}
"""Field names by key, in document order.

Only the first four keys are documented; the others let an export reproduce the ledger exactly.
"""

_FLAGS = frozenset(("exact",))
_TEXTS = frozenset(("engine", "log", "time_left"))
_FRACTIONS = frozenset(("at", "earliest", "rate_rows_s", "batch_s", "busy"))
"""Fields whose numbers may have decimals."""


def read_entry(table: TableName, entry: Any, problems: list[Problem]) -> ObservedDeployment:
    """Read the observations of a table from its entry in a document; the entry is a mapping or just a state."""
    if isinstance(entry, str):
        entry = {"state": entry}
    if not isinstance(entry, Mapping):
        problems.append(Problem(f"{table} must be a mapping", f"write {table}: {{state: running}}", None, table))
        return ObservedDeployment()
    given = EntryReader(table, table, entry, problems)
    given.only(tuple(FIELD_BY_KEY))
    return ObservedDeployment(
        state=given.word("state", tuple(State), State.ABSENT),
        revision=given.text("revision"),
        deployed=_texts(given),
        since=given.moment("since"),
        version=given.whole("version"),
        highest_version=given.whole("highest_version"),
        bindings=_bindings(given),
        checkpoint_id=given.text("checkpoint_id"),
        checkpoint_ok=given.flag("checkpoint_ok"),
        lost=given.text("lost"),
        lost_kind=given.text("lost_kind"),
        pointer=given.text("pointer"),
        table_id=given.text("table_id"),
        wanted=given.word("wanted", tuple(WantedState), WantedState.RUNNING),
        serial=given.whole("serial"),
        retained=given.wholes("retained"),
        kept=given.wholes("kept"),
        orphan_versions=_versions(given, "spare", "orphan versions"),
        served_by=given.text("served_by"),
        former=_version(given.part("former", _ONE_VERSION)),
        runs_on=_versions(given, "runs_on", "versions that were replaced and still run"),
        in_trash=_version(given.part("in_trash", _ONE_VERSION)),
        tickets=_tickets(given),
        begun=given.flag("begun"),
        begins_where=given.texts("begins_where"),
        pool=_pool(given),
        engine=given.text("engine"),
        begins_after=given.text("begins_after"),
        clones=_clones(given),
        rows_before=given.flag("rows_before", default=False),
        statistics=_statistics(given),
        replaced_ddl=_replaced_ddl(given),
        overlays=_overlays(given),
        trigger=given.text("trigger"),
    )


def entry_as_json(seen: ObservedDeployment) -> dict[str, Any]:
    """Return a table's entry in a document, without default values; `read_entry` restores an equal value from it."""
    entry = {key: getattr(seen, field) for key, field in FIELD_BY_KEY.items()}
    if seen.deployed is not None:
        entry["deployed"] = _filled(seen.deployed)
    for key, version in (("former", seen.former), ("in_trash", seen.in_trash)):
        entry[key] = _version_as_json(version) if version is not None else None
    entry["bindings"] = [asdict(binding) for binding in seen.bindings]
    entry["spare"] = [_version_as_json(orphan) for orphan in seen.orphan_versions]
    entry["runs_on"] = [_version_as_json(version) for version in seen.runs_on]
    entry["begins_where"] = list(seen.begins_where)
    entry["tickets"] = [asdict(ticket) for ticket in seen.tickets]
    entry["retained"], entry["kept"] = list(seen.retained), list(seen.kept)
    entry["pool"] = _pool_entry(seen.pool) if seen.pool is not None else None
    entry["figures"] = known_fields(seen.statistics) if seen.statistics is not None else None
    usual = {key: getattr(_USUAL, field) for key, field in FIELD_BY_KEY.items()}
    entry["clones"] = [list(pair) for pair in seen.clones]
    entry["replaced_ddl"] = [list(pair) for pair in seen.replaced_ddl]
    entry["overlays"] = [list(pair) for pair in seen.overlays]
    usual |= {
        key: []
        for key in (
            "bindings", "spare", "runs_on", "begins_where", "retained", "kept", "tickets", "clones", "replaced_ddl",
            "overlays",
        )
    }  # fmt: skip
    return {key: plain_value(value) for key, value in entry.items() if key == "state" or value != usual[key]}


def plain_value(value: Any) -> Any:
    """Convert enumerations to strings and tuples to lists, at any depth."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(part) for part in value]
    return str(value) if isinstance(value, str) else value


def known_fields(measured: TableStatistics | Headroom) -> dict[str, Any]:
    """Return the fields with known values, that is, with values other than the defaults."""
    nothing = asdict(type(measured)())
    return {key: value for key, value in asdict(measured).items() if value != nothing[key]}


def read_headroom(given: EntryReader) -> Headroom | None:
    """Read the environment's free disk space and pool capacity; None if the document does not include them."""
    part = given.part("room", "a mapping of numbers")
    return Headroom(**_numbers(part, Headroom)) if part is not None else None


def read_policy(given: EntryReader) -> Policy | None:
    """Read the effective policy as `headgate export observed` writes it; None if it is absent or malformed."""
    part = given.part("policy", "a policy")
    if part is None:
        return None
    try:
        policy = policy_from_json(part.values)
        if all(_is_rule(getattr(policy, field.name), field.default) for field in fields(Policy)):
            return policy
    except (TypeError, ValueError, AttributeError):
        pass
    given.wrong(
        "policy is not in the form that `headgate export observed` writes", "leave it out to use the declared policy"
    )
    return None


def read_answers(given: EntryReader) -> dict[str, str]:
    """Read Spark's recorded answers to analysis requests, by request key."""
    part = given.part("answers", "a mapping of strings")
    values = part.values if part is not None else {}
    if not all(isinstance(text, str) for pair in values.items() for text in pair):
        given.wrong("answers must be a mapping of strings", "leave it out to have Spark asked again")
        return {}
    return dict(values)


def _is_rule(value: Any, usual: Any) -> bool:
    if isinstance(usual, tuple):
        return isinstance(value, tuple) and all(isinstance(part, str | tuple) for part in value)
    if isinstance(usual, bool):
        return isinstance(value, bool)
    if isinstance(usual, str):
        return isinstance(value, str)
    return value is None or type(value) in (int, float)


_USUAL = ObservedDeployment(revision="")
_IN_BINDING = {field.name for field in fields(Binding)}


def _texts(given: EntryReader) -> RevisionTexts | None:
    value = given.values.get("deployed")
    if value is None:
        return None
    known = {name: (str, type(None)) for name in ("ddl", "dml", "yml")}
    if not _has_only(value, known | {"variables": (Mapping,), "functions": (Mapping,), "written": (Mapping,)}):
        given.wrong("deployed must contain the texts ddl, dml and yml", "write the deployed texts of these files")
        return None
    written, variables = value.get("written"), value.get("variables", {})
    functions = [each.get("functions", {}) for each in (value, written or {})]
    named = (variables, *functions)
    if not _has_only(written or {}, known | {"functions": (Mapping,)}) or not all(
        _has_only(each, dict.fromkeys(each, (str,))) for each in named
    ):
        summary = "deployed.written must contain ddl, dml, yml and functions, and variables and functions texts"
        given.wrong(summary, "export them again")
        return None
    texts: dict[str, Any] = {key: value.get(key) or "" for key in known} | {"functions": functions[0]}
    if written:
        own = {key: written.get(key) or "" for key in known} | {"functions": functions[1]}
        texts |= {"variables": variables, "written": own}
    return texts_from_json(texts)


def _has_only(value: object, kinds: Mapping[str, tuple[type, ...]]) -> bool:
    return isinstance(value, Mapping) and all(k in kinds and isinstance(v, kinds[k]) for k, v in value.items())


def _bindings(given: EntryReader) -> tuple[Binding, ...]:
    value = given.values.get("bindings")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, Mapping) and {*each} >= _IN_BINDING for each in value):
        given.wrong(
            "bindings must be a list of the upstream tables that are read",
            "write bindings: [{parent: x, version: 1, streamed: true}]",
        )
        return ()
    found = set()
    for number, each in enumerate(value, 1):
        part = EntryReader(given.subject, f"{given.label}: binding {number}", each, given.problems)
        part.only(tuple(field.name for field in fields(Binding)))
        parent = read_name(each["parent"], given.problems)
        version, streamed = part.whole("version"), part.flag("streamed")
        if parent is not None:
            found.add(Binding(parent, version, streamed))
    return tuple(sorted(found, key=lambda b: (b.parent, b.version, not b.streamed)))


_ONE_VERSION = "a mapping with version and deployed"
_NO_VERSION = OtherVersion(0)


def _parts(given: EntryReader, key: str, what: str) -> tuple[EntryReader, ...]:
    value = given.values.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, Mapping) and each.get("version") for each in value):
        given.wrong(f"{key} must be a list of {what}", f"write {key}: [{{version: 2}}]")
        return ()
    label, problems = f"{given.label}: {key}", given.problems
    return tuple(EntryReader(given.subject, f"{label} {n}", each, problems) for n, each in enumerate(value, 1))


def _versions(given: EntryReader, key: str, what: str) -> tuple[OtherVersion, ...]:
    found = (_version(part) for part in _parts(given, key, what))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.version))


def _version(part: EntryReader | None) -> OtherVersion | None:
    if part is None:
        return None
    part.only(("deployed", *(field.name for field in fields(OtherVersion) if field.name != "texts")))
    return OtherVersion(
        version=part.whole("version"),
        revision=part.text("revision"),
        bindings=_bindings(part),
        running=part.flag("running", default=False),
        checkpoint_ok=part.flag("checkpoint_ok"),
        begun=part.flag("begun"),
        begins_where=part.texts("begins_where"),
        texts=_texts(part) or RevisionTexts(),
        trigger=part.text("trigger"),
        drop_after=part.number("drop_after", whole=False),
        outlived=part.wholes("outlived"),
        pool=part.text("pool"),
    )


def _version_as_json(version: OtherVersion) -> dict[str, Any]:
    usual = {**asdict(_NO_VERSION), "texts": {}}
    values = {**asdict(version), "texts": _filled(version.texts)}
    return {"deployed" if key == "texts" else key: value for key, value in values.items() if value != usual[key]}


def _clones(given: EntryReader) -> tuple[tuple[int, int], ...]:
    value = given.values.get("clones")
    if value is None:
        return ()
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and len(p) == 2 and all(type(n) is int and n > 0 for n in p) for p in pairs):
        given.wrong("clones must be a list of pairs of versions", "write clones: [[2, 1]] where v2 is a clone of v1")
        return ()
    return tuple(sorted((clone, base) for clone, base in pairs))


def _replaced_ddl(given: EntryReader) -> tuple[tuple[int, str], ...]:
    value = given.values.get("replaced_ddl")
    if value is None:
        return ()
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and [*map(type, p)] == [int, str] and 0 < p[0] < _MOST for p in pairs):
        given.wrong("replaced_ddl must be a list of versions with their DDL", 'write replaced_ddl: [[1, "CREATE …"]]')
        return ()
    return tuple(sorted((version, ddl) for version, ddl in pairs))


def _overlays(given: EntryReader) -> tuple[tuple[str, int], ...]:
    value = given.values.get("overlays")
    if value is None:
        return ()
    pairs: list[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(p, list) and [*map(type, p)] == [str, int] and 0 < p[1] < _MOST for p in pairs):
        given.wrong("overlays must be a list of environments with versions", 'write overlays: [["pr-123", 1]]')
        return ()
    return tuple(sorted((name, version) for name, version in pairs))


def _tickets(given: EntryReader) -> tuple[OpenTicket, ...]:
    parts = _parts(given, "tickets", "open tickets, each on a version")
    for part in parts:
        part.only(tuple(field.name for field in fields(OpenTicket)))
    return tuple(OpenTicket(part.text("reader"), part.whole("version"), part.text("run")) for part in parts)


def _filled(texts: RevisionTexts) -> dict[str, Any]:
    return {key: text for key, text in texts_as_json(texts).items() if text}


def _pool_entry(pool: Pool) -> dict[str, Any]:
    return {name: getattr(pool, name) for name in Pool.RECORDED} | {"conf": dict(pool.conf)}


def _pool(given: EntryReader) -> Pool | None:
    part = given.part("pool", "a mapping with name, url, master, cores, memory and conf")
    if part is None:
        return None
    usual = Pool()
    part.only(Pool.RECORDED)
    conf = part.values.get("conf") or {}
    if not isinstance(conf, Mapping) or not all(isinstance(text, str) for pair in conf.items() for text in pair):
        part.wrong("conf must be a mapping of strings", "put names and values in quotes")
        conf = {}
    return Pool(
        name=part.text("name", usual.name),
        url=part.text("url") or None,
        cores=part.whole("cores", usual.cores),
        memory=part.text("memory", usual.memory),
        conf=tuple(sorted(conf.items())),
        master=part.text("master") or None,
        master_ui=part.text("master_ui"),
        yarn_ui=part.text("yarn_ui"),
    )


def _statistics(given: EntryReader) -> TableStatistics | None:
    part = given.part("figures", "a mapping of numbers")
    return TableStatistics(**_numbers(part, TableStatistics)) if part is not None else None


def _numbers(part: EntryReader, kind: type[TableStatistics] | type[Headroom]) -> dict[str, Any]:
    names = tuple(field.name for field in fields(kind))
    part.only(names)
    return {
        name: part.flag(name)
        if name in _FLAGS
        else part.text(name)
        if name in _TEXTS
        else part.number(name, whole=name not in _FRACTIONS)
        for name in names
    }
