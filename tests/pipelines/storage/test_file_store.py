"""What every store of files does, whatever it is: contents, listings, atomic changes, and errors as those of `os`."""

from collections.abc import Iterator

import pytest
from fake_hdfs import fake_hdfs
from mini_hdfs import mini_hdfs

from pipelines.storage.file_store import FileStore, missing, store_of


@pytest.fixture(
    params=["local", "hdfs", pytest.param("hadoop", marks=[pytest.mark.drill, pytest.mark.long])], scope="module"
)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a folder of the store under test: the local disk, a fake of HDFS, or Hadoop's own."""
    place = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "local":
            yield str(place)
        elif request.param == "hdfs":
            with fake_hdfs(place, patch) as fake:
                yield fake.root
        else:
            with mini_hdfs(place, patch) as hdfs:
                yield hdfs.root


@pytest.fixture
def folder(root: str, request: pytest.FixtureRequest) -> str:
    """Return an empty folder of the store under test."""
    made = f"{root}/{request.function.__name__}"
    store_of(made).make_folders(made)
    return made


@pytest.fixture
def store(folder: str) -> FileStore:
    return store_of(folder)


def names(store: FileStore, folder: str) -> list[str]:
    return sorted(entry.name for entry in store.entries(folder))


def test_a_file_is_read_as_it_was_written_and_replaced(store: FileStore, folder: str) -> None:
    store.write(f"{folder}/a b%ü#?", b"one")
    store.replace(f"{folder}/a b%ü#?", b"two and more")
    store.replace(f"{folder}/new", b"")
    assert store.read(f"{folder}/a b%ü#?") == b"two and more"
    assert names(store, folder) == ["a b%ü#?", "new"]
    file, about = store.open_with_status(f"{folder}/a b%ü#?")
    with file:
        assert file.seek(4) == 4 and file.read(3) == b"and" and about.st_size == 12
    with store.open(f"{folder}/new") as file:
        assert file.read() == b""


def test_a_listing_has_the_status_of_files_and_folders(store: FileStore, folder: str) -> None:
    store.make_folders(f"{folder}/below/deeper")
    store.write(f"{folder}/file", b"123")
    found = {entry.name: entry for entry in store.entries(folder)}
    assert {name: (entry.path, entry.is_dir()) for name, entry in found.items()} == {
        "below": (f"{folder}/below", True),
        "file": (f"{folder}/file", False),
    }
    status, known = found["file"].stat(), store.stat(f"{folder}/file")
    assert (status.st_size, status.st_ino) == (3, known.st_ino)
    assert status.st_mtime_ns // 1_000_000 == known.st_mtime_ns // 1_000_000
    assert sorted(store.walk(folder)) == [
        (folder, ["below"], ["file"]),
        (f"{folder}/below", ["deeper"], []),
        (f"{folder}/below/deeper", [], []),
    ]
    assert [here for here, _, _ in store.walk(f"{folder}/below", topdown=False)] == [
        f"{folder}/below/deeper",
        f"{folder}/below",
    ]
    assert list(store.walk(f"{folder}/none")) == []


def test_what_is_there_is_told_from_what_is_not(store: FileStore, folder: str) -> None:
    store.write(f"{folder}/file", b"")
    store.make_folders(f"{folder}/below")
    assert store.exists(f"{folder}/file") and store.is_file(f"{folder}/file") and not store.is_folder(f"{folder}/file")
    assert store.exists(f"{folder}/below") and store.is_folder(f"{folder}/below") and not store.is_link(folder)
    for path in (f"{folder}/none", f"{folder}/none/deeper", f"{folder}/file/below"):
        assert not store.exists(path) and not store.is_folder(path) and not store.is_file(path)
    paths = [f"{folder}/file", f"{folder}/none", f"{folder}/below/none", f"{folder}/absent/none"]
    assert missing(paths) == set(paths[1:])
    for call in (store.stat, store.entries, store.open, store.read, store.unlink, store.rmdir):
        with pytest.raises(FileNotFoundError):
            call(f"{folder}/none")
    with pytest.raises(NotADirectoryError):
        store.entries(f"{folder}/file")
    with pytest.raises(FileNotFoundError):
        store.rename(f"{folder}/none", f"{folder}/other")
    with pytest.raises(FileNotFoundError):
        store.link_or_copy(f"{folder}/none", f"{folder}/other")


def test_a_rename_replaces_an_empty_folder_and_nothing_else(store: FileStore, folder: str) -> None:
    for name in ("new", "empty", "full"):
        store.make_folders(f"{folder}/{name}")
    store.write(f"{folder}/new/file", b"new")
    store.write(f"{folder}/full/file", b"old")
    with pytest.raises(OSError):
        store.rename(f"{folder}/new", f"{folder}/full")
    assert store.read(f"{folder}/full/file") == b"old" and store.read(f"{folder}/new/file") == b"new"
    store.rename(f"{folder}/new", f"{folder}/empty")
    store.rename(f"{folder}/empty", f"{folder}/free")
    assert names(store, folder) == ["free", "full"] and store.read(f"{folder}/free/file") == b"new"
    store.move(f"{folder}/free", f"{folder}/full/moved")
    assert store.read(f"{folder}/full/moved/file") == b"new"


def test_a_renamed_or_later_file_has_another_identity(store: FileStore, folder: str) -> None:
    store.make_folders(f"{folder}/one")
    store.make_folders(f"{folder}/two")
    one, two = (store.stat(f"{folder}/{name}") for name in ("one", "two"))
    assert (one.st_dev, one.st_ino) != (two.st_dev, two.st_ino)
    store.rename(f"{folder}/one", f"{folder}/three")
    assert store.stat(f"{folder}/three").st_ino == one.st_ino


def test_a_copy_has_the_content_and_never_replaces_a_file(store: FileStore, folder: str) -> None:
    store.write(f"{folder}/origin", b"x" * 100_000)
    store.link_or_copy(f"{folder}/origin", f"{folder}/copy")
    store.replace(f"{folder}/origin", b"later")
    store.link_or_copy(f"{folder}/origin", f"{folder}/copy")
    assert store.read(f"{folder}/copy") == b"x" * 100_000


def test_a_folder_is_deleted_when_empty_or_as_a_tree(store: FileStore, folder: str) -> None:
    store.make_folders(f"{folder}/a/b")
    store.write(f"{folder}/a/b/file", b"")
    with pytest.raises(OSError):
        store.rmdir(f"{folder}/a")
    assert store.exists(f"{folder}/a/b/file")
    store.unlink(f"{folder}/a/b/file")
    store.rmdir(f"{folder}/a/b")
    store.remove_tree(f"{folder}/a")
    store.remove_tree(f"{folder}/none")
    assert names(store, folder) == []


def test_a_folder_that_changes_gets_a_later_time(store: FileStore, folder: str) -> None:
    before = store.stat(folder).st_mtime_ns
    while store.stat(folder).st_mtime_ns == before:
        store.write(f"{folder}/file", b"")
        store.unlink(f"{folder}/file")
    assert store.stat(folder).st_mtime_ns > before


def test_the_space_of_a_folder_that_does_not_exist_is_that_of_its_store(store: FileStore, folder: str) -> None:
    free, total = store.space(f"{folder}/none/deeper")
    assert free is not None and total is not None and 0 < free <= total
