"""Serving versions, one line per table; the active version takes precedence over all others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.observed.versions import Binding, Deployment, Measurement, serving_version, serving_versions
from state.ledger import Ledger, LedgerReader


def test_a_table_is_served_by_its_active_version_with_its_figures(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    ledger.put_deployment(deployment("kept", 1))
    ledger.put_deployment(deployment("kept", 2, active=False, state="stopped"))
    ledger.put_measurements([Measurement("kept", 1, at=9.0, lag_rows=4, exact=False, trend="steady")])  # type: ignore[arg-type]  # A test's own name.
    bound = (Binding("orders", 3, True), Binding("pizzas", 0, False))  # type: ignore[arg-type]  # A test's own names.
    with LedgerReader(path) as reader:
        (kept,) = serving_versions(reader.statements()).values()
    assert (kept.version, kept.state, kept.stateful, kept.bindings) == (1, "running", True, bound)
    assert (kept.lag_rows, kept.exact, kept.trend) == (4, False, "steady")


def test_without_an_active_version_the_newest_is_shown_and_unmeasured_values_are_unknown(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    for version in (1, 3, 2):
        ledger.put_deployment(deployment("new", version, active=False))
    with LedgerReader(path) as reader:
        (found,) = serving_versions(reader.statements()).values()
    assert (found.version, found.lag_rows, found.trend) == (3, None, None)


def test_a_deleted_table_means_the_version_that_served_last(
    ledger: Ledger, path: Path, deployment: Callable[..., Any]
) -> None:
    for version, served_at in ((1, 50.0), (2, 40.0), (3, None)):
        ledger.put_deployment(deployment("gone", version, active=False, served_at=served_at))
        ledger.tombstone("gone", version, drop_after=90.0, trash="/t")  # type: ignore[arg-type]  # A test's own name.
    with LedgerReader(path) as reader:
        found = serving_version(reader.versions("gone"))  # type: ignore[arg-type]  # A test's own name.
    assert found is not None and found.version == 1


def test_deleted_versions_are_left_out(ledger: Ledger, path: Path, deployment: Callable[..., Any]) -> None:
    ledger.put_deployment(deployment("gone", error_class="", error=""))
    ledger.tombstone("gone", 1, drop_after=9.0, trash="/t")  # type: ignore[arg-type]  # A test's own name.
    with LedgerReader(path) as reader:
        assert serving_versions(reader.statements()) == {}
