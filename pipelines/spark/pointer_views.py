"""The views that pointers are: their text, and which of them a catalog has."""

from collections.abc import Sequence

from pyspark.sql.connect.session import SparkSession

from core.ports.spark import Pointer
from core.text.escaping import quoted_string_literal


def view_of(pointer: Pointer) -> str:
    """Return what stands behind CREATE or ALTER."""
    return f"VIEW {quoted(pointer[0])} AS {_rows_of(pointer)}"


def standing_views(spark: SparkSession, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
    """Return the pointers whose view the catalog has with the very text that they are made with, in one request.

    Spark 4.2.0 keeps that text as it was written, and took 0.2 to 0.35 s to show 100 views on two busy cores.
    """
    views = quoted_string_literal("|".join(sorted({view for view, _, _ in pointers})))
    rows = spark.sql(f"SHOW TABLE EXTENDED LIKE {views}").collect()
    texts = {str(row["tableName"]).lower(): str(row["information"]) for row in rows if not row["isTemporary"]}
    return frozenset(
        pointer for pointer in pointers if f"\nView Text: {_rows_of(pointer)}\n" in texts.get(pointer[0].lower(), "")
    )


def quoted(name: str) -> str:
    """Quote a name of the catalog."""
    return "`" + name.replace("`", "``") + "`"


def _rows_of(pointer: Pointer) -> str:
    _, targets, columns = pointer
    rows = (f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(target)}" for target in targets)
    return " UNION ALL ".join(rows)
