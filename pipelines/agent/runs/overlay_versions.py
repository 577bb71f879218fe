"""The versions of an overlay together with those of its base, as one set of versions that can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.model.names import TableName, query_name
from core.model.table_formats import table_format
from core.observed.aligned_positions import Version
from core.observed.versions import Binding, Deployment, Measurement, serving_version
from core.project.overlay import Overlay
from core.project.revision import RevisionTexts
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.storage.file_stream_logs import local_path

OWN = 1_000_000_000
"""Added to the version numbers of the overlay, so that none of them is also a number in the base.

People never see these numbers: `OverlayVersions.name` gives the numbers in the ledger, with the environment.
"""


@dataclass(frozen=True, slots=True)
class OverlayVersions:
    """The versions of the overlay `environment`, and of its base.

    An external table of the overlay that is inherited is the base's version at its location. An external table of both
    environments at one location is the base's. The ledger of the base is only read.
    """

    base: LedgerVersions
    own: LedgerVersions
    overlay: Overlay
    environment: str
    seen: Mapping[Version, Deployment] | None = None
    """The versions as they were once, if they are not to be read again; 3,000 versions take a second to read."""

    def as_of_now(self) -> "OverlayVersions":
        """Return a view whose `deployed` always returns the versions as they are now."""
        return replace(self, seen=replace(self, seen=None).deployed())

    def deployed(self) -> Mapping[Version, Deployment]:
        if self.seen is not None:
            return self.seen
        base, own = self.base.deployed(), self.own.deployed()
        here = (self._merged(base, own, found) for found in own.values())
        return {**base, **{(found.table, found.version): found for found in here if found.version >= OWN}}

    def find(self, table: TableName, version: int) -> Deployment | None:
        if self.seen is not None and (known := self.seen.get((table, version))) is not None:
            return known
        if version < OWN:
            return self.base.find(table, version)
        found = self.own.find(table, version - OWN)
        return None if found is None else self._merged(self.base.deployed(), self.own.deployed(), found)

    def measurement(self, table: TableName, version: int) -> Measurement | None:
        if version < OWN:
            return self.base.measurement(table, version)
        found = self.own.measurement(table, version - OWN)
        return None if found is None else replace(found, version=version)

    def earlier_texts(self, table: TableName, version: int) -> tuple[RevisionTexts, ...]:
        if version < OWN:
            return self.base.earlier_texts(table, version)
        return self.own.earlier_texts(table, version - OWN)

    def name(self, table: TableName, version: int) -> str:
        number, environment = number_in_ledger(version), self.environment if version >= OWN else self.overlay.base
        return f"{query_name(table, number) if number else table} of {environment}"

    def serving_in_base(self) -> dict[TableName, Deployment]:
        """Return the serving version of every table of the base, without external tables."""
        return _serving({key: found for key, found in self.deployed().items() if key[1] < OWN})

    def serving_here(self) -> dict[TableName, Deployment]:
        """Return the serving version of every table that the overlay builds, numbered as in `deployed`."""
        return _serving({key: found for key, found in self.deployed().items() if key[1] >= OWN})

    def _merged(
        self, base: Mapping[Version, Deployment], own: Mapping[Version, Deployment], found: Deployment
    ) -> Deployment:
        if found.external:
            return replace(found, version=self._source(base, found))
        bindings = []
        for binding in found.bindings:
            version, read = binding.version, own.get((binding.parent, binding.version))
            number = OWN + version if version or read is None else self._source(base, read)
            bindings.append(Binding(binding.parent, number, binding.streamed))
        after = found.begins_after_version
        return replace(
            found,
            version=OWN + found.version,
            bindings=tuple(bindings),
            begins_after_version=OWN + after if after else 0,
            clone_of=OWN + found.clone_of if found.clone_of else 0,
        )

    def _source(self, base: Mapping[Version, Deployment], external: Deployment) -> int:
        """Return the number of the version that an external table of the overlay is."""
        version = self.overlay.inherited.get(external.table, 0)
        of_base = base.get((external.table, version))
        if of_base is None:
            return OWN
        # A version that writes a topic has an empty folder, and all versions of its statement share the topic.
        topic = of_base.writes_topic and table_format(external.format).topics
        return version if topic or _place(of_base) == _place(external) else OWN


def number_in_ledger(version: int) -> int:
    """Return a version's number in the ledger of its environment."""
    return version % OWN


def _serving(deployed: Mapping[Version, Deployment]) -> dict[TableName, Deployment]:
    versions: dict[TableName, list[Deployment]] = {}
    for found in deployed.values():
        if not found.external:
            versions.setdefault(found.table, []).append(found)
    chosen = {table: serving_version(each) for table, each in versions.items()}
    return {table: one for table, one in sorted(chosen.items()) if one is not None and one.active}


def _place(deployment: Deployment) -> str:
    folder = local_path(deployment.folder.rstrip("/"))
    return folder if deployment.external else table_format(deployment.format).place_in(folder)
