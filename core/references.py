"""Where a statement names a parent's column, with its line; found by tokens, so that doubt counts as a reference."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.names import TableName
from core.project import Table
from core.sql.values import Parsed, Read

_TOKEN = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\s+)"""
    r"|(?P<name>`[^`]*`|[A-Za-z_][A-Za-z0-9_]*)|(?P<other>[0-9][0-9A-Za-z_.]*|.)",
    re.DOTALL,
)
_SETS = frozenset(("union", "except", "intersect", "minus"))
_AFTER_SELECT = frozenset(("group", "having", "order", "sort", "cluster", "distribute"))
"""Clauses in which an unqualified name may be an alias of the same SELECT."""


@dataclass(frozen=True, slots=True)
class Token:
    """A name or a single other character outside comments and strings."""

    text: str
    """Lower case, without back-ticks."""
    is_name: bool
    start: int
    block: int
    """Number of the innermost query block; a block is one SELECT up to its bracket or set operator."""
    clause: str
    """The clause word of the block that was seen last: select, from, where, group …"""


def place_of(column: str, parent: TableName, reader: Table) -> str:
    """Say where a reader's declared text references a column of a parent: `dml.x.sql:3,7`; empty means nowhere."""
    if reader.facts is None or reader.dml is None:
        return ""
    reads = [read for read in reader.facts.reads if read.table == parent]
    offsets = _references(column.lower(), reader.facts, reads)
    lines = sorted({line_of(reader.dml.text, reader.facts, offset) for offset in offsets})
    file = reader.dml.path.rpartition("/")[2]
    return f"{file}:{','.join(map(str, lines))}" if lines else ""


def line_of(text: str, parsed: Parsed, offset: int) -> int:
    """Give the line in the file, from 1, of an offset in `parsed.select`."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    select = parsed.select.replace("\r\n", "\n")
    within = parsed.select[:offset].count("\n")
    start_of_line = [0, *(found.end() for found in re.finditer("\n", plain))]
    begin = start_of_line[min(max(parsed.line, 1), len(start_of_line)) - 1]
    at = plain.find(select, begin)
    return (plain.count("\n", 0, at) + 1 if at >= 0 else parsed.line) + within


def _references(column: str, parsed: Parsed, reads: Sequence[Read]) -> Iterator[int]:
    tokens = _tokens(parsed.select)
    blocks = {_block_at(tokens, read.start) for read in reads}
    qualifiers = {read.alias.lower() or read.table for read in reads}
    strangers = {
        read.alias.lower() or read.table for read in parsed.reads if read.table not in {r.table for r in reads}
    }
    anywhere = any(_has_star(tokens, block) for block in blocks)
    table_names = {read.start for read in parsed.reads}
    aliased = {(token.block, token.text) for before, token in pairwise(tokens) if token.is_name and before.text == "as"}
    for index, token in enumerate(tokens):
        if token.text != column or not token.is_name or token.start in table_names:
            continue
        before = tokens[index - 1].text if index else ""
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if before == "as" or following == "(":
            continue
        if before == "." and index >= 2:
            qualifier = tokens[index - 2].text
            if qualifier in qualifiers or (anywhere and qualifier not in strangers):
                yield token.start
        elif anywhere or token.block in blocks:
            if token.clause in _AFTER_SELECT and (token.block, column) in aliased:
                continue
            yield token.start


def _tokens(select: str) -> list[Token]:
    """Read names and other characters with their blocks; brackets that hold no SELECT stay in their block."""
    found: list[Token] = []
    stack: list[tuple[int, str]] = []
    block, clause, last = 0, "", 0
    for match in _TOKEN.finditer(select):
        if match["skip"] is not None:
            continue
        text = match.group().strip("`").lower()
        is_name = match["name"] is not None
        if text == "(":
            stack.append((block, clause))
        elif text == ")" and stack:
            block, clause = stack.pop()
        elif is_name and not match.group().startswith("`"):
            if text == "select" or text in _SETS:
                last += 1
                block, clause = last, text
            elif text in _AFTER_SELECT or text in ("from", "where"):
                clause = text
        found.append(Token(text, is_name, match.start(), block, clause))
    return found


def _block_at(tokens: Sequence[Token], start: int) -> int:
    return next((token.block for token in tokens if token.start >= start), 0)


def _has_star(tokens: Sequence[Token], block: int) -> bool:
    """Whether a block selects `*`, so that its columns are named further out; `count(*)` and products are not stars."""
    for before, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        if token.text == "*" and token.block == block and before.text in ("select", ",", ".", "distinct"):
            return after is None or after.text in ("from", ",", "except", "where", ")")
    return False
