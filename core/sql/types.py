"""Spark's data types as text: read from tokens, written in one normal form; field names keep their case."""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot import Token, TokenType

from core.sql.lexing import Misread, is_word

# Each with the name that Spark itself prints: written and normal form cast to one type on 4.2.0 (run). TIME, and
# GEOMETRY and GEOGRAPHY without a reference system, are refused there.
_SIMPLE = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "timestamp_ltz": "timestamp",
    "string": "string",
    "binary": "binary",
    "variant": "variant",
    "void": "void",
}
_SIZED = {
    "decimal": "decimal",
    "dec": "decimal",
    "numeric": "decimal",
    "char": "char",
    "character": "char",
    "varchar": "varchar",
    "geometry": "geometry",
    "geography": "geography",
}
_NESTED = ("array", "map", "struct")
_UNITS = ("year", "month", "day", "hour", "minute", "second")


def read_type(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Read the type that starts at `index`; gives its normal form and the index after it, raises Misread."""
    if index >= len(tokens):
        raise Misread("a type is missing here", "write the column's type", tokens[-1].start)
    token = tokens[index]
    word = str(token.text).lower()
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _NESTED and after is not None and after.token_type in (TokenType.LT, TokenType.NEQ):
        return _nested(word, tokens, index + 1)
    if word == "interval":
        return _interval(tokens, index + 1)
    if word in _SIZED and after is not None and after.token_type is TokenType.L_PAREN:
        return _sized(_SIZED[word], tokens, index + 1)
    if word in _SIZED and _SIZED[word] == "decimal":
        return "decimal(10,0)", index + 1
    if word == "string" and is_word(after, "COLLATE") and index + 2 < len(tokens):
        return f"string collate {str(tokens[index + 2].text).lower()}", index + 3
    if word in _SIMPLE and token.token_type is not TokenType.STRING:
        return _SIMPLE[word], index + 1
    close = get_close_matches(word, [*_SIMPLE, *_SIZED, *_NESTED], n=1)
    raise Misread(
        f"{token.text} is not a type of Spark",
        f"did you mean {close[0]}?" if close else "write a type such as string, bigint or timestamp",
        token.start,
        subject=str(token.text),
    )


def _nested(word: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Read `<…>` of an array, map or struct; sqlglot gives `<>` as one token."""
    if tokens[index].token_type is TokenType.NEQ:
        if word == "struct":
            return "struct<>", index + 1
        raise Misread(f"{word}<> has no type inside", f"write {word}<string>", tokens[index].start)
    index += 1
    parts: list[str] = []
    while index < len(tokens) and tokens[index].token_type is not TokenType.GT:
        if word == "struct":
            part, index = _field(tokens, index)
        else:
            part, index = read_type(tokens, index)
        parts.append(part)
        if index < len(tokens) and tokens[index].token_type is TokenType.COMMA:
            index += 1
        elif index >= len(tokens) or tokens[index].token_type is not TokenType.GT:
            raise Misread(f"{word}<…> is not closed", "write >", tokens[min(index, len(tokens) - 1)].start)
    expected = {"array": 1, "map": 2}.get(word, len(parts))
    if index >= len(tokens) or len(parts) != expected:
        place = tokens[min(index, len(tokens) - 1)].start
        raise Misread(f"{word}<…> cannot be read", f"write {word} with {expected} types inside", place)
    return f"{word}<{','.join(parts)}>", index + 1


def _field(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    name = field_name(tokens[index])
    index += 1
    if index < len(tokens) and tokens[index].token_type is TokenType.COLON:
        index += 1
    kind, index = read_type(tokens, index)
    text = f"{name}:{kind}"
    if index + 1 < len(tokens) and is_word(tokens[index], "NOT") and is_word(tokens[index + 1], "NULL"):
        text, index = f"{text} not null", index + 2
    if index + 1 < len(tokens) and is_word(tokens[index], "COMMENT"):
        comment = str(tokens[index + 1].text)
        text, index = f"{text} comment {quoted_string(comment)}", index + 2
    return text, index


def _sized(word: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    sizes: list[str] = []
    index += 1
    while index < len(tokens) and tokens[index].token_type is not TokenType.R_PAREN:
        if tokens[index].token_type is not TokenType.COMMA:
            sizes.append(str(tokens[index].text).lower())
        index += 1
    if index >= len(tokens) or not sizes or len(sizes) > 2:
        raise Misread(f"{word}(…) cannot be read", f"write {word}(10)", tokens[min(index, len(tokens) - 1)].start)
    if word == "decimal" and len(sizes) == 1:
        sizes.append("0")
    return f"{word}({','.join(sizes)})", index + 1


def _interval(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    if index >= len(tokens) or str(tokens[index].text).lower() not in _UNITS:
        return "interval", index
    text = f"interval {str(tokens[index].text).lower()}"
    if index + 2 < len(tokens) and is_word(tokens[index + 1], "TO"):
        return f"{text} to {str(tokens[index + 2].text).lower()}", index + 3
    return text, index + 1


def field_name(token: Token) -> str:
    """Give a column's or field's name as Spark would write it, back-quoted only where it must be."""
    return quoted_name(str(token.text))


def quoted_name(name: str) -> str:
    """Write a name, in back-ticks unless it is plain."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[:1].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"


def quoted_string(text: str) -> str:
    """Write a string literal of Spark."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
