"""Spark's data types as strings: parsed from tokens into a normal form, and split into fields and elements.

Names of struct fields keep their case.
"""

from collections.abc import Sequence
from difflib import get_close_matches

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, is_word
from core.text.escaping import quoted_name, quoted_string_literal

_OPENING, _CLOSING = "<(", ">)"


def field_type(kind: str, name: str) -> str | None:
    """Return the type of field `name` in a value of type `kind`; None if there is no such field.

    The type is empty if it is unknown. For an array of structs, it is an array of the field's type; for a map, it is
    the type of the map's values.
    """
    if kind in ("", "variant"):
        return kind
    if kind.startswith("array<"):
        inner = field_type(element_type(kind), name)
        return f"array<{inner}>" if inner else inner
    if kind.startswith("map<"):
        return _arguments(kind)[1]
    return next((each for found, each in fields_of(kind) if found.lower() == name.lower()), None)


def element_type(kind: str) -> str:
    """Return the type of an array's elements or of a map's values; empty for any other type."""
    if kind.startswith("array<"):
        return kind[len("array<") : -1]
    return _arguments(kind)[1] if kind.startswith("map<") else ""


def key_type(kind: str) -> str:
    """Return the type of a map's keys."""
    return _arguments(kind)[0]


def fields_of(kind: str) -> tuple[tuple[str, str], ...]:
    """Return the names and types of a struct's fields; empty for any other type."""
    if not kind.startswith("struct<"):
        return ()
    return tuple(_struct_field(each) for each in _arguments(kind))


def _struct_field(text: str) -> tuple[str, str]:
    """Split ``name:type [not null] [comment '…']`` into name and type; the name may be in backticks."""
    at = text.index("`:", 1) + 1 if text.startswith("`") else text.index(":")
    name = text[1 : at - 1].replace("``", "`") if text.startswith("`") else text[:at]
    depth = 0
    for index in range(at + 1, len(text)):
        depth += (text[index] in _OPENING) - (text[index] in _CLOSING)
        if depth == 0 and text.startswith((" not null", " comment "), index):
            return name, text[at + 1 : index]
    return name, text[at + 1 :]


def _arguments(kind: str) -> list[str]:
    """Return the type arguments between the outermost brackets, split at commas outside nested brackets and quotes."""
    inside = kind[kind.index("<") + 1 : -1]
    found: list[str] = []
    depth, start, index = 0, 0, 0
    while index < len(inside):
        char = inside[index]
        if char in "`'":
            index = _closing_quote(inside, index)
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            found.append(inside[start:index])
            start = index + 1
        index += 1
    return [*found, inside[start:]] if inside else []


def _closing_quote(text: str, opened: int) -> int:
    quote, index = text[opened], opened + 1
    while index < len(text) and text[index] != quote:
        index += 2 if text[index] == "\\" and quote == "'" else 1
    return index


# Written name → the name that Spark prints: both cast to the same type (tested on 4.2.0). Spark rejects TIME, and
# GEOMETRY and GEOGRAPHY without a reference system.
_PLAIN_TYPES = """
    boolean tinyint smallint int bigint float double date timestamp timestamp_ntz string binary variant void
"""
_SIMPLE = {
    **{name: name for name in _PLAIN_TYPES.split()},
    **{"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"},
    "timestamp_ltz": "timestamp",
}
_SIZED = {
    **{name: name for name in ("decimal", "char", "varchar", "geometry", "geography")},
    **{"dec": "decimal", "numeric": "decimal", "character": "char"},
}
_NESTED = ("array", "map", "struct")
_UNITS = ("year", "month", "day", "hour", "minute", "second")


def read_type(tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Parse the type at `index`, and return its normal form and the index after it.

    Raises SqlDiagnostic if there is no valid type.
    """
    if index >= len(tokens):
        raise SqlDiagnostic("a type is missing here", "write the column's type", tokens[-1].start)
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
    raise SqlDiagnostic(
        f"{token.text} is not a Spark type",
        f"did you mean {close[0]}?" if close else "write a type such as string, bigint or timestamp",
        token.start,
        subject=str(token.text),
    )


def _nested(word: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    """Parse the `<…>` of an array, map or struct; sqlglot reads `<>` as a single token."""
    if tokens[index].token_type is TokenType.NEQ:
        if word == "struct":
            return "struct<>", index + 1
        raise SqlDiagnostic(f"{word}<> has no element type", f"write {word}<string>", tokens[index].start)
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
            raise SqlDiagnostic(f"{word}<…> is not closed", "write >", tokens[min(index, len(tokens) - 1)].start)
    expected = {"array": 1, "map": 2}.get(word, len(parts))
    if index >= len(tokens) or len(parts) != expected:
        place = tokens[min(index, len(tokens) - 1)].start
        raise SqlDiagnostic(f"{word}<…> cannot be parsed", f"write {word} with {expected} types inside", place)
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
        text, index = f"{text} comment {quoted_string_literal(comment)}", index + 2
    return text, index


def _sized(word: str, tokens: Sequence[Token], index: int) -> tuple[str, int]:
    sizes: list[str] = []
    index += 1
    while index < len(tokens) and tokens[index].token_type is not TokenType.R_PAREN:
        if tokens[index].token_type is not TokenType.COMMA:
            sizes.append(str(tokens[index].text).lower())
        index += 1
    if index >= len(tokens) or not sizes or len(sizes) > 2:
        raise SqlDiagnostic(
            f"{word}(…) cannot be parsed", f"write {word}(10)", tokens[min(index, len(tokens) - 1)].start
        )
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
    """Return the name of a column or field, in backticks only if it needs them."""
    return quoted_name(str(token.text))
