"""Edits of a statement's text: rules that replace one match, and the move of a marked subquery into WITH."""

import re
from collections.abc import Callable, Iterator, Sequence

Rewrite = Callable[[str], str]
Rule = tuple[str, str, str]
"""A name, a pattern, and the replacement for a match."""

SAME: tuple[Rule, ...] = (
    ("<>", r" <> ", " != "),
    ("INNER", r"(?<!LEFT)(?<!RIGHT)(?<!FULL)(?<!CROSS)(?<!INNER)(?<!SEMI)(?<!ANTI) JOIN ", " INNER JOIN "),
    ("OUTER", r"\b(LEFT|RIGHT|FULL) JOIN", r"\1 OUTER JOIN"),
    ("SEMI", r"\bLEFT (SEMI|ANTI) JOIN", r"\1 JOIN"),
    ("STREAM()", r"\bSTREAM ([abc])\b", r"STREAM(\1)"),
    ("AS of a table", r" AS (r\d+)\b", r" \1"),
    ("AS of a column", r" AS (c\d+)\b", r" \1"),
    ("DISTINCT", r"\bUNION (?!ALL|DISTINCT)", "UNION DISTINCT "),
    ("BETWEEN", r"(r\d+\.\w+) BETWEEN (\d+) AND (\d+)\b", r"(\1 >= \2 AND \1 <= \3)"),
    ("BETWEEN of columns", r"(r\d+\.\w+) BETWEEN (r\d+\.\w+) AND \2 ", r"\1 >= \2 AND \1 <= \2 "),
    ("turned", r"(?<=WHERE )(r\d+\.\w+) > (\d+)\b", r"\2 < \1"),
    ("turned equality", r"(?<= ON )(r\d+\.\w+) = (r\d+\.\w+)", r"\2 = \1"),
    ("qualifier dropped", r"\br\d+\.(?=\w)", ""),
    ("qualifier dropped", r"\br\d+\.(?=\w)", ""),
    ("turned aggregates", r"HAVING ([^()]+\([^()]*\)) >= ([^()]+\([^()]*\))", r"HAVING \2 <= \1"),
    ("turned aggregates", r"HAVING ([^()]+\([^()]*\)) >= ([^()]+\([^()]*\))", r"HAVING \2 <= \1"),
    ("back-ticks", r"\b(r\d+)\.(\w+)", r"`\1`.`\2`"),
    ("cast as a function", r"\bCAST\((r\d+\.\w+) AS BIGINT\)", r"BIGINT(\1)"),
    ("count(1)", r"count\(\*\)", "count(1)"),
    ("interval", r"INTERVAL (\d+) MINUTES", r"INTERVAL '\1' MINUTE"),
    ("delay in seconds", r"DELAY OF INTERVAL (\d) MINUTES", r"DELAY OF INTERVAL \g<1>000 MILLISECONDS"),
    ("comment", r" FROM ", " /* all of it */ FROM -- here\n "),
    ("white space", r" (WHERE|FROM|GROUP BY|JOIN|ON) ", r"\n   \1\t"),
    ("alias", r"\b(r\d+)\b", r"\1other"),
    ("alias", r"\b(r\d+)\b", "zz"),
    ("alias", r"\b(c\d+)\b", r"\1other"),
    ("a part's name", r"\b(p\d+)\b", r"\1other"),
    ("upper case", r"\b(r\d+)\b", "R_CASE"),
    ("star", r"\bSELECT \* FROM", "SELECT  * FROM"),
    ("NOT IN", r"(\w+\.\w+) NOT IN \(", r"NOT \1 IN ("),
    ("comma for CROSS JOIN", r" CROSS JOIN ", ", "),
)
"""Edits without a change of meaning, most of them recognized as such by Spark."""

OTHER: tuple[Rule, ...] = (
    ("a stream as a table", r"\bSTREAM ([abc]) AS", r"\1 AS"),
    ("UNION", r"\bUNION ALL\b", "UNION"),
    ("OR for AND", r" AND (?!\d|INTERVAL)", " OR "),
    ("DISTINCT added", r"\bSELECT (?!DISTINCT|\*)", "SELECT DISTINCT "),
    ("a sliding window", r"(?<![_\w])window\(([^,']+), '([^']+)'\)", r"window(\1, '\2', '5 minutes')"),
    ("a session for a window", r"(?<![_\w])window\b", "session_window"),
    ("the end of a window", r"\bwindow\.start", "window.end"),
    ("OUTER of explode", r"VIEW explode", "VIEW OUTER explode"),
    ("CUBE", r"\bROLLUP \(", "CUBE ("),
    ("an option's value", r"'maxFilesPerTrigger' = '7'", "'maxFilesPerTrigger' = '3'"),
    ("an option dropped", r" WITH \('maxFilesPerTrigger' = '7'\)", ""),
    ("an option added", r"STREAM ([abc]) ", r"STREAM \1 WITH ('maxFilesPerTrigger' = '5') "),
    ("another option added", r"STREAM ([abc]) ", r"STREAM \1 WITH ('latestFirst' = 'true') "),
    ("null-safe", r" = (?=r\d)", " <=> "),
    ("distinct aggregate", r"\b(sum|count)\((?!\*)", r"\1(DISTINCT "),
    ("another column", r"\b(r\d+)\.v\b", r"\1.w"),
    ("another string", r"\b(r\d+)\.k\b", r"\1.name"),
    ("NATURAL", r"(FROM [^()]*) JOIN (.*) ON .*$", r"\1 NATURAL JOIN \2"),
    ("a key by its place", r" GROUP BY [^,]*$", " GROUP BY 1"),
    ("DROP of NOT", r"\bNOT ", ""),
)
EVERYWHERE = frozenset(("alias", "upper case", "a part's name", "a session for a window"))
"""Edits that apply to every occurrence of the matched text."""


def moved(text: str) -> str:
    """Move a text between two marks into a part of WITH."""
    found = re.search("\1(.*)\2", text, re.S)
    if found is None:
        return text
    rest = f"{text[: found.start()]}p90{text[found.end() :]}"
    part = f"p90 AS ({found[1]})"
    return f"WITH {part}, {rest.removeprefix('WITH ')}" if rest.startswith("WITH ") else f"WITH {part} {rest}"


def renamed(columns: Sequence[tuple[str, str]], pattern: str, into: str) -> Iterator[tuple[str, str]]:
    for name, kind in columns:
        if re.fullmatch(pattern, name):
            yield re.sub(pattern, into, name), kind


def substituted(pattern: str, into: str, place: int, *, everywhere: bool) -> Rewrite:
    def rewrite(text: str) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        chosen = found[place % len(found)]
        if everywhere:
            return re.sub(rf"\b{re.escape(chosen[0])}\b", chosen.expand(into), text)
        return text[: chosen.start()] + chosen.expand(into) + text[chosen.end() :]

    return rewrite


def cased(text: str, *, upper: bool) -> str:
    """Convert everything outside quotes to upper or lower case."""
    parts = re.split(r"('[^']*')", text)
    return "".join(each if each.startswith("'") else each.upper() if upper else each.lower() for each in parts)
