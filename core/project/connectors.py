"""Connectors: jars, declared in headgate.yml, that a pool needs in addition to Spark's own."""

import hashlib
import json
import re
from dataclasses import dataclass

from core.model.file_stores import store_kind
from core.model.table_formats import TableFormat
from core.text.sentence import Fact, FactKind

SPARK = "4.2"
"""The minor version of Spark that pools run (see `pipelines.doctor.ENGINE`); each jar is built for one such version."""

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+\Z", re.ASCII)
_PATTERN = re.compile(r"[\w.*-]+:[\w.*-]+\Z", re.ASCII)
_DELTA = re.compile(r"delta-(?:spark|core)_(?:(?P<spark>\d+\.\d+)_)?(?P<scala>\d+\.\d+)\Z")
_SCALA = "2.13"


@dataclass(frozen=True, slots=True)
class Connector:
    """The jars of a connector: artifacts to fetch, local files, or both."""

    name: str
    coordinates: tuple[str, ...] = ()
    """`group:artifact:version` of each artifact to fetch with its dependencies; empty if only `jars` are used."""
    exclude: tuple[str, ...] = ()
    """Dependencies that Spark provides or that are not needed, as `group:artifact`, where either part may be `*`."""
    jars: tuple[str, ...] = ()
    """Jar files and folders of jars, used unchanged; paths are absolute or relative to the project folder."""


DELTA = Connector(
    name="delta",
    coordinates=(f"io.delta:delta-spark_{SPARK}_{_SCALA}:4.4.0",),
    # Spark 4.2.0 ships newer versions of these artifacts; without them, Delta 4.4.0 needs 14 MB instead of 87 MB.
    exclude=(
        "com.fasterxml.jackson.core:*", "com.github.luben:*", "com.google.code.findbugs:*", "commons-logging:*",
        "commons-pool:*", "io.airlift:*", "org.apache.hadoop:*", "org.apache.logging.log4j:*", "org.apache.parquet:*",
        "org.locationtech.jts:*", "org.roaringbitmap:*", "org.slf4j:*", "org.xerial.snappy:*",
    ),
)  # fmt: skip

KAFKA = Connector(
    name="kafka",
    # Spark's reader of Avro takes 0.1 MB.
    coordinates=tuple(f"org.apache.spark:spark-{name}_{_SCALA}:4.2.0" for name in ("sql-kafka-0-10", "avro")),
    # Spark 4.2.0 ships versions of these artifacts; 10 MB remain.
    exclude=(
        "at.yawk.lz4:*", "com.github.luben:*", "com.google.code.findbugs:*", "org.apache.hadoop:*", "org.lz4:*",
        "org.scala-lang.modules:*", "org.slf4j:*", "org.tukaani:*", "org.xerial.snappy:*",
    ),
)  # fmt: skip

POSTGRES = Connector(
    name="postgres",
    coordinates=("org.postgresql:postgresql:42.7.8",),
    exclude=("org.checkerframework:*",),
)

S3 = Connector(
    name="s3",
    # The parts of the AWS SDK that Hadoop 3.5.0 uses, in the version with which it was built, in place of its bundle.
    coordinates=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(
            f"software.amazon.awssdk:{part}:2.35.4"
            for part in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
        ),
    ),
    # Spark 4.2.0 ships versions of the other artifacts; 13 MB remain.
    exclude=(
        "software.amazon.awssdk:bundle", "commons-codec:*", "commons-logging:*", "io.netty:*",
        "org.apache.httpcomponents:*", "org.slf4j:*",
    ),
)  # fmt: skip

CONNECTORS = {connector.name: connector for connector in (DELTA, KAFKA, POSTGRES, S3)}
"""Connectors that this version of Headgate knows, for a headgate.yml that gives only a name."""


def connectors_of(format: TableFormat, location: str) -> tuple[str, ...]:
    """Return the names of the connectors that a pool needs for a table of a format with a LOCATION."""
    needed = (format.connector, store_kind(location).connector if format.has_files else "")
    return tuple(filter(None, needed))


class ArtifactFault(FactKind):
    """Why a connector's artifact cannot be used."""

    FORM = "is not group:artifact:version"
    SCALA = "is Delta for Scala {found}, but pools run Scala {expected}"
    SPARK = "is Delta for Spark {found}, but pools run Spark {expected}"
    OLDER_SPARK = "is Delta for an older Spark, but pools run Spark {expected}"


def coordinate_fault(coordinate: str) -> Fact[ArtifactFault] | None:
    """Return why an artifact coordinate is malformed or does not match the pools' Spark; None if it is valid."""
    if not _COORDINATE.match(coordinate):
        return ArtifactFault.FORM.of()
    group, artifact, _ = coordinate.split(":")
    return artifact_fault(artifact) if group == "io.delta" else None


def artifact_fault(artifact: str) -> Fact[ArtifactFault] | None:
    """Return why a Delta artifact cannot run on the pools; None if it can, or if it does not belong to Delta."""
    found = _DELTA.match(artifact)
    if not found or (found["spark"], found["scala"]) == (SPARK, _SCALA):
        return None
    if found["spark"] == SPARK:
        return ArtifactFault.SCALA.of(found=found["scala"], expected=_SCALA)
    if found["spark"]:
        return ArtifactFault.SPARK.of(found=found["spark"], expected=SPARK)
    return ArtifactFault.OLDER_SPARK.of(expected=SPARK)


def is_exclusion(text: str) -> bool:
    """True if a string has the form `group:artifact`, in which either part may contain `*`."""
    return _PATTERN.match(text) is not None


def fetched_folder(home: str, connectors: tuple[Connector, ...]) -> str:
    """Return the folder in an environment's home for the jars fetched for `connectors`; its name is a hash of them."""
    what = json.dumps([[connector.coordinates, connector.exclude] for connector in connectors])
    return f"{home}/connectors/{hashlib.sha256(what.encode()).hexdigest()[:12]}"


FETCHED_LIST = "resolved.json"
"""The file in a folder of fetched jars that lists the name and size in bytes of each jar; it is written last."""
