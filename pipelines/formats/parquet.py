"""Rows of Parquet files, exactly, from their footers."""

import pyarrow.parquet


def rows_of(path: str) -> int | None:
    """Read the row count of a file; None when it is gone or is no Parquet. About 0.1 ms."""
    try:
        return int(pyarrow.parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):
        return None
