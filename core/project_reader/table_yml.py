"""Conversion of `<table>.yml` and the project's `defaults` to Settings, and of Settings to a complete yml."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from core.model.problems import Problem, Where
from core.project.model import (
    APPEND,
    HIDDEN,
    MOST_CORES,
    MOST_MIB,
    SHOWN,
    UPSERT,
    Compatibility,
    Settings,
    is_memory,
    mebibytes,
)
from core.project.resources import UNLIMITED, Amounts, PoolClass, memory_words
from core.project.variables import REFERENCE
from core.text.wording import did_you_mean

if TYPE_CHECKING:
    from core.project.variables import Variable
    from core.project_reader.yaml_reader import YamlSection, YamlValue

KEYS = tuple(field.name for field in fields(Settings))
LATER = ("contract", "static_refresh")
_READER = re.compile(r"[^()\x00-\x1f]{1,100}(?: \([^()\x00-\x1f]{1,100}\))?\Z")
_GROUP = re.compile(r"[^\s\x00-\x1f\x7f]{1,249}\Z")
_IN_URL = r"[A-Za-z0-9._~%+-]{1,250}"
_CONNECTOR = re.compile(
    rf"https?://(?:[A-Za-z0-9._-]{{1,255}}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::[0-9]{{1,5}})?"
    rf"(?:/{_IN_URL})*/connectors/{_IN_URL}\Z"
)
_TRIGGER = re.compile(r"[1-9][0-9]{0,6} (?:millisecond|second|minute|hour)s?\Z")

_CHECK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,79}\Z")
_CHECKS_FORM = 'write checks: [{name: no_negative_amounts, sql: "SELECT * FROM orders WHERE amount < 0"}]'
MOST_CHECKS = 50


def read_settings(
    text: str,
    path: str,
    defaults: Settings,
    problems: list[Problem],
    variables: "Mapping[str, Variable] | None" = None,
) -> Settings:
    """Parse a table's yml file; missing and invalid values get the defaults, and invalid values become Problems.

    Variables are replaced unless `variables` is None, as for a deployed yml, which already has their values.
    """
    if not text.strip():
        return defaults
    if variables is not None and "${" in text:
        return read_settings_with_variables(text, path, defaults, problems, variables).settings
    from core.project_reader.yaml_reader import read_yaml

    section = read_yaml(text, path, problems)
    return defaults if section is None else read_settings_section(section, defaults)


@dataclass(frozen=True, slots=True)
class SubstitutedSettings:
    """Settings with values in place of variables."""

    settings: Settings
    names: tuple[str, ...]
    """The variables that the yml uses, sorted."""
    written: tuple[tuple[str, str], ...]
    """The (key, line of yml) of each setting that uses variables, with `${name}` instead of the values."""


def read_settings_with_variables(
    text: str, path: str, defaults: Settings, problems: list[Problem], variables: "Mapping[str, Variable]"
) -> SubstitutedSettings:
    """Parse a table's yml file like `read_settings`, and replace the variables in it."""
    from core.project_reader.substitution import substitute_settings
    from core.project_reader.yaml_reader import read_yaml

    section = read_yaml(text, path, problems)
    if section is None:
        return SubstitutedSettings(defaults, (), ())
    before = {key: value for key in section.nodes if (value := section.value(key)) is not None}
    names = substitute_settings(section, variables)
    changed = {key: value for key, value in before.items() if value != section.value(key)}
    written = tuple((key, f"{key}: {_written(value, plain=True)}\n") for key, value in changed.items())
    return SubstitutedSettings(read_settings_section(section, defaults), tuple(sorted(names)), written)


def _written(value: "YamlValue", *, plain: bool = False) -> str:
    """Return a YAML value on one line. A string is quoted, except that with `plain` a whole `${name}` is not."""
    if value.items is not None:
        return f"[{', '.join(map(_written, value.items))}]"
    if value.pairs is not None:
        return f"{{{', '.join(f'{_written(key)}: {_written(item)}' for key, item in value.pairs)}}}"
    text = value.text or ""
    return text if plain and REFERENCE.fullmatch(text) else _quoted(text)


READS = ("batch", "stream", "changes", "rows")
"""Accepted values of `reads`."""


def read_settings_section(section: "YamlSection", defaults: Settings) -> Settings:
    """Read Settings from a YAML section; missing and invalid values get the defaults."""
    section.only(KEYS, later=LATER)
    trigger = " ".join(section.text("trigger", defaults.trigger).split())
    if not _TRIGGER.match(trigger):
        section.wrong("trigger", "an interval", "write a number of at most 7 digits and a unit, for example 10 seconds")
        trigger = defaults.trigger
    mode, key = section.text("mode", defaults.mode), section.texts("key", defaults.key)
    if mode not in (APPEND, UPSERT):
        near = did_you_mean(mode.lower(), (APPEND, UPSERT))
        section.wrong("mode", f"{APPEND} or {UPSERT}, not {mode}", near or f"write mode: {UPSERT}, or leave it out")
        # Further mistakes are reported for the value that was most likely meant.
        mode = UPSERT if UPSERT in near else APPEND
    if mode == UPSERT and not key:
        place = "key" if "key" in section.nodes else "mode"
        words = f"mode is {UPSERT} and there is no key: nothing tells one row from another"
        section.problems.append(Problem(words, "name the columns of the key: key: [id]", section.at(place), place))
    for name in ("sequence", "deletes"):
        if mode == APPEND and name in section.nodes:
            section.wrong(name, f"left out without mode: {UPSERT}", f"write mode: {UPSERT} and key: […] as well")
    reads = section.text("reads", defaults.reads)
    if reads not in READS:
        remedy = "write reads: stream where every table is read as a stream, or leave it out"
        remedy = did_you_mean(reads.lower(), READS) or remedy
        section.wrong("reads", "stream, batch, changes or rows", remedy)
        reads = defaults.reads
    return Settings(
        trigger=trigger,
        mode=mode,
        key=key,
        sequence=section.text("sequence", defaults.sequence) if mode == UPSERT else "",
        deletes=section.text("deletes", defaults.deletes) if mode == UPSERT else "",
        owner=section.text("owner", defaults.owner),
        runbook=section.text("runbook", defaults.runbook),
        objective=read_objective(section, defaults.objective),
        description=section.text("description", defaults.description),
        tags=section.texts("tags", defaults.tags),
        reads=reads,
        changes_of=section.texts("changes_of", defaults.changes_of),
        schema_tracking=section.flag("schema_tracking", defaults.schema_tracking),
        mirror_offsets=_group(section),
        connector=_connector(section),
        silence=_silence(section),
        payload=_payload(section, defaults.payload),
        protect=section.flag("protect", defaults.protect),
        readers=_readers(section),
        checks=_checks(section),
        compatibility=read_compatibility(section),
        metadata=section.flag("metadata", defaults.metadata),
        inputs=_inputs(section),
        requirements=_requirements(section),
        state_compatible=_state_compatible(section),
        query_name=_query_name(section),
        pool=_pool(section, defaults.pool),
        resources=read_amounts(section, "resources", defaults.resources),
    )


def _payload(section: "YamlSection", default: str) -> str:
    payload = section.text("payload", default)
    if payload not in (SHOWN, HIDDEN):
        section.wrong("payload", f"{HIDDEN} or {SHOWN}", f"write payload: {HIDDEN}, or leave it out")
        # Without this, a misspelt value would reveal the payload that the author meant to hide.
        return HIDDEN
    return payload


def read_amounts(section: "YamlSection", key: str, default: Amounts, *, with_statements: bool = False) -> Amounts:
    """Read cores and memory, and also a number of statements, from the mapping under a key; each part is optional.

    Without the key, return the default. A part that is invalid counts as missing.
    """
    below = section.section(key)
    if below is None:
        return default
    below.only(("statements", "cores", "memory") if with_statements else ("cores", "memory"))
    memory = below.text("memory", "")
    if memory and not is_memory(memory, 1):
        below.wrong("memory", f"a size from 1m to {MOST_MIB // 1024}g", "write memory: 512m")
        memory = ""
    return Amounts(
        below.count("statements", example="40") if with_statements else None,
        below.bound("cores", most=MOST_CORES, example="0.5"),
        mebibytes(memory) if memory else None,
    )


def _pool(section: "YamlSection", default: str | PoolClass) -> str | PoolClass:
    value, known = section.value("pool"), len(section.problems)
    if value is None or (value.text is None and value.items is None and value.pairs is None):
        return default
    if value.pairs is None:
        return section.text("pool", "")
    below = section.section("pool")
    assert below is not None, "its pairs were read"
    below.only(("class",))
    name = below.text("class", "")
    if not name and len(section.problems) == known:
        below.wrong("class", "the class of some pools", "write pool: {class: NAME}, or pool: NAME")
    return PoolClass(name) if name else default


def _inputs(section: "YamlSection") -> tuple[tuple[str, str], ...]:
    value = section.value("inputs")
    if value is None or _belongs_to_job(section, "inputs"):
        return ()
    pairs = [(key.text or "", item.text or "") for key, item in value.pairs or ()]
    names = [name for name, _ in pairs]
    if not pairs or not all(name.isidentifier() and sql for name, sql in pairs) or len(set(names)) < len(names):
        form = "write inputs: {orders: STREAM orders}, with the SQL of one table for each"
        section.wrong("inputs", "a mapping of parameters of the job's function", form)
        return ()
    return tuple((name, " ".join(sql.split(" "))) for name, sql in pairs)


def _requirements(section: "YamlSection") -> tuple[str, ...]:
    found = section.texts("requirements", ())
    if _belongs_to_job(section, "requirements"):
        return ()
    wrong = next((each for each in found if not _REQUIREMENT.match(each)), None)
    if wrong is not None:
        # pip would read anything else as an option, a path or a URL, and a URL can hold a password.
        section.wrong("requirements", "a list of packages", 'write names with versions: ["phonenumbers==8.13.0"]')
        return ()
    return found


def _state_compatible(section: "YamlSection") -> str:
    found = section.text("state_compatible", "")
    if _belongs_to_job(section, "state_compatible"):
        return ""
    if found and not _HASH.match(found):
        remedy = "write the hash that the plan of the change shows: a yes for all later code would outlive its reason"
        section.wrong("state_compatible", "the hash of the code whose state the job continues", remedy)
        return ""
    return found


def _query_name(section: "YamlSection") -> str:
    if section.name and "query_name" in section.nodes:
        section.wrong("query_name", "in the yml of a statement", "write query_name: in <table>.yml")
        return ""
    return section.text("query_name", "")


def _belongs_to_job(section: "YamlSection", key: str) -> bool:
    if not section.name or key not in section.nodes:
        return False
    section.wrong(key, "in the yml of a job in Python", f"write {key}: in <table>.yml")
    return True


_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._ -]+\])?\s*(?:(?:[<>=!~]=?=?)[\w.*+!<>=~, -]+)?\Z", re.ASCII
)
_HASH = re.compile(r"[0-9a-f]{8,64}\Z")


def read_compatibility(section: "YamlSection") -> str:
    """Read `compatibility`; empty if it is missing or invalid.

    A table does not inherit the project's mode here, because the mode of its product takes precedence over that.
    """
    mode = section.text("compatibility", "")
    if mode and mode not in tuple(Compatibility):
        remedy = did_you_mean(mode.lower(), tuple(Compatibility)) or f"write compatibility: {Compatibility.FULL}"
        section.wrong("compatibility", f"one of {', '.join(Compatibility)}", remedy)
        return ""
    return mode


def read_objective(section: "YamlSection", default: str) -> str:
    """Read `objective: {behind: 5 minutes}`, a statement's maximum delay; return the default if missing or invalid."""
    below = section.section("objective")
    if below is None:
        return default
    below.only(("behind",))
    behind = " ".join(below.text("behind", default).split())
    if behind and not _TRIGGER.match(behind):
        below.wrong("behind", "an interval", "write a number of at most 7 digits and a unit, for example 5 minutes")
        return default
    return behind


def _group(section: "YamlSection") -> str:
    """Read `mirror_offsets`; the project has no default for it, because a group belongs to one statement."""
    group = section.text("mirror_offsets", "")
    if section.name and "mirror_offsets" in section.nodes:
        section.wrong("mirror_offsets", "in the yml of a statement", "write mirror_offsets: in <table>.yml")
        return ""
    if group and not _GROUP.match(group):
        section.wrong("mirror_offsets", "a consumer group", "write at most 249 characters without spaces")
        return ""
    return group


def _connector(section: "YamlSection") -> str:
    """Read `connector`; the project has no default for it, because a connector fills few topics."""
    url = section.text("connector", "")
    if section.name and "connector" in section.nodes:
        section.wrong("connector", "in the yml of a table over topics", "write connector: in <table>.yml")
        return ""
    if url and not _CONNECTOR.match(url):
        form = "connector: http://host:8083/connectors/NAME, without a user or a password"
        section.wrong("connector", "the URL of a connector in Kafka Connect", f"write {form}")
        return ""
    return url


def _silence(section: "YamlSection") -> str:
    """Read `silence`; the project has no default for it, because it depends on what writes a topic."""
    interval = " ".join(section.text("silence", "").split())
    if section.name and "silence" in section.nodes:
        section.wrong("silence", "in the yml of a table over topics", "write silence: in <table>.yml")
        return ""
    if interval and not _TRIGGER.match(interval):
        section.wrong("silence", "an interval", "write a number of at most 7 digits and a unit, for example 5 minutes")
        return ""
    return interval


def _readers(section: "YamlSection") -> tuple[str, ...]:
    """Read the exposures of a table; the project has no default for them, because no exposure reads every table."""
    if section.name and "readers" in section.nodes:
        section.wrong("readers", "in the yml of the table that they read", "write readers: in <table>.yml")
        return ()
    found: dict[str, str] = {}
    for text in section.texts("readers", ()):
        reader = " ".join(text.split())
        name = reader.partition(" (")[0]
        if not _READER.match(reader):
            section.wrong("readers", "a list of names with their owners", "write readers: [finance report (bi-team)]")
        elif name in found:
            section.wrong("readers", f"a list that names {name} once", "write each reader with one owner")
        else:
            found[name] = reader
    return tuple(found[name] for name in sorted(found))


def _checks(section: "YamlSection") -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for name, sql, line in check_entries(section.value("checks")):
        if not name or not sql or not _CHECK_NAME.match(name):
            _wrong_checks(section, "a list of checks, each with a name and a query", line)
        elif name in found:
            _wrong_checks(section, f"a list that names {name} once", line)
        else:
            found[name] = sql
    if section.name and "checks" in section.nodes:
        section.wrong("checks", "in the yml of the table that they check", "write checks: in <table>.yml")
        return ()
    if len(found) > MOST_CHECKS:
        section.wrong("checks", f"at most {MOST_CHECKS}", "put several conditions into one query")
    return tuple(found.items())


def check_entries(value: "YamlValue | None") -> Iterator[tuple[str, str, int]]:
    """Yield the name, query and line of each entry in `checks:`; name and query are empty for a malformed entry."""
    if value is None or (value.text is None and value.items is None and value.pairs is None):
        return
    for item in value.items if value.items is not None else (value,):
        pairs = {str(key.text): each for key, each in item.pairs or ()}
        name, sql = (pairs[key].text or "" if key in pairs else "" for key in ("name", "sql"))
        line = pairs["sql"].line if "sql" in pairs else item.line
        yield (name, sql, line) if set(pairs) == {"name", "sql"} else ("", "", item.line)


def _wrong_checks(section: "YamlSection", expected: str, line: int) -> None:
    section.problems.append(Problem(f"checks must be {expected}", _CHECKS_FORM, Where(section.path, line), "checks"))


@lru_cache(maxsize=10_000)
def settings_as_text(settings: Settings, written: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the settings in the yml form of a revision, without default values; equal settings give equal strings.

    The trigger is always written, because a later change of the project's default must count as a change. `written` is
    as in `SubstitutedSettings`, and replaces the lines of these settings.
    """
    instead = dict(written)
    return "".join(instead.get(key) or _line(key, getattr(settings, key)) for key in KEYS)


def _line(key: str, value: Any) -> str:
    if value == getattr(_NOTHING, key):
        return ""
    if key == "checks":
        checks = (f"{{name: {_quoted(name)}, sql: {_quoted(sql)}}}" for name, sql in value)
        return f"checks: [{', '.join(checks)}]\n"
    if key == "inputs":
        return f"inputs: {{{', '.join(f'{name}: {_quoted(sql)}' for name, sql in value)}}}\n"
    if isinstance(value, tuple):
        return f"{key}: [{', '.join(_quoted(item) for item in value)}]\n"
    if key == "objective":
        return f"{key}: {{behind: {_quoted(value)}}}\n"
    if isinstance(value, PoolClass):
        return f"{key}: {{class: {_quoted(value.name)}}}\n"
    if isinstance(value, Amounts):
        parts = [f"cores: {value.cores:g}"] if value.cores is not None else []
        parts += [f"memory: {memory_words(value.mib)}"] if value.mib is not None else []
        return f"{key}: {{{', '.join(parts)}}}\n"
    if isinstance(value, bool):
        return f"{key}: {'true' if value else 'false'}\n"
    return f"{key}: {_quoted(value)}\n"


_NOTHING = Settings(trigger="")


def deployed_yml_as_file(yml: str, defaults: Settings) -> str:
    """Return the yml of a deployed revision as a file that gives the same settings in a project with these defaults.

    A revision omits values that are Headgate's own defaults, and has `changes_of`, which no file may contain.
    """
    lines = [line for line in yml.splitlines(True) if not line.startswith("changes_of:")]
    given = {line.partition(":")[0] for line in lines}
    for key in KEYS:
        own = getattr(_NOTHING, key)
        left_out = ("trigger", "changes_of") if "mode" in given else ("trigger", "changes_of", "sequence", "deletes")
        if key in given or key in left_out or getattr(defaults, key) == own:
            continue
        value = "{}" if own == UNLIMITED else "[]" if isinstance(own, tuple) else ""
        value = value or ("false" if isinstance(own, bool) else _quoted(own))
        lines.append(f"{key}: {{behind: {value}}}\n" if key == "objective" else f"{key}: {value}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*|[1-9][0-9]* [a-z]+", text) and text.lower() not in _WORDS_OF_YAML:
        return text
    escaped = "".join(
        _ESCAPES.get(letter) or (letter if letter.isprintable() else f"\\U{ord(letter):08x}") for letter in text
    )
    return f'"{escaped}"'


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WORDS_OF_YAML = frozenset(("y", "n", "yes", "no", "true", "false", "on", "off", "null"))
