"""Stores of files: which one a path is in, and what each kind can do."""

import pytest

from core.model.file_stores import (
    AZURE,
    GCS,
    HDFS,
    LOCAL_FILES,
    OTHER,
    S3,
    StoreAbility,
    StoreKind,
    is_remote,
    store_kind,
)


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/data/a", LOCAL_FILES), ("data", LOCAL_FILES), ("/s3a://x", LOCAL_FILES), ("a:b/c", LOCAL_FILES),
        ("file:///data", LOCAL_FILES), ("file:/data", LOCAL_FILES), ("hdfs://one:8020/a", HDFS), ("hdfs:/a", HDFS),
        ("s3a://lake/a", S3), ("s3://lake", S3), ("gs://lake/a", GCS), ("abfss://c@a.dfs.core.windows.net/a", AZURE),
        ("abfs://c@a.dfs.core.windows.net/a", AZURE), ("kafka://b:9092/topic", OTHER), ("ftp://host/a", OTHER),
    ],
)  # fmt: skip
def test_the_scheme_of_a_place_says_in_which_store_it_is(place: str, kind: StoreKind) -> None:
    assert store_kind(place) is kind
    assert is_remote(place) == (kind in (HDFS, S3, GCS, AZURE))


def test_object_stores_are_read_but_neither_rename_nor_identify_folders() -> None:
    for kind in (S3, GCS, AZURE):
        assert frozenset(StoreAbility) - kind.abilities == {StoreAbility.RENAME, StoreAbility.IDENTIFY}
    for kind in (LOCAL_FILES, HDFS):
        assert kind.abilities == frozenset(StoreAbility)
    assert not OTHER.abilities
