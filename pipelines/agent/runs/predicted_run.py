"""What is predicted of a run when it begins, from what this ledger has measured; written once with its steps."""

from dataclasses import replace

from core.lag.triggers import trigger_s
from core.plan.model import Plan
from core.run.predictions import MeasuredStatement, predict_run
from state.ledger import Ledger
from state.row_types import RunRow


def with_prediction(run: RunRow, plan: Plan, ledger: Ledger) -> RunRow:
    """Return a run that is about to be written with the ranges of its steps and its own."""
    serving = {(d.table, d.version) for d in ledger.deployments() if d.active}
    measured = {m.table: m for m in ledger.measurements() if (m.table, m.version) in serving}
    statements = {}
    for node in plan.nodes:
        known = measured.get(node.table)
        batch_s = known.batch_ms / 1000 if known and known.batch_ms is not None else None
        fastest = known.fastest_rows_s if known else None
        statements[node.table] = MeasuredStatement(trigger_s(node.trigger), fastest, batch_s)
    found = predict_run(plan, ledger.measured_steps(), statements)
    steps = []
    for step in run.steps:
        range_s = found.steps.get(step.n)
        steps.append(
            replace(step, predicted_low_s=range_s.low, predicted_high_s=range_s.high) if range_s is not None else step
        )
    if found.run is None:
        return replace(run, steps=tuple(steps))
    return replace(run, steps=tuple(steps), predicted_low_s=found.run.low, predicted_high_s=found.run.high)
