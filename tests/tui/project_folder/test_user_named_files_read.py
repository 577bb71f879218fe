"""Files named by users: anything but a regular file, or a file that is too large, is refused before it is read."""

import io
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from core.model.errors import UsageError
from core.model.names import TableName
from tui.project_folder.request_scope import read_lists
from tui.services.planner_input_reader import read_observed


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_a_named_pipe_from_a_shell_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("tables: {a: running}",))
    writer.start()
    known = read_observed(str(tmp_path / "pipe"), "dev").known
    writer.join()
    assert [str(name) for name in known.observed] == ["a"]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("make", [os.mkdir, bound])
def test_a_socket_or_a_folder_is_refused_and_never_opened(tmp_path: Path, make: object, linked: bool) -> None:
    assert callable(make)
    make(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    name = "link" if linked else "real"
    with pytest.raises(UsageError, match=f"{name} cannot be read: it is not a regular file") as refused:
        read_lists((name,), str(tmp_path))
    assert refused.value.exit_code == 2 and refused.value.remedy
    with pytest.raises(UsageError, match=f"{name} cannot be read: it is not a regular file"):
        read_observed(str(tmp_path / name), "dev")


def test_a_file_that_is_too_large_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 10_000_001)
    with pytest.raises(UsageError, match="large cannot be read: it is larger than 10 MB"):
        read_lists(("large",), str(tmp_path))
    os.truncate(tmp_path / "large", 64_000_001)
    with pytest.raises(UsageError, match="large cannot be read: it is larger than 64 MB"):
        read_observed(str(tmp_path / "large"), "dev")


@pytest.mark.parametrize("name", ["there", "link"])
def test_a_file_and_a_link_to_one_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").write_bytes(b"\xef\xbb\xbf{}")
    (tmp_path / "link").symlink_to("there")
    assert read_observed(str(tmp_path / name), "dev").known.observed == {}
    (tmp_path / "there").write_bytes(b"\xef\xbb\xbfa # ours\r\n")
    assert [each.table for each in read_lists((name,), str(tmp_path))] == [TableName("a")]


def test_stdin_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, said in ((b"#" * 10_000_001, "stdin cannot be read: it is larger than 10 MB"), (b"#", "names no table")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        with pytest.raises(UsageError, match=said):
            read_lists(("-",), "/")


def test_long_invalid_lines_are_cut_and_of_many_only_the_first_are_named(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text(f"{'x' * 5000}\n" * 50)
    with pytest.raises(UsageError) as refused:
        read_lists(("tables",), str(tmp_path))
    told = refused.value.summary.split("; ")
    assert told[0] == f"tables:1: '{'x' * 79}…' is not a table name"
    assert (len(told), told[-1]) == (21, "and 30 more problems")
