"""Registers the source of database changes in a session. It is pickled by value, because the pool lacks Headgate."""

from typing import Any

from pyspark import cloudpickle
from pyspark.sql.connect.session import SparkSession

from core.sql.postgres_changes import source_options, source_schema
from core.sql.statement import TableDdl
from pipelines.postgres_changes import change_source, pgoutput, replication_slot

_by_value: Any = cloudpickle.register_pickle_by_value
for _module in (pgoutput, replication_slot, change_source):
    _by_value(_module)


def stream_of_changes(spark: SparkSession, ddl: TableDdl) -> Any:
    """Return the stream of a declared table that has a slot, with the columns of the source.

    The registration lasts as long as the session, like a view (Spark 4.2.0).
    """
    spark.dataSource.register(change_source.ChangeSource)
    stream = spark.readStream.format(change_source.NAME).options(**source_options(ddl))
    return stream.schema(source_schema(ddl)).load()
