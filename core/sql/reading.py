"""Reading dml files: `INSERT INTO … SELECT` statements into values, everything wrong with them into Problems."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType, exp

from core.errors import BadName
from core.names import TableName, parse_table_name
from core.problems import Problem
from core.sql.canonical import normalise, sql_of
from core.sql.flows import Found
from core.sql.lexing import Misread, Source, closing, end_of, is_word, open_source, statements_of, tokens_of
from core.sql.naming import Names, TableRead, resolve
from core.sql.operators import flow_of
from core.sql.parsing import parse_query, too_deep
from core.sql.parts import parts_of
from core.sql.streams import take_out
from core.sql.values import Column, Parsed, Read, Watermark

_REMEDY = "write INSERT INTO <table> SELECT …"
_NOT_STREAMING = {
    "MERGE": "MERGE is not a streaming statement",
    "UPDATE": "UPDATE is not a streaming statement",
    "DELETE": "DELETE is not a streaming statement",
    "CREATE": "CREATE belongs into the ddl file",
}


@dataclass(frozen=True, slots=True)
class _Header:
    """Where the parts of an INSERT lie in its tokens."""

    target: Token
    columns: tuple[Token, ...]
    query: list[Token]
    """WITH before INSERT included."""
    pieces: tuple[tuple[int, int], ...]
    """Spans of the query's text in the file."""

    def text(self, source: Source) -> str:
        """Put the query's text together."""
        return "".join(source.text[start:end] for start, end in self.pieces)

    def moved(self, offset: int) -> int:
        """Turn an offset in the file into one in the query's text."""
        before = 0
        for start, end in self.pieces:
            if start <= offset <= end and (offset < end or end == self.pieces[-1][1]):
                return before + offset - start
            before += end - start
        return before


def read_statements(text: str, path: str) -> tuple[tuple[Parsed, ...], tuple[Problem, ...]]:
    """Read every statement of a dml text; a statement with an error Problem is left out, the others are kept."""
    source = open_source(text, path)
    found: list[Parsed] = []
    problems: list[Problem] = []
    try:
        tokens = tokens_of(source)
    except Misread as failure:
        return (), (source.problem(failure),)
    for statement in statements_of(tokens):
        misread: list[Misread] = []
        try:
            parsed = _read(statement, source, misread)
        except Misread as failure:
            misread.append(failure)
        except RecursionError:
            misread.append(too_deep(statement[0].start))
        else:
            if not misread:
                found.append(parsed)
        problems += [source.problem(_placed(each, statement[0].start)) for each in misread]
    if not found and not problems:
        problems.append(source.problem(Misread("the file holds no statement", _REMEDY, 0)))
    return tuple(found), tuple(problems)


def _read(statement: list[Token], source: Source, misread: list[Misread]) -> Parsed:
    header = _header(statement)
    writes = _table_name(header.target)
    marks = take_out(header.query)
    misread += marks.misread
    query = parse_query(marks.tokens, source.text)
    names = resolve(query, marks)
    reads = tuple(_read_value(each, names, header, source) for each in names.reads)
    query = normalise(query)
    outputs = _columns(query)
    _check_columns(header, outputs, misread)
    found = Found(names.reads)
    flow = flow_of(query, found)
    misread += found.misread
    if not flow.streaming and not found.misread:
        misread.append(_nothing_streams(statement, names))
    _check_both_ways(names, misread)
    parts = parts_of(query, flow.operators)
    return Parsed(
        writes=writes,
        select=header.text(source),
        reads=reads,
        columns=outputs,
        operators=flow.operators,
        canonical=parts.canonical,
        state=parts.state,
        pre=parts.pre,
        post=parts.post,
        line=source.line(statement[0].start),
    )


def _header(tokens: list[Token]) -> _Header:
    """Split `[WITH …] INSERT INTO [TABLE] t [(columns)] query`; raises Misread for every other statement."""
    at = 0
    if is_word(tokens[0], "WITH"):
        at = _find(tokens, lambda token: is_word(token, "INSERT", "MERGE", "UPDATE", "DELETE"))
    first = tokens[at]
    word = str(first.text).upper()
    if not is_word(first, "INSERT"):
        summary = _NOT_STREAMING.get(word, f"a dml file holds INSERT INTO … SELECT, not {_short(first)}")
        raise Misread(summary, _REMEDY, first.start, subject=word[:40])
    after = at + 1
    if after < len(tokens) and is_word(tokens[after], "OVERWRITE"):
        remedy = "write INSERT INTO: a stream only appends"
        raise Misread("INSERT OVERWRITE is not a streaming statement", remedy, first.start, subject="INSERT OVERWRITE")
    if after >= len(tokens) or not is_word(tokens[after], "INTO"):
        raise Misread("INTO is missing after INSERT", _REMEDY, first.start)
    after += 1
    if after + 1 < len(tokens) and is_word(tokens[after], "TABLE") and not _opens_query(tokens[after + 1]):
        after += 1
    if after >= len(tokens):
        raise Misread("the table's name is missing after INSERT INTO", _REMEDY, first.start)
    target = tokens[after]
    after += 1
    if after < len(tokens) and tokens[after].token_type is TokenType.DOT:
        remedy = "write the table's name alone: headgate places tables itself"
        raise Misread("a table's name cannot have a database before it", remedy, target.start, subject=str(target.text))
    columns, after = _column_list(tokens, after)
    if after < len(tokens) and is_word(tokens[after], "BY", "PARTITION"):
        remedy = "remove it: a stream writes columns by name, and partitions by the DDL"
        raise Misread(f"{_short(tokens[after])} cannot stand after INSERT INTO t", remedy, tokens[after].start)
    if after >= len(tokens) or not _opens_query(tokens[after]):
        place = tokens[min(after, len(tokens) - 1)]
        raise Misread("SELECT is missing after INSERT INTO", _REMEDY, place.start, subject=str(target.text))
    pieces = [(tokens[after].start, end_of(tokens[-1]))]
    if at:
        pieces.insert(0, (tokens[0].start, first.start))
    return _Header(target, columns, tokens[:at] + tokens[after:], tuple(pieces))


def _column_list(tokens: list[Token], after: int) -> tuple[tuple[Token, ...], int]:
    """Read `(a, b)` after the target, unless the bracket opens the query itself."""
    if after >= len(tokens) or tokens[after].token_type is not TokenType.L_PAREN:
        return (), after
    inside = after
    while inside < len(tokens) and tokens[inside].token_type is TokenType.L_PAREN:
        inside += 1
    if inside < len(tokens) and is_word(tokens[inside], "SELECT", "WITH"):
        return (), after
    end = closing(tokens, after)
    listed = [token for token in tokens[after + 1 : end] if token.token_type is not TokenType.COMMA]
    return tuple(listed), end + 1


def _opens_query(token: Token) -> bool:
    return is_word(token, "SELECT", "WITH") or token.token_type is TokenType.L_PAREN


def _read_value(entry: TableRead, names: Names, header: _Header, source: Source) -> Read:
    if source.text[entry.start : entry.start + 1] in ("'", '"'):
        raise Misread("a string is no table", "write the table's name without quotes", entry.start)
    mark = entry.mark
    watermark = Watermark(mark.watermark.text, mark.watermark.delay) if mark.watermark is not None else None
    start, end = header.moved(entry.start), header.moved(entry.end)
    try:
        table = parse_table_name(entry.name)
    except BadName as error:
        raise Misread(error.summary, error.remedy, entry.start, subject=entry.name) from error
    alias_at = header.moved(entry.alias_at) if entry.start in names.qualifying else None
    return Read(table, mark.streaming, entry.alias, mark.options, mark.source_name, watermark, start, end, alias_at)


def _columns(query: Any) -> tuple[Column, ...]:
    """List the output columns; a chain of set operations has the names of its first part."""
    while not isinstance(query, exp.Select):
        if not isinstance(query, (exp.Subquery, exp.SetOperation)):
            return ()
        query = query.this
    found: list[Column] = []
    for each in query.expressions:
        inner = each.unalias() if isinstance(each, exp.Alias) else each
        text = sql_of(inner)
        if isinstance(each, exp.Aliases):
            found += [Column(alias.name, sql_of(each.this)) for alias in each.args.get("expressions") or []]
        elif isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            found.append(Column("*", text))
        else:
            found.append(Column(each.alias_or_name if _is_named(each) else text.lower(), text))
    return tuple(found)


def _is_named(node: Any) -> bool:
    return isinstance(node, (exp.Alias, exp.Column, exp.Dot)) and bool(node.alias_or_name)


def _check_columns(header: _Header, outputs: tuple[Column, ...], misread: list[Misread]) -> None:
    """A stream writes by name: the list after INSERT INTO t can only repeat the names of the SELECT."""
    if not header.columns or any(column.name == "*" for column in outputs):
        return
    listed = [str(token.text).lower() for token in header.columns]
    if listed != [column.name for column in outputs]:
        pairs = zip(header.columns, listed, outputs, strict=False)
        wrong = next((token for token, name, column in pairs if name != column.name), header.columns[-1])
        misread.append(
            Misread(
                "the column list differs from the names that the SELECT gives, and a stream writes by name",
                f"name the outputs with AS: {', '.join(listed)}",
                wrong.start,
                subject=str(header.target.text),
            )
        )


def _nothing_streams(statement: list[Token], names: Names) -> Misread:
    first = names.reads[0].name if names.reads else "t"
    return Misread(
        "the statement reads no stream",
        f"write FROM STREAM {first} for the table whose new rows it processes",
        statement[0].start,
        subject=first,
    )


def _check_both_ways(names: Names, misread: list[Misread]) -> None:
    """Refuse a table read both ways.

    Spark 4.2.0 made two streams and a stream-stream join of `STREAM t … JOIN t`, but not of `t JOIN STREAM t` (run; the
    cause is not known to us).
    """
    streamed = {read.name.lower() for read in names.reads if read.mark.streaming}
    for read in names.reads:
        if not read.mark.streaming and read.name.lower() in streamed:
            summary = f"{read.name} is read as a stream and as a table in one statement, which Spark confuses"
            remedy = "read it one way: with STREAM on both sides, or from two tables"
            misread.append(Misread(summary, remedy, read.start, subject=read.name))
            return


def _table_name(token: Token) -> TableName:
    try:
        return parse_table_name(str(token.text))
    except BadName as error:
        raise Misread(error.summary, error.remedy, token.start, subject=str(token.text)) from error


def _find(tokens: Sequence[Token], wanted: Callable[[Token], bool]) -> int:
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and wanted(token):
            return index
    return 0


def _short(token: Token) -> str:
    text = str(token.text)
    return text if len(text) <= 30 else f"{text[:30]}…"


def _placed(misread: Misread, start: int) -> Misread:
    """Give a Misread without a place the place of its statement."""
    if misread.offset < 0:
        misread.offset = start
    return misread
