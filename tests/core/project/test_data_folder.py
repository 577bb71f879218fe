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
        "hdfs://", "hdfs://one", "hdfs://one/", "hdfs:///data", "hdfs://one/a//b", "hdfs://one/a?b",
        "hdfs://one/a/../b", "hdfs://one:8020:1/a", "hdfs://one/a#b",
    ],
)  # fmt: skip
def test_a_uri_without_a_folder_of_an_hdfs_is_refused(declared: str) -> None:
    fault = data_folder_fault(declared)
    assert fault is not None and fault.kind is WrongDataFolder.NO_FOLDER


@pytest.mark.parametrize("user", ["user", "user:hunter2secret"])
def test_a_user_in_a_uri_is_refused_and_a_password_is_not_shown(user: str) -> None:
    fault = data_folder_fault(f"hdfs://{user}@one:8020/data")
    assert fault is not None and fault.kind is WrongDataFolder.CREDENTIALS and "hunter2" not in str(fault)


@pytest.mark.parametrize(
    ("declared", "store"),
    [
        ("s3a://bucket/data", "S3"),
        ("gs://bucket/data", "Google Cloud Storage"),
        ("abfss://c@a.dfs.core.windows.net/x", "Azure Data Lake Storage"),
    ],
)
def test_an_object_store_is_refused_by_what_it_lacks_and_named_for_external_tables(declared: str, store: str) -> None:
    fault = data_folder_fault(declared)
    assert fault is not None and fault.kind is WrongDataFolder.UNABLE
    lacks = "rename a folder atomically and tell a folder from a later one of the same name"
    assert str(fault) == f"{declared} is in {store}, which cannot {lacks}"
    assert str(fault.remedy).endswith(f"statements can read external tables in {store}")


@pytest.mark.parametrize(
    ("declared", "kind"),
    [("file:///data", WrongDataFolder.PATH), ("ftp://host/data", WrongDataFolder.UNKNOWN)],
)
def test_another_uri_is_refused(declared: str, kind: WrongDataFolder) -> None:
    fault = data_folder_fault(declared)
    assert fault is not None and fault.kind is kind


def test_a_uri_is_absolute_and_a_path_lies_in_the_project() -> None:
    assert absolute_data_folder("/p", "hdfs://one/prod/", str.upper) == "hdfs://one/prod"
    assert absolute_data_folder("/p", "data", str.upper) == "/P/DATA"
    assert absolute_data_folder("/p", "/shared", str.upper) == "/SHARED"
    assert is_in_hdfs("hdfs://one/prod") and not is_in_hdfs("/hdfs://one")
