"""Provides connector jars, given by path or downloaded once into the environment's home by Spark's own resolver."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import is_zipfile

from core.model.errors import PoolUnreachable
from core.project.connectors import (
    CONNECTORS,
    DELTA,
    FETCHED_LIST,
    Connector,
    artifact_fault,
    fetched_folder,
)
from core.project.server_settings import connector_settings
from pipelines.local_pool.java_and_spark import spark_environment

FETCH_S = 600.0
"""Longest duration of a download, in seconds. A download of 14 MB, including POM files, took 20 to 35 s."""

# A class in Spark's own jars that prints its version and exits; Spark downloads the packages before running it.
_NOTHING_TO_DO = "org.apache.hadoop.util.VersionInfo"
_FETCH_CONF = ("spark.jars.repositories", "spark.jars.ivySettings")
"""Pool settings that determine where jars are downloaded from."""

_UNRESOLVED = re.compile(r"unresolved dependency: ([\w.-]+)#([\w.-]+);([\w.-]+)")
_FAILED = re.compile(r"download failed: ([\w.-]+)#([\w.-]+);([\w.-]+?)!")
_JAR_OF_DELTA = re.compile(
    r"(?:io\.delta_)?(?P<artifact>delta-[a-z]+(?:-[a-z]+)*(?:_[\d.]+)*)-(?P<version>\d.*)\.jar\Z"
)

_DELTA_NEEDS = ("delta-spark", "delta-storage")
"""Jars that Delta 4.4.0 needs. Without `delta-storage`, creating the first table fails."""


@dataclass(frozen=True, slots=True)
class ConnectorJars:
    """Finds and downloads the jars that a pool's connectors need."""

    home: Path
    project: Path
    """Folder against which relative jar paths are resolved."""
    connectors: tuple[Connector, ...]
    conf: Mapping[str, str]
    """Settings of the pool."""

    @property
    def folder(self) -> Path:
        """Folder of the downloaded jars of these connectors."""
        return Path(fetched_folder(str(self.home), self.connectors))

    def obtain(self, spark: Path, java_home: str, say: Callable[[str], object]) -> tuple[str, ...]:
        """Return the paths of all connector jars, after downloading missing jars.

        `say` is called with a message before a download. Raises PoolUnreachable, with the missing artifact or path in
        its message, if a jar cannot be obtained.
        """
        given = self.given()
        if not any(connector.coordinates for connector in self.connectors):
            return given
        if (fetched := self.fetched()) is None:
            names = ", ".join(connector.name for connector in self.connectors if connector.coordinates)
            say(f"the jars of {names} are being fetched once, into {self.folder}")
            self._fetch(spark, java_home)
            fetched = self.fetched() or ()
        return (*fetched, *given)

    def given(self) -> tuple[str, ...]:
        """Return the paths of the jars that headgate.yml specifies by path.

        Raises PoolUnreachable if a path has no jar, if a jar is damaged, or if Delta's jars are incomplete, unsuitable
        or of different versions.
        """
        return tuple(jar for connector in self.connectors for jar in self._given(connector))

    def fetched(self) -> tuple[str, ...] | None:
        """Return the paths of the downloaded jars, or None if a jar is missing or incomplete."""
        try:
            sizes = json.loads((self.folder / FETCHED_LIST).read_text("utf-8"))
            whole = all((self.folder / name).stat().st_size == size for name, size in sizes.items())
        except (OSError, ValueError, AttributeError):
            return None
        return tuple(str(self.folder / name) for name in sorted(sizes)) if whole and sizes else None

    def settings(self) -> dict[str, str]:
        """Return the server settings that the connectors need, merged with the pool's own settings and extensions."""
        return connector_settings(self.connectors, self.conf)

    def _given(self, connector: Connector) -> list[str]:
        found: list[Path] = []
        for place in connector.jars:
            path = self.project / Path(place).expanduser()
            jars = sorted(path.glob("*.jar")) if path.is_dir() else [path]
            if not path.exists() or not jars:
                lacks = "has no jar in it" if path.exists() else "does not exist"
                raise _refusal(connector, f"{path} {lacks}", "correct connectors: in headgate.yml")
            found += jars
        for jar in found:
            if not is_zipfile(jar):
                size = jar.stat().st_size
                remedy = "copy it again from its source"
                raise _refusal(connector, f"{jar} is not a complete jar ({size:,} bytes)", remedy)
        if connector.name == DELTA.name and connector.jars and not connector.coordinates:
            _check_given(connector, found)
        return [str(path) for path in found]

    def _fetch(self, spark: Path, java_home: str) -> None:
        # The download goes to a temporary folder, which is moved into place once it is complete.
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with TemporaryDirectory(prefix=".fetch-", dir=self.folder.parent) as beside:
            work = Path(beside)
            (work / "spark.conf").write_text("")
            try:
                done = subprocess.run(
                    self._command(spark, work),
                    env=spark_environment(spark, java_home),
                    cwd=work,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=FETCH_S,
                )
            except subprocess.TimeoutExpired as error:
                raise self._unfetched("", f"the download did not finish within {FETCH_S:.0f} s") from error
            jars = sorted((work / "ivy" / "jars").glob("*.jar"))
            if done.returncode != 0 or not jars:
                raise self._unfetched(done.stdout + done.stderr, f"spark-submit ended with {done.returncode}")
            target = work / "whole"
            target.mkdir(mode=0o750)
            for jar in jars:
                os.rename(jar, target / jar.name)
            sizes = {path.name: path.stat().st_size for path in target.iterdir()}
            (target / FETCHED_LIST).write_text(json.dumps(sizes, indent=1), "utf-8")
            shutil.rmtree(self.folder, ignore_errors=True)
            os.rename(target, self.folder)

    def _command(self, spark: Path, work: Path) -> list[str]:
        coordinates = [each for connector in self.connectors for each in connector.coordinates]
        exclude = [each for connector in self.connectors for each in connector.exclude]
        command = [str(spark / "bin" / "spark-submit"), "--master", "local[1]", "--class", _NOTHING_TO_DO]
        command += ["--properties-file", str(work / "spark.conf"), "--conf", f"spark.jars.ivy={work / 'ivy'}"]
        command += ["--packages", ",".join(coordinates)]
        if exclude:
            command += ["--exclude-packages", ",".join(exclude)]
        for key in _FETCH_CONF:
            if key in self.conf:
                command += ["--conf", f"{key}={self.conf[key]}"]
        return [*command, "spark-internal"]

    def _unfetched(self, output: str, otherwise: str) -> PoolUnreachable:
        missing = dict.fromkeys(":".join(found) for found in (*_UNRESOLVED.findall(output), *_FAILED.findall(output)))
        names = ", ".join(connector.name for connector in self.connectors if connector.coordinates)
        what = f"{', '.join(missing)} cannot be fetched" if missing else f"its jars cannot be fetched: {otherwise}"
        return PoolUnreachable(
            f"the pool cannot start without the connector {names}: {what}",
            remedy="check the coordinates and the network, or give a folder: connectors: {NAME: {jars: [folder]}}",
        )


def _check_given(connector: Connector, jars: Iterable[Path]) -> None:
    found = {match["artifact"]: match["version"] for jar in jars if (match := _JAR_OF_DELTA.match(jar.name))}
    default = CONNECTORS[connector.name].coordinates[0]
    for artifact in found:
        if wrong := artifact_fault(artifact):
            raise _refusal(connector, f"{artifact} {wrong}", f"give the jars of {default}")
    for needed in _DELTA_NEEDS:
        if not any(artifact == needed or artifact.startswith(f"{needed}_") for artifact in found):
            raise _refusal(connector, f"{needed} is missing from the given jars", f"add that of {default}")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{artifact} {version}" for artifact, version in sorted(found.items()))
        raise _refusal(connector, f"its jars have different versions: {listed}", "give jars of one version")


def _refusal(connector: Connector, why: str, remedy: str) -> PoolUnreachable:
    return PoolUnreachable(f"the pool cannot start without the connector {connector.name}: {why}", remedy=remedy)
