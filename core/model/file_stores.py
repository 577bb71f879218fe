"""Stores of files, by the scheme of a path, and what each of them can do."""

import re
from dataclasses import dataclass
from enum import Enum

from core.text.sentence import FactKind


class StoreAbility(Enum):
    """What a store of files can do, as a clause that follows `cannot`."""

    READ = "be read by Headgate"
    RENAME = "rename a folder atomically"
    IDENTIFY = "tell a folder from a later one of the same name"
    REPLACE = "replace a file atomically and durably"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of file store. What depends on an individual store, such as its settings, counts as an inability."""

    name: str
    schemes: tuple[str, ...]
    abilities: frozenset[StoreAbility]
    form: str = ""
    """A URI in the store, with words in capitals for its parts; empty if a folder is a path."""
    connector: str = ""
    """The connector whose jars a pool needs to read the store; empty if Spark alone is enough, or with `client`."""
    client: str = ""
    """The artifact with which Spark reads a store without a connector; empty if there is one, or none is needed."""


_OBJECTS = frozenset({StoreAbility.READ, StoreAbility.REPLACE})
"""What object stores can do, in which folders are only the beginnings of names."""

LOCAL_FILES = StoreKind("the local file system", ("", "file"), frozenset(StoreAbility))
HDFS = StoreKind("HDFS", ("hdfs",), frozenset(StoreAbility), "hdfs://HOST:PORT/FOLDER")
S3 = StoreKind("S3", ("s3a", "s3"), _OBJECTS, "s3a://BUCKET/FOLDER", "s3")
GCS = StoreKind("Google Cloud Storage", ("gs",), _OBJECTS, "gs://BUCKET/FOLDER", client="hadoop-gcp")
# An account with a hierarchical namespace renames folders, but no setting of Hadoop says whether it has one.
AZURE = StoreKind(
    "Azure Data Lake Storage",
    ("abfss", "abfs"),
    _OBJECTS,
    "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
    client="hadoop-azure",
)
OTHER = StoreKind("a store that Headgate does not know", (), frozenset())

_BY_SCHEME = {scheme: kind for kind in (LOCAL_FILES, HDFS, S3, GCS, AZURE) for scheme in kind.schemes}
READABLE = tuple(kind.name for kind in (LOCAL_FILES, HDFS, S3, GCS, AZURE))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def store_kind(place: str) -> StoreKind:
    """Return the kind of store that has a path or URI, whether it is absolute or not."""
    return _BY_SCHEME.get(scheme_of(place), OTHER)


def scheme_of(place: str) -> str:
    """Return the scheme of a URI; empty for a path."""
    found = _SCHEME.match(place)
    return found[1] if found else ""


_ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@\s]+(?P<host>@[^/@\s]+)?(?:/|\Z)")
"""Matches the root of a store. Only Azure's has two parts."""


def names_root(uri: str) -> bool:
    """True if a URI in a store over the network names its bucket, host or container, without which nothing is found."""
    found = _ROOT.match(uri)
    return found is not None and (found["host"] is not None) == ("@" in store_kind(uri).form)


def is_remote(place: str) -> bool:
    """True if files at a place are read over the network. A file system that is mounted here counts as local."""
    return store_kind(place) not in (LOCAL_FILES, OTHER)


class StoreFault(FactKind):
    """Why an object store did not give what it was asked for."""

    SILENT = "{store} does not answer in time", "check the endpoint in the conf of the pool, and the network"
    UNREACHABLE = "{store} does not answer: {why}", "check the endpoint in the conf of the pool, and the network"
    REFUSED = (
        "{store} refuses the credentials of the agent, or does not let them read it",
        "check the keys in the environment of the agent, and what they allow",
    )
    NO_SECRET = "{reference} is not set for the agent", "set it where headgate up runs, then restart the agent"
    BUSY = "{store} asks for fewer requests", "it is tried again"
    FAILED = "{store} reports an error: {why}", "it is tried again"
