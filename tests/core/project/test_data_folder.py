"""Declared data folders: which URIs are accepted, and how a folder becomes absolute."""

import pytest

from core.project.data_folder import WrongDataFolder, absolute_data_folder, data_folder_fault, is_in_hdfs


@pytest.mark.parametrize(
    "declared", ["hdfs://one:8020/data/prod", "hdfs://cluster/prod/", "data", "/shared/a:b", "../x"]
)
def test_local_folders_and_folders_in_hdfs_are_accepted(declared: str) -> None:
    assert data_folder_fault(declared) is None


@pytest.mark.parametrize(
    "declared",
    [
        "hdfs://", "hdfs://one", "hdfs://one/", "hdfs:///data", "hdfs://user@one/data", "hdfs://one/a//b", "hdfs://one/a?b",
        "hdfs://one/a/../b", "hdfs://one:8020:1/a", "hdfs://one/a#b",
    ],
)  # fmt: skip
def test_a_uri_without_a_folder_of_an_hdfs_is_refused(declared: str) -> None:
    fault = data_folder_fault(declared)
    assert fault is not None and fault.kind is WrongDataFolder.NO_FOLDER


@pytest.mark.parametrize("declared", ["s3a://bucket/data", "abfss://c@a.dfs.core.windows.net/x", "file:///data"])
def test_a_store_without_atomic_renames_is_refused(declared: str) -> None:
    fault = data_folder_fault(declared)
    assert fault is not None and fault.kind is WrongDataFolder.OTHER_STORE


def test_a_uri_is_absolute_and_a_path_lies_in_the_project() -> None:
    assert absolute_data_folder("/p", "hdfs://one/prod/", str.upper) == "hdfs://one/prod"
    assert absolute_data_folder("/p", "data", str.upper) == "/P/DATA"
    assert absolute_data_folder("/p", "/shared", str.upper) == "/SHARED"
    assert is_in_hdfs("hdfs://one/prod") and not is_in_hdfs("/hdfs://one")
