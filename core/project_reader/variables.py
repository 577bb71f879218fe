"""Declarations of variables in headgate.yml, and the value of each variable in each environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import yaml

from core.model.problems import Problem, Where
from core.project.variables import LONGEST_VALUE, REFERENCE, Variable, VariableType, is_valid
from core.project_reader.yaml_reader import YamlSection
from core.text.secret_masking import mask_secrets
from core.text.wording import did_you_mean

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_SECRET_NAME = re.compile(
    r"passw(?:or)?d|passphrase|(?:^|_)pass(?:_|\Z)|pwd|secret|token|credential|(?:api|access|account)_?key", re.I
)
_QUANTITIES = (VariableType.INT, VariableType.DECIMAL, VariableType.BOOLEAN, VariableType.INTERVAL)
"""Types whose values are no secrets, whatever their names, such as `token_lifetime`."""
_DEEPEST = 20
"""Largest number of variables that can refer to each other in a chain."""
_SECRET_REFERENCE = re.compile(r"\$\{(?:env|file):[^{}]+\}\Z")
_LITERAL_SECRET = "would be a secret in a file"


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value as headgate.yml gives it, which may refer to other variables."""

    text: str
    where: Where
    is_text: bool
    """Whether YAML reads the value as a string, rather than as a number, a boolean or a date."""


@dataclass(frozen=True, slots=True)
class DeclaredVariable:
    """A variable as headgate.yml declares it."""

    name: str
    type: VariableType
    where: Where
    default: GivenValue | None
    """The value in environments that give none; None if every environment must give one."""


def read_declared_variables(top: YamlSection) -> dict[str, DeclaredVariable]:
    """Read `variables:` at the top of headgate.yml, by name."""
    section = top.section("variables")
    found: dict[str, DeclaredVariable] = {}
    for name in section.nodes if section is not None else ():
        assert section is not None
        if not _NAME.match(name):
            section.wrong(name, "named with letters, digits and _", "give the variable another name")
            continue
        below = section.section(name)
        if below is None:
            section.wrong(name, "a mapping with a type", f"write {name}: {{type: string}}")
            continue
        below.only(("type", "default"))
        given, types = below.text("type", VariableType.STRING), {str(each): each for each in VariableType}
        if given not in types:
            near = did_you_mean(given.lower(), types) or f"types: {', '.join(types)}"
            below.wrong("type", "the type of a variable", near)
        default = _given(below, "default")
        if default is not None and given not in types:
            default = replace(default, is_text=True)
        found[name] = DeclaredVariable(name, types.get(given, VariableType.STRING), section.at(name), default)
        if default is not None and "${" not in default.text:
            _check(found[name], default, default.text, section.problems)
    return found


def read_values(declared: Mapping[str, DeclaredVariable], environment: YamlSection, name: str) -> tuple[Variable, ...]:
    """Read the variables of an environment, called `name`, completed by the defaults; sorted by name.

    A value that is missing or invalid is reported, and replaced by an example of the type.
    """
    section = environment.section("variables")
    values = {each.name: each.default for each in declared.values()}
    for key in section.nodes if section is not None else ():
        assert section is not None
        if key not in declared:
            near = did_you_mean(key, declared) or f"declare it: variables: {{{key}: {{type: string}}}}"
            section.problems.append(Problem(f"{key} is not a declared variable", near, section.at(key), key))
        elif (given := _given(section, key)) is not None:
            values[key] = given
    for missing in [key for key, value in values.items() if value is None]:
        summary = f"environment {name} gives no value for the variable {missing}, which has no default"
        remedy = f"write variables: {{{missing}: …}} below {name}, or give {missing} a default"
        environment.problems.append(Problem(summary, remedy, environment.at("variables"), missing))
    return _Resolution(declared, {k: v for k, v in values.items() if v is not None}, environment.problems).all()


class _Resolution:
    """The values of one environment, in which references to other variables are replaced."""

    def __init__(
        self, declared: Mapping[str, DeclaredVariable], given: Mapping[str, GivenValue], problems: list[Problem]
    ) -> None:
        self._declared = declared
        self._given = given
        self._problems = problems
        self._values: dict[str, str | None] = {}

    def all(self) -> tuple[Variable, ...]:
        found = []
        for name, variable in sorted(self._declared.items()):
            value = self._value(name, ()) if name in self._given else None
            if value is None or not _check(variable, self._given[name], value, self._problems):
                value = variable.type.example
            found.append(Variable(name, variable.type, _normal(variable.type, value)))
        return tuple(found)

    def _value(self, name: str, above: tuple[str, ...]) -> str | None:
        """Return the text of a variable; None if it cannot be determined, which has been reported."""
        if name in above:
            cycle = above[above.index(name) :]
            start = cycle.index(min(cycle))
            path = [*cycle[start:], *cycle[:start], cycle[start]]
            summary = f"the values of variables refer to each other: {' → '.join(path)}"
            where = self._given[path[0]].where
            self._problems.append(Problem(summary, "give one of them a value of its own", where, path[0]))
            return None
        if len(above) > _DEEPEST:
            summary = f"more than {_DEEPEST} variables refer to each other in a chain, from {above[0]} to {name}"
            where = self._given[above[0]].where
            self._problems.append(Problem(summary, "write some of the values out", where, above[0]))
            return None
        if name not in self._values:
            self._values[name] = self._read(name, above)
        return self._values[name]

    def _read(self, name: str, above: tuple[str, ...]) -> str | None:
        given, parts = self._given[name], {}
        for other in dict.fromkeys(REFERENCE.findall(given.text)):
            if other not in self._declared:
                remedy = did_you_mean(other, self._declared) or f"declare {other}, or write its value"
                self._problems.append(
                    Problem(f"the value of {name} refers to {other}, which is not declared", remedy, given.where, other)
                )
            parts[other] = self._value(other, (*above, name)) if other in self._given else None
        if None in parts.values():
            return None
        length = sum(len(parts[other] or "") for other in REFERENCE.findall(given.text))
        if length > LONGEST_VALUE:
            self._problems.append(_too_long(name, given))
            return None
        return REFERENCE.sub(lambda found: parts[found[1]] or "", given.text)


def _given(section: YamlSection, key: str) -> GivenValue | None:
    """Return the value under a key; None if it is missing or, which is reported, not a single value."""
    node = section.nodes.get(key)
    if node is None:
        return None
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
        section.wrong(key, "one value", f"write one value after {key}:")
        return None
    return GivenValue(str(node.value), section.at(key), is_text=node.tag.endswith(":str"))


def _check(variable: DeclaredVariable, given: GivenValue, value: str, problems: list[Problem]) -> bool:
    """Report a value that does not have the variable's type, or that is a secret; return whether it is valid."""
    name, type = variable.name, variable.type
    named = type not in _QUANTITIES and _SECRET_NAME.search(name)
    if not _SECRET_REFERENCE.match(value):
        if named or mask_secrets(value) != value:
            remedy = 'write a reference instead: "${env:NAME}" or "${file:/path}"'
            problems.append(Problem(f"the value of {name} {_LITERAL_SECRET}", remedy, given.where, name))
            return False
        if "${" in value:
            summary = f"the value of {name} contains ${{, which begins the name of a variable"
            problems.append(Problem(summary, "write names with letters, digits and _ alone", given.where, name))
            return False
    if type is VariableType.STRING and not given.is_text:
        remedy = f'put it in quotes: "{given.text}"'
        problems.append(Problem(f"variable {name} must be a string", remedy, given.where, name))
        return False
    if len(value) > LONGEST_VALUE:
        problems.append(_too_long(name, given))
        return False
    if not is_valid(type, _normal(type, value)):
        remedy = f"write a value such as {type.example}, or declare {name} with another type"
        problems.append(Problem(f"variable {name} must be {type.expected}", remedy, given.where, name))
        return False
    return True


def _too_long(name: str, given: GivenValue) -> Problem:
    summary = f"the value of {name} is longer than {LONGEST_VALUE:,} characters"
    return Problem(summary, "write a shorter value", given.where, name)


def _normal(type: VariableType, value: str) -> str:
    match type:
        case VariableType.BOOLEAN:
            return value.lower()
        case VariableType.INTERVAL:
            return " ".join(value.lower().split())
        case _:
            return value
