"""The versions whose batches a comparison reads: both, and their parents according to the ledger's bindings."""

from ledger_rows import deployment_row

from core.model.names import TableName
from core.observed.aligned_positions import AlignedPair, newest_aligned
from core.observed.versions import Binding
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.common_positions import version_histories
from pipelines.agent.runs.compared_versions import LedgerVersions


def put(agent: AgentContext, table: str, version: int, parent: str, parent_version: int) -> None:
    texts = RevisionTexts(
        ddl=f"CREATE TABLE {table} (a INT) USING parquet",
        dml=f"INSERT INTO {table} SELECT a FROM STREAM {parent}",
    )
    binding = Binding(TableName(parent), parent_version, streamed=True)
    row = deployment_row(table=TableName(table), version=version, revision=texts.dml, texts=texts, bindings=(binding,))
    agent.ledger.put_deployment(row)


def test_both_versions_and_all_that_they_stream_from_are_read(agent: AgentContext) -> None:
    for version in (1, 2):
        put(agent, "a", version, "raw", 0)
        put(agent, "b", version, "a", version)
    b1, b2 = (TableName("b"), 1), (TableName("b"), 2)
    found = version_histories(agent.files, LedgerVersions(agent.ledger).deployed(), b1, b2)
    a1, a2 = (TableName("a"), 1), (TableName("a"), 2)
    assert {version: history.sources for version, history in found.items()} == {
        b1: (a1,),
        b2: (a2,),
        a1: ((TableName("raw"), 0),),
        a2: ((TableName("raw"), 0),),
    }
    assert newest_aligned(found, b1, b2) == AlignedPair(1, 1)
