"""Function names that sqlglot must not replace with its own classes, and the names of aggregate functions.

sqlglot maps several Spark functions to the same class, so that they could no longer be distinguished. Functions
therefore keep their written names.
"""

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

# Group agg_funcs of Spark 4.2.0's function registry, without grouping and grouping_id, which only read the group.
_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every
    first first_value histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last
    last_value listagg max max_by mean measure median min min_by mode percentile percentile_approx
    percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
    theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance
"""
AGGREGATES = frozenset(_AGGREGATES.split())
GENERATORS = frozenset(
    (
        *("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"),
        *("stack", "json_tuple", "variant_explode"),
    )
)
"""Functions that yield several columns, or a single column that the function itself names."""
# Table functions of Spark 4.2.0 that read no table.
TABLE_FUNCTIONS = frozenset(
    (
        *("range", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"),
        *("stack", "json_tuple", "variant_explode", "variant_explode_outer", "collations", "sql_keywords"),
        "python_worker_logs",
    )
)
LITERAL_FUNCTIONS = frozenset(("current_date", "current_path", "current_time", "current_timestamp")) | frozenset(
    ("current_user", "grouping__id", "localtime", "localtimestamp", "session_user", "user")
)
"""Functions called without brackets, unless a column has the same name (4.2, LiteralFunctionResolution.scala)."""
_OPERANDS = frozenset(
    (
        *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.END),
        *(TokenType.R_BRACKET, TokenType.NULL),
    )
)
"""Tokens that may precede the operator DIV."""
PREFIX = "hg_f_"
_SYNTAX = """
    CAST TRY_CAST SAFE_CAST EXTRACT TRIM SUBSTR SUBSTRING POSITION OVERLAY CEIL FLOOR STRUCT CASE EXISTS ALL IN
    OVER VALUES USING AND OR NOT ON FROM SELECT WHERE WHEN THEN ELSE END BY AS JOIN WITH LATERAL TABLE UNION
    EXCEPT INTERSECT HAVING LIMIT OFFSET INTERVAL BETWEEN LIKE RLIKE ILIKE ROLLUP CUBE SETS DISTINCT BROADCAST
    BROADCASTJOIN MAPJOIN MERGE MERGEJOIN SHUFFLEMERGE SHUFFLE_HASH SHUFFLE_REPLICATE_NL CHAR VARCHAR DECIMAL
    NUMERIC DEC
"""
_OWN_SYNTAX = frozenset(_SYNTAX.split())
_KNOWN = (frozenset(Spark.parser_class.FUNCTIONS) | frozenset(Spark.parser_class.FUNCTION_PARSERS)) - _OWN_SYNTAX
_RENAMED = _KNOWN | (frozenset(name.upper() for name in AGGREGATES) - _OWN_SYNTAX) | {"WINDOW"}


def with_plain_functions(tokens: list[Token]) -> list[Token]:
    """Return the tokens with prefixed function names, so that sqlglot keeps the names as written."""
    found = list(tokens)
    for index in range(len(tokens) - 1):
        token, after = tokens[index], tokens[index + 1]
        if after.token_type is not TokenType.L_PAREN or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        word = str(token.text).upper()
        if word in _RENAMED and not _is_operator(tokens, index, word):
            name = f"{PREFIX}{word.lower()}"
            found[index] = Token(TokenType.VAR, name, token.line, token.col, token.start, token.end, [])
    return found


def plain_function_name(name: str) -> str:
    """Return a function's name in lower case, without the prefix that `with_plain_functions` adds."""
    return name.lower().removeprefix(PREFIX)


def _is_operator(tokens: list[Token], index: int, word: str) -> bool:
    """True for words before a bracket that are not functions: FILTER after an aggregate, LIKE ANY, LIKE SOME, DIV."""
    before = tokens[index - 1].token_type if index else None
    if word == "FILTER":
        after = tokens[index + 2].token_type if index + 2 < len(tokens) else None
        return before is TokenType.R_PAREN and after is TokenType.WHERE
    if word in ("ANY", "SOME"):
        return before in (TokenType.LIKE, TokenType.ILIKE)
    return word == "DIV" and before in _OPERANDS
