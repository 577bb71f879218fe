"""Replacement of `${name}` in SQL and in `<table>.yml` by the values of variables.

Outside of quotes, a value is written as a literal of its type. Inside of quotes, its text is inserted, and escaped.
So a value never ends the literal or name around it, and it never changes the lines of a file. Comments are unchanged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

from core.model.problems import Problem, Where
from core.project.variables import REFERENCE, Variable, VariableType, escaped
from core.project_reader.yaml_reader import YamlSection
from core.text.wording import did_you_mean

_PIECES = re.compile(
    r"""--[^\r\n]*|(?P<comment>/\*(?!\+))|(?P<raw>(?<!\w)[rR](?:'[^']*'|"[^"]*"))"""
    r"""|(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<bare>\$\{[A-Za-z_]\w*\})""",
    re.DOTALL | re.ASCII,
)
_COMMENT_SIGNS = re.compile(r"/\*|\*/")
_BEFORE_LITERAL = re.compile(r"""[\w'"`.$@}]\Z""")
_AFTER_LITERAL = re.compile(r"""[\w'"`.$]""")
_QUOTES = ("'", '"')
_TYPED = (VariableType.INTERVAL, VariableType.DATE, VariableType.TIMESTAMP)
_NEAR = 100
"""Number of characters before a variable among which the word of its type is looked for."""
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class SubstitutedSql:
    """The content of an SQL file with values in place of variables."""

    text: str
    names: frozenset[str]
    """The variables that the file uses."""
    replaced: tuple[tuple[int, int, int, int], ...] = ()
    """For each replacement, in order: its line and column in `text`, its length there, and its length as written."""

    def of_file(self, problem: Problem) -> Problem:
        """Return a Problem about `text` with its position in the file as written."""
        where = problem.where
        return replace(problem, where=self._as_written(where)) if where and where.column and self.replaced else problem

    def _as_written(self, where: Where) -> Where:
        shift = 0
        for line, column, length, written in self.replaced:
            if line == where.line and column <= where.column:
                if where.column < column + length:
                    return Where(where.path, line, column - shift)
                shift += length - written
        return Where(where.path, where.line, where.column - shift)


def substitute_sql(
    text: str, path: str, variables: Mapping[str, Variable], problems: list[Problem], *, first_line: int = 1
) -> SubstitutedSql:
    """Replace the variables in SQL, whose first line has the number `first_line` in the file at `path`.

    A reference that cannot be replaced is reported in `problems`, and stays as it is.
    """
    text = text.removeprefix("\ufeff")
    done: list[str] = []
    names: set[str] = set()
    replaced: list[tuple[int, int, int, int]] = []
    at, shift = 0, 0
    for start, end, quote in _references(text):
        name = text[start + 2 : end - 1]
        names.add(name)
        wrong, value = _replacement(text, start, end, quote, variables)
        if wrong:
            line, column = _position(text, start)
            where = Where(path, line + first_line - 1, column)
            problems.append(Problem(wrong[0], wrong[1], where, name))
            continue
        done += (text[at:start], value)
        line, column = _position(text, start)
        if replaced and replaced[-1][0] != line:
            shift = 0
        replaced.append((line, column + shift, len(value), end - start))
        shift += len(value) - (end - start)
        at = end
    return SubstitutedSql("".join((*done, text[at:])), frozenset(names), tuple(replaced))


def substitute_settings(section: YamlSection, variables: Mapping[str, Variable]) -> frozenset[str]:
    """Replace the variables in the values of a yml; return their names. A whole plain value gets the variable's type.

    The SQL of `deletes` and of `checks` is treated like SQL in a file.
    """
    names: set[str] = set()
    seen: set[int] = set()
    for key, node in section.nodes.items():
        for each, is_sql in _scalars(node, key, seen):
            names |= _substitute_scalar(each, section, variables, is_sql=is_sql)
    return frozenset(names)


def _scalars(node: yaml.Node, key: str, seen: set[int], above: str = "") -> Iterator[tuple[yaml.ScalarNode, bool]]:
    """Yield the scalars that contain references, each once, and whether they are SQL."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if "${" in node.value:
            yield node, (above, key) in (("", "deletes"), ("checks", "sql"))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item, key, seen, above)
    elif isinstance(node, yaml.MappingNode):
        for name, item in node.value:
            yield from _scalars(item, str(name.value), seen, key)


def _substitute_scalar(
    node: yaml.ScalarNode, section: YamlSection, variables: Mapping[str, Variable], *, is_sql: bool
) -> frozenset[str]:
    text, line = str(node.value), node.start_mark.line + 1
    if is_sql:
        found = substitute_sql(
            text, section.path, variables, section.problems, first_line=line + (node.style in ("|", ">"))
        )
        node.value = found.text
        return found.names
    names = frozenset(REFERENCE.findall(text))
    for name in sorted(names - variables.keys()):
        # Only a literal block has the lines of the file.
        below = text.count("\n", 0, text.index(f"${{{name}}}")) + 1 if node.style == "|" else 0
        section.problems.append(Problem(*_unknown(name, variables), Where(section.path, line + below), name))
    if not names <= variables.keys():
        return names
    node.value = REFERENCE.sub(lambda reference: variables[reference[1]].value, text)
    whole = REFERENCE.fullmatch(text)
    if whole and not node.style:
        kinds = {VariableType.BOOLEAN: "bool", VariableType.INT: "int"}
        node.tag = _TAG + kinds.get(variables[whole[1]].type, "str")
    return names


def _references(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start and end of each `${name}` outside of comments, with the quote around it.

    The quote is `r'` or `r"` in a raw string, and empty outside of quotes.
    """
    at = 0
    while found := _PIECES.search(text, at):
        at = found.end()
        if found["comment"]:
            at = _end_of_comment(text, at)
        elif found["bare"]:
            yield found.start(), found.end(), ""
        elif (quoted := found["raw"] or found["quoted"]) and "${" in quoted:
            quote = f"r{quoted[1]}" if found["raw"] else quoted[0]
            for reference in REFERENCE.finditer(text, found.start(), found.end()):
                yield reference.start(), reference.end(), quote


def _end_of_comment(text: str, at: int) -> int:
    """Return where a comment ends that was opened before `at`; comments nest in Spark."""
    depth = 1
    for sign in _COMMENT_SIGNS.finditer(text, at):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return len(text)


def _replacement(
    text: str, start: int, end: int, quote: str, variables: Mapping[str, Variable]
) -> tuple[tuple[str, str] | None, str]:
    """Return the summary and remedy of a mistake, or None and what replaces a reference."""
    name = text[start + 2 : end - 1]
    variable = variables.get(name)
    if variable is None:
        return _unknown(name, variables), ""
    shown = f"${{{name}}}"
    if quote in ("r'", 'r"'):
        if quote[1] in variable.value:
            return (f"the value of {name} contains the quote that ends this raw string", "write a plain string"), ""
        return None, variable.value
    if quote:
        if quote != "`" and _follows_backslash(text, start):
            return (f"a backslash stands before {shown}", "remove it, or write two backslashes"), ""
        return None, escaped(variable.value, quote)
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if variable.type is VariableType.IDENTIFIER:
        touches = before in _QUOTES or after in _QUOTES
    else:
        touches = bool(_BEFORE_LITERAL.search(before) or _AFTER_LITERAL.match(after))
    if touches:
        remedy = "put spaces around it, or put the whole into quotes"
        return (f"{shown} touches what stands beside it, and would become {variable.literal} there", remedy), ""
    word = variable.type.upper()
    if variable.type in _TYPED and text[max(0, start - _NEAR) : start].rstrip().upper().endswith(word):
        return (f"{word} stands before {shown}, which becomes {variable.literal}", f"remove {word}"), ""
    return None, variable.literal


def _follows_backslash(text: str, start: int) -> bool:
    at = start
    while at and text[at - 1] == "\\":
        at -= 1
    return (start - at) % 2 == 1


def _unknown(name: str, variables: Mapping[str, Variable]) -> tuple[str, str]:
    near = did_you_mean(name, variables) or f"declare it in headgate.yml: variables: {{{name}: {{type: string}}}}"
    return f"{name} is not a declared variable", near


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
