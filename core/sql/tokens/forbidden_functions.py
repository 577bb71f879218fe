"""Functions that reach outside a query, to Java, files, the network or a program; no statement may call them.

Spark calls some of these functions during analysis or optimization, so it never receives SQL that contains one. The
tables below result from a review of all 574 functions in the registry of Spark 4.2.0: each was checked for references
to files, network, class loading and XML parsers, and suspicious functions were run.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from sqlglot import Token, TokenType

from core.sql.tokens.lexer import SqlDiagnostic, closing_bracket, is_word

_JAVA = "calls a Java method"
_SCHEMA = "loads a class or reads a file on the pool"
_DOCUMENT = "opens whatever file or address an XML document names"

# Observed on 4.2.0: the optimiser calls a Java method over VALUES, and the analyser does so in TIMESTAMP AS OF; the
# analyser reads a descriptor file; the optimiser fetches the DTD of a constant document.
FORBIDDEN: Mapping[str, str] = {
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), _JAVA),
    **dict.fromkeys(("from_protobuf", "to_protobuf"), _SCHEMA),
    **dict.fromkeys(
        (
            *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
            *("xpath_short", "xpath_string"),
        ),
        _DOCUMENT,
    ),
}
"""Maps each forbidden function to a description of what it does."""

# Their options name files and addresses: rowValidationXSDPath (tested on 4.2.0), avroSchemaUrl (`AvroOptions`).
MOST_ARGUMENTS: Mapping[str, int] = {"from_xml": 2, "from_avro": 2, "schema_of_avro": 1}
"""Maximum number of arguments by function; a further argument would contain options, which could reach outside."""

_REMEDY = "use another function, or prepare the data before it is landed"


def forbidden_calls(tokens: Sequence[Token]) -> Iterator[SqlDiagnostic]:
    """Yield a diagnostic for each call of a forbidden function, regardless of case, backticks and qualifiers.

    `USING '…'`, which runs a program, is reported as well.
    """
    for index, (token, after) in enumerate(pairwise(tokens)):
        if after.token_type is TokenType.STRING and is_word(token, "USING"):
            # TRANSFORM (…), MAP and REDUCE (SqlBaseParser.g4 of 4.2.0, `transformClause`).
            yield SqlDiagnostic("USING '…' runs a program on the pool", _REMEDY, token.start, subject="USING")
        if after.token_type is not TokenType.L_PAREN or (index and is_word(tokens[index - 1], "AS")):
            # AS is followed by an alias with a column list.
            continue
        name = str(token.text).lower()
        if name in FORBIDDEN:
            yield _refused(token, name, FORBIDDEN[name], _REMEDY)
        elif name in MOST_ARGUMENTS and _arguments(tokens, index + 1) > MOST_ARGUMENTS[name]:
            yield _refused(token, name, "can read files and addresses by its options", "leave out the options")


def _refused(token: Token, name: str, does: str, remedy: str) -> SqlDiagnostic:
    return SqlDiagnostic(f"{name} {does}, which no statement may do", remedy, token.start, subject=name)


def _arguments(tokens: Sequence[Token], opened: int) -> int:
    commas, index, end = 0, opened + 1, closing_bracket(tokens, opened)
    while index < end:
        kind = tokens[index].token_type
        commas += kind is TokenType.COMMA
        index = closing_bracket(tokens, index) if kind in (TokenType.L_PAREN, TokenType.L_BRACKET) else index
        index += 1
    return commas + 1
