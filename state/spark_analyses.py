"""What Spark said of statements, by the content of the question: asked once for each version of the engine."""

from state.transactions import LedgerReads, LedgerWrites, upsert

ANSWERS_KEPT = 2000
"""Answers that are kept, the newest; one that is gone is asked for again."""


class SparkAnalysisReads(LedgerReads):
    """Reads of answers."""

    def spark_analyses(self) -> dict[str, str]:
        """Return every answer as JSON, by the key of its question; some milliseconds for all that are kept."""
        return dict(self._values("SELECT key, answer FROM spark_analysis ORDER BY key"))


class SparkAnalysisWrites(SparkAnalysisReads, LedgerWrites):
    """Writes of answers."""

    def put_opinion(self, key: str, answer: str, *, at: float) -> None:
        """Write one answer over an earlier one to the same question; the oldest of too many are forgotten."""
        with self._transaction() as connection:
            upsert(connection, "spark_analysis", {"key": key, "at": at, "answer": answer}, key=("key",))
            connection.execute(
                "DELETE FROM spark_analysis WHERE key NOT IN "
                "(SELECT key FROM spark_analysis ORDER BY at DESC, key LIMIT ?)",
                (ANSWERS_KEPT,),
            )
