"""Files of tables by format: every format with a log has a reader for it, and no other format has one."""

from pathlib import Path

import pytest

from core.model.names import TableName
from core.model.states import TableFaultKind
from core.model.table_formats import TABLE_FORMATS, format_of_others
from core.ports.storage import TableFault
from pipelines.storage.checkpoints import LOGS, TableCheckpoints

T = TableName("t")


def test_every_format_with_a_log_has_a_reader() -> None:
    assert LOGS.keys() == {name for name, format in TABLE_FORMATS.items() if format.transaction_log}


@pytest.mark.parametrize("format", [*LOGS, *map(format_of_others, LOGS)])
def test_a_missing_table_is_nothing_and_no_error(format: str, tmp_path: Path) -> None:
    files, folder = TableCheckpoints("ledger"), str(tmp_path / "t")
    assert files.identity(folder, format) == "" and files.columns(folder, format) is None
    assert files.properties(folder, format) == {} and files.written_by_hand(folder, format) is None
    assert files.rows(folder, format) is None and files.contents(folder, format) is None
    assert files.rows_since(folder, format, 0.0) is None and files.log_history(folder, format) is None
    assert files.sink_batch(folder, format=format, query="q") is None and files.log_mark(folder) is None
    assert files.upkeep(folder, "OPTIMIZE", "t") is None and files.written_version(folder, "q", 0) is None
    (lag,) = files.lag(str(tmp_path / "checkpoint"), ((0, T, folder, format),))
    assert lag.missing


@pytest.mark.parametrize(
    "format", sorted(name for name in TABLE_FORMATS.keys() - LOGS.keys() if TABLE_FORMATS[name].has_files)
)
def test_a_table_of_files_has_no_versions(format: str, tmp_path: Path) -> None:
    files, folder = TableCheckpoints("ledger"), str(tmp_path)
    assert files.identity(folder, format) == "" and files.log_history(folder, format) is None
    assert files.kept_h(folder, format) is None and files.written_by_hand(folder, format) is None
    source = (0, T, folder, format)
    assert files.unread_before(folder, source, 0.0) is None
    assert files.source_fault(folder, (source,)) is None


def test_a_lost_column_of_one_stream_hides_no_fault_of_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lost = TableFault(TableFaultKind.STREAM_COLUMNS_CHANGED, "has changed since version 3")
    gone = TableFault(TableFaultKind.FILES_GONE, "lacks files of version 7")
    monkeypatch.setattr(LOGS["delta"], "offsets", lambda *_: {0: "offset", 1: "offset"})
    faults = {"a": lost, "b": gone}
    monkeypatch.setattr(
        LOGS["delta"], "fault_behind", lambda _self, _offset, place, **_: faults[Path(place).parent.name]
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    sources = tuple((n, TableName(name), str(tmp_path / name), "delta") for n, name in enumerate(("a", "b")))
    files = TableCheckpoints("ledger")
    assert files.source_fault(str(tmp_path), sources) == (TableName("b"), gone)
    assert files.source_fault(str(tmp_path), sources[:1]) == (TableName("a"), lost)
