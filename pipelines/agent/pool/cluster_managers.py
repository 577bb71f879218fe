"""The managers of the clusters on which pools run: a standalone master, or YARN's ResourceManager.

Every method raises PoolUnreachable if the manager does not answer, or answers something else, except `word`.
"""

import json
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from core.model.errors import PoolUnreachable
from core.observed.cluster_manager import (
    ManagerWord,
    application_on_master,
    word_of,
    yarn_application,
    yarn_figures,
)
from core.observed.spark_work import ClusterFigures, ManagedApplication
from core.project.model import Pool
from core.text.sentence import Fact
from pipelines.local_pool.standalone_master import ANSWERS_S, LARGEST, read_master
from pipelines.spark_connect.call_deadlines import call


class ClusterManager(Protocol):
    """The manager of a pool's cluster."""

    def figures(self, application: str) -> ClusterFigures:
        """Return what the manager counts, with the application of an id, if the id is not empty and it knows that."""

    def word(self, application: str) -> Fact[ManagerWord]:
        """Return what the manager says about the application of an id, or that it does not answer."""


def manager_of(pool: Pool) -> ClusterManager | None:
    """Return the manager of a pool's cluster; None if the pool runs on none, or does not declare it."""
    if pool.yarn_ui:
        return YarnManager(pool.yarn_ui.rstrip("/"))
    return StandaloneManager(pool.master_page) if pool.master_page else None


class StandaloneManager:
    """The master of a standalone cluster."""

    def __init__(self, page: str) -> None:
        """Ask the master whose web interface has the URL `page`."""
        self._page = page

    def figures(self, application: str) -> ClusterFigures:
        view = read_master(self._page)
        cores, free = (sum(getattr(each, name) for each in view.alive) for name in ("cores", "free_cores"))
        return ClusterFigures(
            view.status,
            len(view.alive),
            len(view.workers) - len(view.alive),
            cores=cores,
            free_cores=free,
            applications=len(view.applications),
            application=application_on_master(view, application),
        )

    def word(self, application: str) -> Fact[ManagerWord]:
        try:
            view = read_master(self._page)
        except PoolUnreachable as error:
            return ManagerWord.SILENT.of(application=application, error=error.summary)
        found = application_on_master(view, application)
        return word_of(f"the master {view.master}", application, found, kill=f"the link (kill) on {self._page}")


class YarnManager:
    """The ResourceManager of a YARN cluster."""

    def __init__(self, page: str) -> None:
        """Ask the ResourceManager whose web interface has the URL `page`."""
        self._page = page

    def figures(self, application: str) -> ClusterFigures:
        status, body = self._answer("/metrics")
        if status != HTTPStatus.OK:
            raise self._refusal(status)
        return yarn_figures(self._read(body), self._application(application) if application else None)

    def word(self, application: str) -> Fact[ManagerWord]:
        try:
            found = self._application(application)
        except PoolUnreachable as error:
            return ManagerWord.SILENT.of(application=application, error=error.summary)
        return word_of(
            f"the ResourceManager {self._page}", application, found, kill=f"yarn application -kill {application}"
        )

    def _application(self, id: str) -> ManagedApplication | None:
        status, body = self._answer(f"/apps/{quote(id)}")
        if status == HTTPStatus.NOT_FOUND and "RemoteException" in self._read(body):
            return None
        if status != HTTPStatus.OK:
            raise self._refusal(status)
        try:
            return yarn_application(self._read(body))
        except ValueError as error:
            raise self._foreign() from error

    def _answer(self, path: str) -> tuple[int, bytes]:
        try:
            return call(ANSWERS_S, _get, f"{self._page}/ws/v1/cluster{path}")
        except (PoolUnreachable, TimeoutError) as error:
            summary = f"the ResourceManager {self._page} gave no answer within {ANSWERS_S:.3g} s"
            raise PoolUnreachable(summary, remedy=_REMEDY) from error
        except (OSError, HTTPException) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            summary = f"the ResourceManager {self._page} cannot be read: {why[:1].lower()}{why[1:]}"
            raise PoolUnreachable(summary, remedy=_REMEDY) from error

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError as error:
            raise self._foreign() from error
        if not isinstance(found, dict):
            raise self._foreign()
        return found

    def _refusal(self, status: int) -> PoolUnreachable:
        return PoolUnreachable(f"the ResourceManager {self._page} answers with status {status}", remedy=_REMEDY)

    def _foreign(self) -> PoolUnreachable:
        return PoolUnreachable(f"{self._page} is not the web interface of a ResourceManager", remedy=_REMEDY)


_REMEDY = "correct yarn_ui in headgate.yml; YARN's default is port 8088 of the ResourceManager"


def _get(url: str) -> tuple[int, bytes]:
    # Unlike urllib, this follows no redirects and uses no proxy.
    place = urlsplit(url)
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.netloc, timeout=ANSWERS_S)
    try:
        connection.request("GET", place.path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(LARGEST)
    finally:
        connection.close()
