"""The writer of a job with a function for each batch, to which Spark passes every batch of the stream.

Like the writers of keyed tables, it runs in a Python process of the pool, is pickled by value, and imports nothing of
Headgate there. Only that process loads the function of the job.
"""

import json
from typing import Any

from core.model.table_formats import table_format
from core.ports.spark import QueryStart
from core.text.escaping import escape_glob
from pipelines.spark_connect.upsert_writers import Writer, batch_mark

WRONG_ROWS = "HEADGATE_JOB_BATCH_ROWS"
"""Error class of a batch whose function returned no DataFrame, or other columns than those of the table."""


def job_writer(start: QueryStart, each_batch: bytes) -> Writer:
    """Return the function that appends to a table what `each_batch`, a pickled function, returns for a batch.

    Delta records the query and the number of each batch with its rows, and ignores a batch that it has (Delta 4.4.0),
    so repeating a batch after a kill has no effect. Tests write Parquet, which ignores these options.
    """
    place, checkpoint, mark = start.place, escape_glob(start.checkpoint), batch_mark(start.name)
    format, partitioned_by = start.format, () if table_format(start.format).transaction_log else start.partitioned_by
    columns, wrong = frozenset(start.columns), f"[{WRONG_ROWS}]"
    known: list[Any] = []

    def write(batch: Any, number: int) -> None:
        spark = batch.sparkSession
        if not known:
            import pickle

            from pyspark.sql.connect.client.retries import DefaultPolicy

            # By default, the client retries for 20 min after the server has ended (Spark 4.2.0).
            spark.client.set_retry_policies([DefaultPolicy(max_retries=5, max_backoff=1000)])
            spark.addTag(mark)
            lines = spark.read.text(f"{checkpoint}/metadata").collect()
            query = str(json.loads("".join(line[0] for line in lines))["id"])
            known.extend((query, pickle.loads(each_batch)))
        query, function = known
        rows = function(batch, number)
        if not isinstance(rows, type(batch)):
            raise ValueError(f"{wrong} each_batch returns {type(rows).__name__}, and must return a DataFrame")
        found = rows.columns
        if len(found) != len(columns) or frozenset(found) != columns:
            raise ValueError(
                f"{wrong} each_batch returns the columns {', '.join(found)}, and the table has "
                f"{', '.join(sorted(columns))}"
            )
        writer = rows.write.format(format).mode("append").partitionBy(*partitioned_by)
        writer.option("txnAppId", query).option("txnVersion", str(number)).save(place)

    return write
