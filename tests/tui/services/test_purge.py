"""A purge deletes exactly the files that are proven to belong to this environment, whatever lies next to them."""

import fcntl
import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_hdfs import SAFE_MODE, fake_hdfs

from core.ipc.environment_paths import manifest_cache_path, parse_cache_path
from core.model.errors import HeadgateError
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.services import teardown

OURS, OTHER = "9f2c", "another ledger"


def version_folder(folder: Path, ledger: str = OURS, *, table: str = "a", version: int = 1) -> Path:
    """Create a folder as the agent does for a version's table or checkpoint."""
    (folder / "state" / "0").mkdir(parents=True)
    (folder / "state" / "0" / "1.delta").write_text("state")
    (folder / "part-0").write_text("rows")
    (folder / teardown.OWNER_FILE).write_text(json.dumps({"ledger": ledger, "run": "r"}))
    (folder / teardown.NOTE_FILE).write_text(json.dumps({"table": table, "version": version}))
    return folder


def everything(place: SelectedEnvironment) -> list[str]:
    return teardown.purge(place, teardown.owned_places(place), lambda wait: None)


def contents(root: Path) -> dict[str, str]:
    """Return each file, link and folder below a root, with its contents or target."""
    found = {}
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in (*folders, *files)):
            what = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
            found[str(path.relative_to(root))] = what
    return found


@pytest.fixture
def data(place: SelectedEnvironment, ledger: Any) -> Path:
    made = Path(place.data)
    made.mkdir()
    return made


class Lake:
    """A data folder that others also use: its contents, and what a purge must keep."""

    def __init__(self, data: Path, outside: Path, seed: int) -> None:
        self.data, self.outside, self.random = data, outside, random.Random(seed)
        self.ours: list[Path] = []
        version_folder(outside / "a__v1")
        for container in (
            "tables",
            "checkpoints",
            "trash/a__v1/tables",
            "trash/run-7/checkpoints",
            "trash/b/tables",
        ):
            self.fill(data / container)
        self.fill(data / "trash/a__v1/before_seam" / "1800000000")
        for name in ("raw", "tables/raw", "trash/mine", "trash/mine/deep/er", "checkpoints/empty"):
            if self.random.random() < 0.5:
                (data / name).mkdir(parents=True, exist_ok=True)
                (data / name / "rows.csv").write_text(name)
        self.records()
        if self.random.random() < 0.5:
            self.put(data / teardown.WORLD_FILE, json.dumps({"ledger": OURS}))
            self.put(data / teardown.LOCK_FILE, "1")
        else:
            (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OTHER}))
            (data / teardown.LOCK_FILE).write_text("1")

    def put(self, path: Path, text: str) -> None:
        path.write_text(text)
        self.ours.append(path)

    def fill(self, container: Path) -> None:
        container.mkdir(parents=True)
        for name in self.random.sample(("a__v1", "a__v2.rewrite.r", "b__v1", "b__v1.a__v2.7", ".a__v3.fork"), k=3):
            table, version = name.strip(".")[0], int(name.strip(".")[4])
            match self.random.randrange(8):
                case 0 | 1 | 2:
                    made = version_folder(container / name, table=table, version=version)
                    (made / "linked").symlink_to(self.outside)
                    self.ours.append(made)
                case 3:
                    version_folder(container / name, OTHER, table=table, version=version)
                case 4:
                    (container / name).symlink_to(self.outside / "a__v1")
                case 5:
                    version_folder(container / f"copy of {name}.bak", table=table, version=version)
                case 6:
                    (container / name).mkdir()
                    (container / name / teardown.OWNER_FILE).write_text("not JSON")
                case 7:
                    (container / name).write_text("a file")

    def records(self) -> None:
        folder = self.data / teardown.RECORDS_FOLDER
        folder.mkdir()
        for name in ("a@v1.json", "_serving.json"):
            if self.random.random() < 0.7:
                self.put(folder / name, json.dumps({"ledger": OURS}))
        if self.random.random() < 0.5:
            (folder / "b@v1.json").write_text(json.dumps({"ledger": OTHER}))
            (folder / "notes").write_text("mine")

    def left(self) -> dict[str, str]:
        """Return everything that is not ours, without folders that become empty when our files are deleted."""
        ours = tuple(f"{path.relative_to(self.data)}/" for path in self.ours)
        before = contents(self.data)
        kept = {path: what for path, what in before.items() if not f"{path}/".startswith(ours)}
        for path in sorted(kept, key=lambda path: -path.count("/")):
            had = any(each.startswith(f"{path}/") for each in before)
            if had and not any(each.startswith(f"{path}/") for each in kept):
                del kept[path]
        return kept


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(40))
def test_exactly_our_files_are_deleted_from_a_shared_data_folder(
    seed: int, place: SelectedEnvironment, data: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    lake = Lake(data, outside, seed)
    left, elsewhere = lake.left(), contents(outside)
    everything(place)
    assert contents(data) == left
    assert contents(outside) == elsewhere


def test_a_foreign_trash_folder_without_our_files_is_kept(place: SelectedEnvironment, data: Path) -> None:
    (data / "trash" / "2024" / "q1").mkdir(parents=True)
    (data / "trash" / "thesis.txt").write_text("mine")
    before = contents(data)
    everything(place)
    assert contents(data) == before


def test_foreign_files_below_the_trash_of_a_version_are_kept(place: SelectedEnvironment, data: Path) -> None:
    version_folder(data / "trash" / "a__v1" / "tables" / "a__v1")
    (data / "trash" / "a__v1" / "notes.txt").write_text("mine")
    everything(place)
    assert contents(data) == {"trash": "", "trash/a__v1": "", "trash/a__v1/notes.txt": "mine"}


def test_purge_leaves_no_folder_that_is_empty(place: SelectedEnvironment, data: Path) -> None:
    for shelf in ("tables", "checkpoints"):
        version_folder(data / shelf / "a__v1")
    everything(place)
    assert not data.exists()


def test_without_a_ledger_the_mark_of_the_home_identifies_its_folders(place: SelectedEnvironment) -> None:
    data = Path(place.data)
    ours = version_folder(data / "tables" / "a__v1")
    other = version_folder(data / "tables" / "b__v1", OTHER, table="b")
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS, "home": f"{place.where.home}-other"}))
    everything(place)
    assert ours.exists()
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS, "home": place.where.home}))
    everything(place)
    assert not ours.exists() and other.exists()


def test_the_lock_of_a_server_that_lives_stays(place: SelectedEnvironment, data: Path) -> None:
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS}))
    with open(data / teardown.LOCK_FILE, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything(place)
    assert contents(data) == {teardown.LOCK_FILE: ""}


def test_the_home_is_deleted_file_by_file_and_foreign_files_are_kept(place: SelectedEnvironment, data: Path) -> None:
    home = Path(place.where.home)
    for name in (
        "agent.lock",
        "agent.log",
        "agent.log.1",
        "pool.json",
        "pool.log.5",
        "audit-2026.jsonl",
        "emergency.jsonl",
    ):
        (home / name).write_text("")
    (home / "pool" / "warehouse").mkdir(parents=True)
    (home / "ledger.db.20260102T030405Z.replaced").write_text("")
    (home / "before-upgrade.db").write_text("mine")
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS}))
    (home / "others").mkdir()
    everything(place)
    assert contents(home) == {"before-upgrade.db": "mine", "others": ""}
    (home / "before-upgrade.db").unlink()
    (home / "others").rmdir()
    (home / "ledger.db").write_text("")
    everything(place)
    assert not home.exists()


def test_the_home_of_the_original_stays_where_a_copy_of_the_project_is_purged(
    place: SelectedEnvironment, data: Path
) -> None:
    kept = contents_of_home(place)
    everything(place)
    assert contents_of_home(place) == kept and teardown.keeps_home(place) is not None
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS}))
    assert teardown.keeps_home(place) is None
    everything(place)
    assert not Path(place.where.home).exists()


def contents_of_home(place: SelectedEnvironment) -> set[str]:
    return {path.name for path in Path(place.where.home).iterdir()}


def test_a_folder_replaced_after_the_confirmation_is_kept(place: SelectedEnvironment, data: Path) -> None:
    ours = version_folder(data / "tables" / "a__v1")
    found = teardown.owned_places(place)
    (ours / teardown.OWNER_FILE).write_text(json.dumps({"ledger": OTHER}))
    gone = teardown.purge(place, found, lambda wait: None)
    assert ours.exists() and str(ours) not in gone


def test_an_incompletely_deleted_version_keeps_its_proof_of_ownership(
    place: SelectedEnvironment, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, unlink = version_folder(data / "tables" / "a__v1"), os.unlink

    def busy(name: Any, **where: Any) -> None:
        if name == "1.delta":
            raise OSError("busy")
        unlink(name, **where)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", busy)
        everything(place)
    assert (ours / teardown.OWNER_FILE).exists()


def test_a_purge_that_is_killed_anywhere_is_finished_by_the_next_one(
    place: SelectedEnvironment, data: Path, tmp_path: Path
) -> None:
    home, kept = Path(place.where.home), tmp_path / "kept"
    for container in ("tables", "checkpoints"):
        version_folder(data / container / "a__v1")
    (data / teardown.RECORDS_FOLDER).mkdir()
    (data / teardown.RECORDS_FOLDER / "a@v1.json").write_text(json.dumps({"ledger": OURS}))
    (data / teardown.LOCK_FILE).write_text("1")
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS, "home": str(home)}))
    (home / "agent.log").write_text("")
    for folder in (data, home):
        shutil.copytree(folder, kept / folder.name)
    one_by_one = [
        replace(owned, parts=owned.parts[:parts])
        for owned in teardown.owned_places(place)
        for parts in range(min(1, len(owned.parts)), len(owned.parts) + 1)
    ]
    for done in range(len(one_by_one) + 1):
        for folder in (data, home):
            shutil.copytree(kept / folder.name, folder, dirs_exist_ok=True)
        teardown.purge(place, one_by_one[:done], lambda wait: None)
        everything(place)
        assert not data.exists() and not home.exists(), one_by_one[:done][-1:]


@pytest.fixture
def demo(tmp_path: Path, place: SelectedEnvironment) -> Iterator[SelectedEnvironment]:
    """A demo copied as by `headgate demo`, with landed events."""
    from pipelines.demo.sample_copy import copy_sample

    copied = copy_sample(tmp_path / "demo")
    landed = copied.data / "landing" / "orders"
    (landed / "orders-000000001.json").write_text("{}")
    (copied.data / "generator.book.json").write_text("{}")
    yield replace(place, folder=str(copied.folder), data=str(copied.data), project_id=copied.project_id)


def test_a_demo_is_purged_completely_if_all_of_it_is_ours(demo: SelectedEnvironment) -> None:
    (Path(demo.folder) / "headgate.yml").write_text("edited: true")
    assert demo.folder in everything(demo)
    assert not Path(demo.folder).exists()


def test_the_proof_that_a_demo_is_ours_is_deleted_last(demo: SelectedEnvironment) -> None:
    (whole,) = [owned for owned in teardown.owned_places(demo) if owned.path == demo.folder]
    assert [Path(part).name for part in whole.parts[-2:]] == ["headgate.yml", teardown.DEMO_FILE]


def test_a_folder_that_is_closed_to_us_stays_and_is_no_error(
    place: SelectedEnvironment, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_folder(data / "tables" / "a__v1")
    (data / teardown.RECORDS_FOLDER).mkdir()
    closed = {str(data / teardown.RECORDS_FOLDER), place.where.home}

    def listdir(path: Any = ".") -> list[str]:
        if os.fspath(path) in closed:
            raise PermissionError(13, "Permission denied", path)
        return really(path)

    really = os.listdir
    monkeypatch.setattr(os, "listdir", listdir)
    everything(place)
    assert not (data / "tables").exists() and (data / teardown.RECORDS_FOLDER).exists()


def test_foreign_files_in_a_demo_are_kept(demo: SelectedEnvironment) -> None:
    mine = {"notes.md", "pipelines/mine.sql", "data/mine.csv", "data/landing/orders/mine.json"}
    for name in mine:
        (Path(demo.folder) / name).write_text("mine")
    other = version_folder(Path(demo.data) / "tables" / "a__v1", OTHER)
    everything(demo)
    files = {path for path, what in contents(Path(demo.folder)).items() if what == "mine"}
    assert files == mine and other.exists()
    assert not (Path(demo.folder) / teardown.DEMO_FILE).exists()


def test_a_copy_of_a_demo_that_became_another_project_is_no_demo(demo: SelectedEnvironment) -> None:
    before = contents(Path(demo.folder))
    everything(replace(demo, project_id="another"))
    assert contents(Path(demo.folder)) == before


def test_a_folder_is_removed_completely_without_following_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    for folder in range(20):
        deep = tmp_path / "ours" / str(folder) / "state"
        deep.mkdir(parents=True)
        for name in range(5):
            (deep / f"{name}.delta").touch()
    (tmp_path / "ours/0/elsewhere").symlink_to(kept)
    (tmp_path / "ours/1/broken").symlink_to(tmp_path / "nowhere")
    heard: list[int] = []
    teardown.remove_tree(str(tmp_path / "ours"), told=heard.append)
    assert not (tmp_path / "ours").exists() and (kept / "file").exists()
    assert heard == sorted(heard) and heard[-1] == 102


def test_a_demo_is_kept_while_another_of_its_environments_exists(demo: SelectedEnvironment) -> None:
    project = {path for path in contents(Path(demo.folder)) if not path.startswith("data/tables")}
    other = Path(demo.where.home).parent / "stage"
    other.mkdir(parents=True)
    (other / "ledger.db").write_text("")
    assert (kept := teardown.keeps_demo(demo)) is not None and kept.endswith("other environments: stage")
    everything(demo)
    assert project <= {*contents(Path(demo.folder))}
    (other / "ledger.db").unlink()
    assert teardown.keeps_demo(demo) is None
    everything(demo)
    assert not Path(demo.folder).exists()


def test_the_caches_of_a_demo_are_deleted_and_those_of_other_projects_are_kept(
    demo: SelectedEnvironment, tmp_path: Path
) -> None:
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    other = replace(demo, project_id="another")
    for place in (demo, other):
        kept = Path(parse_cache_path(environ, project=place.project, project_id=place.project_id))
        kept.parent.mkdir(parents=True)
        kept.write_text("cache")
    manifest = Path(manifest_cache_path(environ, os.getuid(), folder=demo.folder))
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text("cache")
    teardown.delete_caches(other, environ)
    assert manifest.exists() and kept.exists(), "the folder is not its demo"
    teardown.delete_caches(demo, environ)
    assert [path for path, what in contents(tmp_path / "home").items() if what == "cache"] == [
        str(kept.relative_to(tmp_path / "home"))
    ]


def test_files_in_hdfs_are_purged_like_local_ones_and_repeatedly(
    place: SelectedEnvironment, ledger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "served" / "dev"
    version_folder(data / "tables" / "a__v1")
    version_folder(data / "trash" / "a__v1" / "checkpoints" / "a__v1")
    other = version_folder(data / "tables" / "b__v1", OTHER, table="b")
    (data / teardown.RECORDS_FOLDER).mkdir()
    (data / teardown.RECORDS_FOLDER / "a@v1.json").write_text(json.dumps({"ledger": OURS}))
    (data / teardown.WORLD_FILE).write_text(json.dumps({"ledger": OURS, "home": place.where.home}))
    kept = {f"tables/b__v1/{name}": what for name, what in contents(other).items()}
    with fake_hdfs(tmp_path / "served", monkeypatch) as hdfs:
        there = replace(place, data=f"{hdfs.root}/dev")
        found = teardown.owned_places(there)
        assert [owned.path for owned in found][-1] == f"{there.data}/{teardown.WORLD_FILE}"
        hdfs.fault = SAFE_MODE
        with pytest.raises(HeadgateError, match="safe mode"):
            teardown.purge(there, found, lambda wait: None)
        assert os.path.exists(place.where.ledger)
        hdfs.fault = None
        assert set(everything(there)) == {owned.path for owned in found}
    assert contents(data) == {"tables": "", "tables/b__v1": ""} | kept
    assert not os.path.exists(place.where.home)
