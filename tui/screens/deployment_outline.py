"""What one line of the ledger's list tells of a deployment, without reading its row."""

from core.project.revision import RevisionTexts
from state.registry import StatementLine
from state.row_types import Deployment, Measurement


def measurement_of_line(line: StatementLine) -> Measurement:
    """Return the figures of a line that has any."""
    assert line.at is not None
    return Measurement(
        table=line.table,
        version=line.version,
        at=line.at,
        lag_rows=line.lag_rows,
        lag_files=line.lag_files,
        lag_bytes=line.lag_bytes,
        exact=line.exact,
        oldest_s=line.oldest_s,
        trend=line.trend or "unknown",
        rate_rows_s=line.rate_rows_s,
        eta_s=line.eta_s,
        in_rows_s=line.in_rows_s,
        out_rows_s=line.out_rows_s,
        rows_total=line.rows_total,
        batch=line.batch,
        batch_ms=line.batch_ms,
        committed_at=line.committed_at,
    )


def deployment_outline(line: StatementLine) -> Deployment:
    """Make a deployment of what a list shows of it; the rest follows with the first whole reading."""
    return Deployment(
        table=line.table, version=line.version, product=line.product, layer=line.layer, owner=line.owner, revision="",
        texts=RevisionTexts(), compiled="", compiled_ddl="", columns=(), format="", folder="", checkpoint="",
        checkpoint_id="", trigger="", mode="", stateful=False, wanted=line.wanted, state=line.state,
        state_since=line.state_since, active=line.active, bindings=(), restarts=line.restarts,
        error_class=line.error_class, external=line.external, started_at=line.started_at,
    )  # fmt: skip


_SHOWN = ("state", "state_since", "active", "started_at", "restarts", "error_class", "wanted", "owner")


def is_line_current(line: StatementLine, row: Deployment) -> bool:
    """Return whether a line tells nothing of a deployment that the row does not say."""
    return all(getattr(row, name) == getattr(line, name) for name in _SHOWN)
