"""The fact cache's file: whatever happens to it, reading a project goes on."""

import os
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from core.facts import Facts
from core.layouts import read_project
from state.facts import VERSIONS, FactCache, readers_version
from tests.support.declared import texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "facts-1.db"


def read(cache: FactCache, files: dict[str, str]) -> int:
    """Read a project through the cache as a process does; gives the number of texts that were not known."""
    facts = cache.load()
    assert read_project(files, facts) == read_project(files)
    new = len(facts._fresh)
    cache.save(facts)
    return new


def test_what_one_process_read_the_next_one_knows(path: Path) -> None:
    assert read(FactCache(str(path)), texts()) > 0
    assert read(FactCache(str(path)), texts()) == 0


def test_only_a_changed_text_is_read(path: Path) -> None:
    read(FactCache(str(path)), texts())
    assert read(FactCache(str(path)), texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")) == 1


def test_facts_of_another_version_are_not_used_and_not_lost(path: Path) -> None:
    every = read(FactCache(str(path), "one"), texts())
    assert read(FactCache(str(path), "two"), texts()) == every
    assert read(FactCache(str(path), "one"), texts()) == 0


def test_versions_of_the_past_are_forgotten(path: Path) -> None:
    for number in range(VERSIONS + 2):
        read(FactCache(str(path), f"version {number}"), texts())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(DISTINCT version) FROM fact").fetchone() == (VERSIONS,)
        assert database.execute("SELECT count(*) FROM reader").fetchone() == (VERSIONS,)


def test_texts_of_the_past_are_forgotten_once_they_are_many(path: Path) -> None:
    cache = FactCache(str(path), "one")
    old = Facts()
    for number in range(1200):
        old.statements(f"-- {number}", "x.sql")
    cache.save(old)
    read(cache, texts())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM fact").fetchone()[0] < 20


def test_a_damaged_file_is_no_cache_and_is_made_again(path: Path) -> None:
    every = read(FactCache(str(path)), texts())
    path.write_bytes(b"no database at all" * 1000)
    assert read(FactCache(str(path)), texts()) == every
    read(FactCache(str(path)), texts())
    assert read(FactCache(str(path)), texts()) == 0


def test_a_file_with_a_damaged_page_never_changes_what_is_read(path: Path) -> None:
    read(FactCache(str(path)), texts())
    whole = path.read_bytes()
    for place in range(100, len(whole), 997):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        read(FactCache(str(path)), texts())


def test_a_text_that_was_altered_in_the_file_is_read_again(path: Path) -> None:
    read(FactCache(str(path)), texts())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE fact SET body = replace(body, 'landed', 'elsewhere')")
    assert read(FactCache(str(path)), texts()) > 0


def test_a_place_that_cannot_be_written_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (str(tmp_path / "file" / "facts.db"), ""):
        assert read(FactCache(where), texts()) > 0
        assert read(FactCache(where), texts()) > 0


def test_a_file_of_another_user_is_not_believed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = read(FactCache(str(path)), texts())
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert read(FactCache(str(path)), texts()) == every


def test_a_locked_file_is_not_waited_for_long(path: Path) -> None:
    every = read(FactCache(str(path)), texts())
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert read(FactCache(str(path)), texts()) == every
    holder.execute("ROLLBACK")
    holder.close()
    assert read(FactCache(str(path)), texts()) == 0


def test_many_writers_at_once_leave_every_fact_whole(path: Path) -> None:
    def write(number: int) -> None:
        cache = FactCache(str(path), f"version {number % 2}")
        for word in range(5):
            facts = cache.load()
            facts.statements(f"INSERT INTO a SELECT {number * 5 + word} AS id FROM STREAM landed", "x.sql")
            while not cache.save(facts):
                facts = Facts()
                facts.statements(f"INSERT INTO a SELECT {number * 5 + word} AS id FROM STREAM landed", "x.sql")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT count(*) FROM fact").fetchone() == (20,)


_FILL = """
import sys
from core.layouts import read_project
from state.facts import FactCache
from tests.bench.projects import project_texts
print("ready", flush=True)
sys.stdin.readline()
cache, files = FactCache(sys.argv[1]), project_texts(60)
facts = cache.load()
project, _ = read_project(files, facts)
assert project is not None and project == read_project(files)[0]
print(len(facts.take_fresh()) if sys.argv[2] == "look" else cache.save(facts))
"""


def process(path: Path, what: str) -> subprocess.Popen[str]:
    """Start a process that reads a project through the cache once it is given a line."""
    command = [sys.executable, "-c", _FILL, str(path), what]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_fill_the_file_at_once_leave_every_fact_whole(path: Path) -> None:
    writers = [process(path, "save") for _ in range(3)]
    for each in writers:
        assert each.stdout and each.stdout.readline() == "ready\n"
    said = [each.communicate("go\n")[0].strip() for each in writers]
    assert [each.returncode for each in writers] == [0, 0, 0]
    assert "True" in said
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert process(path, "look").communicate("go\n")[0] == "ready\n0\n"


def test_what_another_program_wrote_is_not_believed_even_for_the_same_text(path: Path) -> None:
    files = texts()
    every = read(FactCache(str(path), "older"), files)
    with sqlite3.connect(path) as database:
        for key, body in database.execute("SELECT key, body FROM fact").fetchall():
            wrong = body.replace("landed", "elsewhere")
            database.execute(
                "UPDATE fact SET body = ?, crc = ? WHERE key = ?", (wrong, zlib.crc32(wrong.encode()), key)
            )
    assert read(FactCache(str(path)), files) == every


def test_the_version_changes_with_any_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert readers_version() == readers_version() != ""
    reader = tmp_path / "reader.py"
    reader.write_text("one")
    monkeypatch.setattr("state.facts._sources", lambda: [reader])
    before = readers_version()
    reader.write_text("two")
    assert len({before, readers_version(), ""}) == 3
    reader.unlink()
    assert readers_version() == ""
