"""The parse cache's file: whatever happens to it, projects can still be read."""

import os
import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.project_copy import ReadProject
from state.parse_cache_file import READER_VERSIONS_KEPT, ParseCacheFile, _sources, readers_version
from tests.support.small_project import texts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "facts-1.db"


def read(cache: ParseCacheFile, files: dict[str, str]) -> int:
    """Read a project through the cache as a process does; return the number of texts that were not in the cache."""
    facts = cache.load()
    assert read_project(files, facts) == read_project(files)
    new = len(facts._fresh)
    cache.save(facts)
    return new


def test_texts_read_by_one_process_are_known_to_the_next(path: Path) -> None:
    assert read(ParseCacheFile(str(path)), texts()) > 0
    assert read(ParseCacheFile(str(path)), texts()) == 0


def test_only_a_changed_text_is_read(path: Path) -> None:
    read(ParseCacheFile(str(path)), texts())
    assert read(ParseCacheFile(str(path)), texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")) == 1


def test_facts_of_another_version_are_not_used_and_not_lost(path: Path) -> None:
    every = read(ParseCacheFile(str(path), "one"), texts())
    assert read(ParseCacheFile(str(path), "two"), texts()) == every
    assert read(ParseCacheFile(str(path), "one"), texts()) == 0


def test_versions_of_the_past_are_forgotten(path: Path) -> None:
    for number in range(READER_VERSIONS_KEPT + 2):
        read(ParseCacheFile(str(path), f"version {number}"), texts())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(DISTINCT version) FROM fact").fetchone() == (READER_VERSIONS_KEPT,)
        assert database.execute("SELECT count(*) FROM reader").fetchone() == (READER_VERSIONS_KEPT,)


def test_texts_of_the_past_are_forgotten_once_they_are_many(path: Path) -> None:
    cache = ParseCacheFile(str(path), "one")
    old = ParseCache()
    for number in range(1200):
        old.statements(f"-- {number}", "x.sql")
    cache.save(old)
    read(cache, texts())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM fact").fetchone()[0] < 20


def test_a_damaged_file_is_no_cache_and_is_made_again(path: Path) -> None:
    every = read(ParseCacheFile(str(path)), texts())
    path.write_bytes(b"no database at all" * 1000)
    assert read(ParseCacheFile(str(path)), texts()) == every
    read(ParseCacheFile(str(path)), texts())
    assert read(ParseCacheFile(str(path)), texts()) == 0


def test_a_file_with_a_damaged_page_never_changes_what_is_read(path: Path) -> None:
    read(ParseCacheFile(str(path)), texts())
    whole = path.read_bytes()
    for place in range(100, len(whole), 997):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        read(ParseCacheFile(str(path)), texts())


def test_a_text_that_was_altered_in_the_file_is_read_again(path: Path) -> None:
    read(ParseCacheFile(str(path)), texts())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE fact SET body = replace(body, 'landed', 'elsewhere')")
    assert read(ParseCacheFile(str(path)), texts()) > 0


def test_an_unwritable_location_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (str(tmp_path / "file" / "facts.db"), ""):
        assert read(ParseCacheFile(where), texts()) > 0
        assert read(ParseCacheFile(where), texts()) > 0


def test_a_file_of_another_user_is_not_believed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = read(ParseCacheFile(str(path)), texts())
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert read(ParseCacheFile(str(path)), texts()) == every


def test_a_locked_file_is_not_waited_for_long(path: Path) -> None:
    every = read(ParseCacheFile(str(path)), texts())
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert read(ParseCacheFile(str(path)), texts()) == every
    holder.execute("ROLLBACK")
    holder.close()
    assert read(ParseCacheFile(str(path)), texts()) == 0


def test_a_file_that_was_busy_is_used_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.parse_cache_file._PAUSE_S", 0.0)
    other = texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    read(ParseCacheFile(str(path)), texts())
    read(ParseCacheFile(str(path)), other)
    known = ParseCacheFile(str(path)).load()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    read_project(texts(), known)
    assert known.take_fresh(), "parsed without the file"
    holder.execute("ROLLBACK")
    holder.close()
    read_project(other, known)
    assert not known.take_fresh()


def test_concurrent_writers_leave_every_fact_complete(path: Path) -> None:
    def write(number: int) -> None:
        cache = ParseCacheFile(str(path), f"version {number % 2}")
        for word in range(5):
            facts = cache.load()
            facts.statements(f"INSERT INTO a SELECT {number * 5 + word} AS id FROM STREAM landed", "x.sql")
            while not cache.save(facts):
                facts = ParseCache()
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
from core.project_reader.loader import read_project
from state.parse_cache_file import ParseCacheFile
from tests.bench.generated_projects import project_texts
print("ready", flush=True)
sys.stdin.readline()
cache, files = ParseCacheFile(sys.argv[1]), project_texts(60)
facts = cache.load()
project, _ = read_project(files, facts)
assert project is not None and project == read_project(files)[0]
print(len(facts.take_fresh()) if sys.argv[2] == "look" else cache.save(facts))
"""


def process(path: Path, what: str) -> subprocess.Popen[str]:
    """Start a process that reads a project through the cache once it receives a line."""
    command = [sys.executable, "-c", _FILL, str(path), what]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.drill
def test_concurrent_processes_leave_every_fact_complete(path: Path) -> None:
    writers = [process(path, "save") for _ in range(3)]
    for each in writers:
        assert each.stdout and each.stdout.readline() == "ready\n"
    said = [each.communicate("go\n")[0].strip() for each in writers]
    assert [each.returncode for each in writers] == [0, 0, 0]
    assert "True" in said
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert process(path, "look").communicate("go\n")[0] == "ready\n0\n"


def test_a_cache_entry_by_another_program_is_not_trusted_even_for_the_same_text(path: Path) -> None:
    files = texts()
    every = read(ParseCacheFile(str(path), "older"), files)
    with sqlite3.connect(path) as database:
        for key, body in database.execute("SELECT key, body FROM fact").fetchall():
            wrong = body.replace("landed", "elsewhere")
            database.execute(
                "UPDATE fact SET body = ?, crc = ? WHERE key = ?", (wrong, zlib.crc32(wrong.encode()), key)
            )
    assert read(ParseCacheFile(str(path)), files) == every


_LOADED = """
import sys
from core.project_reader.loader import read_project
from tests.support.small_project import texts
assert read_project(texts())[0] is not None
loaded = (module for name, module in sys.modules.items() if name.partition(".")[0] == "core")
print(*(module.__file__ for module in loaded if module.__file__), sep="\\n")
"""


def test_the_version_covers_every_module_of_core_that_reads_a_project() -> None:
    """If a module were omitted, it could change the results while cached texts would still be trusted."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", _LOADED], cwd=root, capture_output=True, text=True, check=True)
    loaded = {Path(line).resolve() for line in done.stdout.splitlines()}
    names = {path.relative_to(root.resolve()).as_posix() for path in loaded}
    assert {"core/project_reader/loader.py", "core/sql/parsing/parser.py", "core/sql/tokens/lexer.py"} <= names
    assert loaded - {path.resolve() for path in _sources()} == set()


def test_the_version_changes_with_any_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert readers_version() == readers_version() != ""
    reader = tmp_path / "reader.py"
    reader.write_text("one")
    monkeypatch.setattr("state.parse_cache_file._sources", lambda: [reader])
    before = readers_version()
    reader.write_text("two")
    assert len({before, readers_version(), ""}) == 3
    reader.unlink()
    assert readers_version() == ""


def test_a_project_is_known_by_all_of_its_texts(path: Path) -> None:
    cache, found = ParseCacheFile(str(path)), read_whole(texts())
    assert cache.load_project(texts(), "dev") is None
    assert cache.save_project(texts(), "dev", found)
    assert ParseCacheFile(str(path)).load_project(texts(), "dev") == found
    assert cache.load_project(texts(b="SELECT id, upper(kind) AS kind FROM STREAM a"), "dev") is None
    assert ParseCacheFile(str(path), "of other readers").load_project(texts(), "dev") is None


def test_a_project_replaces_the_previous_one(path: Path) -> None:
    cache, other = ParseCacheFile(str(path)), texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    cache.save_project(texts(), "dev", read_whole(texts()))
    cache.save_project(other, "dev", read_whole(other))
    assert (cache.load_project(texts(), "dev"), cache.load_project(other, "dev")) == (None, read_whole(other))


def test_a_project_that_was_altered_in_the_file_is_not_known(path: Path) -> None:
    cache = ParseCacheFile(str(path))
    cache.save_project(texts(), "dev", read_whole(texts()))
    with sqlite3.connect(path) as database:
        (body,) = database.execute("SELECT body FROM project").fetchone()
        database.execute("UPDATE project SET body = ?", (body.replace(b"landed", b"lander"),))
    assert cache.load_project(texts(), "dev") is None


def test_a_file_without_projects_is_read_and_filled(path: Path) -> None:
    cache = ParseCacheFile(str(path))
    read(cache, texts())
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE project")
    assert cache.load_project(texts(), "dev") is None
    assert read(cache, texts()) == 0
    assert cache.save_project(texts(), "dev", read_whole(texts()))


def read_whole(files: dict[str, str]) -> ReadProject:
    project, problems = read_project(files)
    assert project is not None
    return project, problems
