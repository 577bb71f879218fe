"""Jars of functions, stored by the hash of their content, and the file of their sessions."""

import hashlib
from pathlib import Path

import pytest
from java_class_files import fmt_jar

from core.model.errors import EngineRefused, Refused, TryAgain
from pipelines.storage.jar_store import JarFiles, JarSessionsFile, JarStore

ONE, TWO = fmt_jar("one"), fmt_jar("two")
HASH = hashlib.sha256(ONE).hexdigest()


def test_the_first_source_with_the_content_is_stored_and_its_later_fate_does_not_matter(tmp_path: Path) -> None:
    store, source, other = JarStore(tmp_path / "jars"), tmp_path / "acme.jar", tmp_path / "other.jar"
    source.write_bytes(ONE)
    other.write_bytes(TWO)
    store.add(HASH, "functions/acme.jar", [tmp_path / "missing.jar", tmp_path, other, source])
    source.unlink()
    store.add(HASH, "functions/acme.jar", [])
    place = Path(store.path(HASH, "acme.jar"))
    assert place == tmp_path / "jars" / f"{HASH}.jar" and place.read_bytes() == ONE
    assert [each.name for each in place.parent.iterdir()] == [place.name]


def test_another_content_is_not_stored(tmp_path: Path) -> None:
    store, source = JarStore(tmp_path / "jars"), tmp_path / "acme.jar"
    source.write_bytes(TWO)
    with pytest.raises(Refused, match=r"functions/acme\.jar has changed or cannot be read since this plan was made"):
        store.add(HASH, "functions/acme.jar", [source])
    assert not (tmp_path / "jars").exists()


def test_a_missing_or_damaged_jar_is_refused_and_stored_again(tmp_path: Path) -> None:
    store, source = JarStore(tmp_path / "jars"), tmp_path / "acme.jar"
    source.write_bytes(ONE)
    store.add(HASH, "acme.jar", [source])
    place = Path(store.path(HASH, "acme.jar"))
    for damage in (lambda: place.write_bytes(TWO), place.unlink):
        damage()
        with pytest.raises(EngineRefused, match=r"acme\.jar is missing or damaged") as error:
            store.path(HASH, "acme.jar")
        assert HASH in error.value.remedy
        store.add(HASH, "acme.jar", [source])
        assert store.path(HASH, "acme.jar") == str(place)


def test_jars_at_known_paths_are_compared_with_their_hashes(tmp_path: Path) -> None:
    (tmp_path / "acme.jar").write_bytes(ONE)
    files = JarFiles({HASH: str(tmp_path / "acme.jar")})
    assert files.path(HASH, "acme.jar") == str(tmp_path / "acme.jar")
    (tmp_path / "acme.jar").write_bytes(TWO)
    for sha256 in (HASH, "0" * 64):
        with pytest.raises(EngineRefused, match=r"no file has the content that acme\.jar had"):
            files.path(sha256, "acme.jar")


def test_the_ids_of_sessions_outlive_the_process_and_an_unreachable_home_is_no_empty_one(tmp_path: Path) -> None:
    file = JarSessionsFile(tmp_path)
    assert file.read() == {}
    file.write({HASH: "an id"})
    assert JarSessionsFile(tmp_path).read() == {HASH: "an id"}
    (tmp_path / "jar-sessions.json").unlink()
    (tmp_path / "jar-sessions.json").mkdir()
    with pytest.raises(TryAgain):
        file.read()
