"""What its author calls whatever a canonical text names `_t1`, `_t2` … and `_c1`: aliases of sources, parts of WITH."""

from sqlglot import exp

from core.sql.parsing.canonical_text import normalise
from core.sql.parsing.parser import parse_query
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.parsing.table_names import resolve_table_names
from core.sql.statement import ParsedStatement
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of


def written_aliases(select: str) -> dict[str, str]:
    """Return the alias of a query's canonical text → its alias in `select`, the query as written.

    A table without an alias is called by its name, a subquery without one by nothing. Nothing is known of a text that
    cannot be read.
    """
    try:
        marks = extract_stream_clauses(tokens_of(open_sql(select, "")))
        query = parse_query(marks.tokens, select)
        resolve_table_names(query, marks)
        found = normalise(query).find_all(exp.TableAlias)
        return {each.name: str(each.meta.get("written", "")) for each in found if each.this is not None}
    except (SqlDiagnostic, RecursionError):
        return {}


def aliases_of_both(old: ParsedStatement, new: ParsedStatement) -> tuple[dict[str, str], dict[str, str]]:
    """Return the aliases of two files; those of the new one for both where the same tables are read in one order."""
    same = [read.table for read in old.reads] == [read.table for read in new.reads]
    after = written_aliases(new.select)
    return (after if same else written_aliases(old.select)), after
