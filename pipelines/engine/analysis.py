"""Spark's own opinion of a compiled SELECT; nothing is started."""

from pipelines.session import Session, spark_errors


class SparkAnalysis:
    """Implements `core.ports.Analysis`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def check(self, select: str) -> tuple[tuple[str, str], ...]:
        """Output columns as (name, type); raises EngineRefused with Spark's error class."""
        with spark_errors():
            schema = self._session.spark.sql(select).schema
        return tuple((column.name, column.dataType.simpleString()) for column in schema.fields)
