"""Settings of Spark's servers for streaming statements: those of every server, and those that connectors need."""

import re
from collections.abc import Iterable, Mapping

from core.model.secret_references import SecretKind, secret_reference
from core.project.connectors import DELTA, S3, Connector

SERVER_SETTINGS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "15s",
    "spark.sql.catalogImplementation": "in-memory",
    # Batch readers must see the newest commits of streams; this cache would return outdated file listings.
    "spark.sql.filesourceTableRelationCacheSize": "0",
    "spark.cleaner.periodicGC.interval": "10min",
    # A batch of more than 32 new files starts a task for each to list it (seen with 4.2.0: 29,000 tasks before a row).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Spark caches generated classes, by default 100 for all statements. With 19 statements on Delta, every batch
    # compiled its classes again, which took 0.38 of the server's CPU (samples of 20 s at rest, 4.2.0).
    "spark.sql.codegen.cache.maxEntries": "5000",
    # By default Spark runs a `readlink` process for each file of a checkpoint, 30 per batch on Delta. This class also
    # renames atomically on a file system, and also refuses a second writer of a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A path without a scheme is local everywhere in Headgate. In the files of HADOOP_CONF_DIR, it is one in HDFS.
    "spark.hadoop.fs.defaultFS": "file:///",
}
"""Settings of every server, which `conf` of a pool may replace."""

XML_OPTIONS = ("-Djavax.xml.accessExternalDTD=jar:file", "-Djavax.xml.accessExternalSchema=jar:file")
"""Options of Java without which an XML document could make xpath() open any address or file (seen on 4.2.0).

Libraries keep their grammars in jars.
"""

_CONF: Mapping[str, tuple[tuple[str, str], ...]] = {
    DELTA.name: (
        ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        # Number of tasks that compute each state of a table. With the default of 50, the first batches of ten
        # statements took 66 s instead of 16 s (two cores, Delta 4.4.0).
        ("spark.databricks.delta.snapshotPartitions", "1"),
        # VACUUM and OPTIMIZE list a table with up to 10,000 tasks, which took 40 s instead of 8 s for six files (two
        # cores).
        ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"),
    ),
    # Hadoop has a client of its own for s3a:// alone.
    S3.name: (("spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"),),
}


def connector_settings(connectors: Iterable[Connector], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the server settings that connectors need, merged with a pool's own settings and extensions."""
    found = dict(pair for connector in connectors for pair in _CONF.get(connector.name, ()))
    own = conf.get("spark.sql.extensions")
    if own and "spark.sql.extensions" in found and found["spark.sql.extensions"] not in own.split(","):
        found["spark.sql.extensions"] += f",{own}"
    elif own:
        found["spark.sql.extensions"] = own
    return found | {key: _for_hadoop(key, value) for key, value in conf.items() if key != "spark.sql.extensions"}


_SECRET_KEY = re.compile(
    r"(?:password|passphrase|secret|token|credentials?|(?:^|[._-])auth"
    r"|(?:access|secret|private|account|encryption|api)[._-]?key"
    r"|fs\.azure\.(?:account\.key|sas\.fixed\.token|account\.oauth2\.client\.secret)\..+|sas\.fixed\.token)\Z",
    re.IGNORECASE,
)
_OF_KUBERNETES = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.secret(?:s|KeyRef)\.")
"""Matches settings that name a secret of Kubernetes; their values are paths and keys of it."""
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@|-D[^\s=]*(?:password|secret|accesskey)[^\s=]*=", re.IGNORECASE)
"""Matches a password in an address, and one in an option of Java."""


def is_exposed_secret(key: str, value: str) -> bool:
    """True if a setting of a pool contains a secret itself, which the ledger would store.

    A reference to an environment variable is resolved by Spark or Hadoop in each process, and by the agent.
    """
    found = secret_reference(value)
    if found is not None and found.kind is SecretKind.VARIABLE:
        return False
    is_named = _SECRET_KEY.search(key) and not _OF_KUBERNETES.match(key)
    return bool((is_named and value.strip().lower() not in ("true", "false")) or _SECRET_VALUE.search(value))


def _for_hadoop(key: str, value: str) -> str:
    """Return a reference to an environment variable as Hadoop writes it; values for Spark itself are kept."""
    found = secret_reference(value) if key.startswith("spark.hadoop.") else None
    return f"${{env.{found.of}}}" if found is not None and found.kind is SecretKind.VARIABLE else value
