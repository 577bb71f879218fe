"""Spark's behavior with a checkpoint and a sink of different ages, and that a start detects both cases."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import Refused
from pipelines.agent.statements.deployment_lifecycle import refuse_mismatched_batches

pytestmark = pytest.mark.spark


def run_batches(ground: Any, last: int) -> None:
    """Land one file per batch until the query has committed batch `last`."""
    files, checkpoint = ground.files, ground.checkpoint("t")
    committed = files.read(checkpoint).batch if Path(checkpoint).exists() else None
    for batch in range(0 if committed is None else committed + 1, last + 1):
        ground.land(10, a=batch)
        ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
        ground.until(lambda batch=batch: files.read(checkpoint).batch == batch)
    ground.queries.stop(ground.query("t"))


def ages(ground: Any) -> tuple[int | None, int | None, int | None]:
    """Return the planned and the committed batch of the checkpoint, and the newest batch of the sink."""
    found = ground.files.read(ground.checkpoint("t"))
    return found.planned, found.batch, ground.files.sink_batch(ground.place("t"))


def check(ground: Any) -> None:
    refuse_mismatched_batches("t@v1", *ages(ground))


def test_a_checkpoint_restored_from_an_older_copy_loses_rows_silently_and_is_refused(ground: Any) -> None:
    physical, checkpoint = ground.table("t"), ground.checkpoint("t")
    run_batches(ground, 1)
    shutil.copytree(checkpoint, f"{checkpoint}.copy")
    run_batches(ground, 11)
    assert ages(ground) == (11, 11, 11)
    check(ground)
    shutil.rmtree(checkpoint)
    shutil.copytree(f"{checkpoint}.copy", checkpoint)
    with pytest.raises(Refused, match="is at batch 1 and its table at batch 11") as refused:
        check(ground)
    assert "--rebuild" in refused.value.remedy
    # A start would write the new files' rows as batch 2, which the sink already contains.
    shutil.rmtree(Path(checkpoint, "sources"))
    shutil.copytree(f"{checkpoint}.copy/sources", f"{checkpoint}/sources")
    ground.land(10, a=99)
    query = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: ground.files.read(checkpoint).batch == 2)
    assert {found.name: found.error for found in ground.queries.active()}[query.name] == ""
    assert ground.count(f"SELECT count(*) FROM {physical} WHERE a = 99") == 0


@pytest.mark.drill
def test_a_table_restored_from_an_older_copy_is_refused(ground: Any) -> None:
    ground.table("t")
    run_batches(ground, 1)
    shutil.copytree(ground.place("t"), f"{ground.place('t')}.copy")
    run_batches(ground, 2)
    shutil.rmtree(ground.place("t"))
    shutil.copytree(f"{ground.place('t')}.copy", ground.place("t"))
    with pytest.raises(Refused, match="has committed batch 2 and its table ends with batch 1"):
        check(ground)
    shutil.rmtree(f"{ground.place('t')}/_spark_metadata")
    with pytest.raises(Refused, match="has committed batch 2 and its table has none"):
        check(ground)


def test_batches_without_a_row_are_in_the_sinks_record_as_well(ground: Any) -> None:
    ground.table("t", "a BIGINT, n BIGINT")
    ground.start(
        "t",
        f"SELECT a, count(*) AS n FROM STREAM {ground.source} WATERMARK ts DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY a, window(ts, '10 minutes')",
    )
    ground.land(5)
    ground.until(lambda: (ground.files.read(ground.checkpoint("t")).batch or 0) >= 1)
    ground.queries.stop(ground.query("t"))
    planned, committed, sink = ages(ground)
    assert sink in (planned, committed)
    check(ground)


@pytest.mark.drill
def test_a_batch_that_was_cut_off_after_it_was_written_is_no_other_age(ground: Any) -> None:
    ground.table("t")
    run_batches(ground, 1)
    Path(ground.checkpoint("t"), "commits", "1").unlink()
    assert ages(ground) == (1, 0, 1)
    check(ground)


@pytest.mark.drill
def test_a_batch_begun_by_another_server_meanwhile_ends_a_statement(ground: Any) -> None:
    """Two servers use one checkpoint: the second records the next batch before the first tries to."""
    ground.table("t")
    ground.land(10, a=0)
    ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    checkpoint = Path(ground.checkpoint("t"))
    ground.until(lambda: ground.files.read(str(checkpoint)).batch == 0)
    shutil.copyfile(checkpoint / "offsets" / "0", checkpoint / "offsets" / "1")
    ground.land(10, a=1)
    ground.until(lambda: not ground.mine())
    assert [ended.error_class for ended in ground.queries.ended()] == ["CONCURRENT_STREAM_LOG_UPDATE"]
