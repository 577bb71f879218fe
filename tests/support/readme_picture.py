"""The README's picture: the console during an incident, drawn from fixed values as SVG.

Run: `.venv/bin/python -m tests.support.readme_picture > .github/console.svg`. It uses no agent, Spark or clock, so that
the picture is the same on every machine.
"""

import os
import sys
import time

from tests.terminal.in_memory_backend import FakeBackend
from tests.tui.console_harness import Console, in_console

SIZE = (100, 27)
"""Columns and lines; at a README's width on GitHub the letters match the size of the text around them."""

INCIDENT = "orders_paid"
"""The failed statement, under the cursor."""

FIGURES = {
    # rows in, rows out, milliseconds of a batch, rows of the table
    "src_orders": (220.0, 220.0, 1400, 1_204_000),
    "order_items": (640.0, 640.0, 1900, 3_410_000),
    "orders_paid": (0.0, 0.0, 2100, 1_020_000),
    "oven_load": (640.0, 88.0, 2600, 182_344),
    "pizza_per_10s": (None, None, None, None),
    "payments": (90.0, 90.0, 900, 611_000),
    "menu_sales": (640.0, 31.0, 2200, 44_100),
    "till": (90.0, 12.0, 1100, 9_800),
    "clients": (1.0, 1.0, 700, 5_120),
    "crm_orders": (0.0, 0.0, 1300, 988_000),
}


def scene() -> FakeBackend:
    """Return the pizzeria during an incident: one statement has failed, one is catching up, one was stopped by hand."""
    backend = FakeBackend(protected=True)
    for table, (rows_in, rows_out, batch_ms, rows) in FIGURES.items():
        backend.change(table, in_rows_s=rows_in, out_rows_s=rows_out, batch_ms=batch_ms, rows_total=rows)
    return backend


def picture() -> str:
    """Return the scene as an SVG image, exported by the console."""
    drawn: list[str] = []

    async def draw(console: Console) -> None:
        assert console.screen.table.choose(INCIDENT)
        await console.pilot.pause()
        await console.until(lambda: f"> {INCIDENT}" in console.text(), "the path to the statement under the cursor")
        drawn.append(console.app.export_screenshot(title="headgate"))

    in_console(draw, size=SIZE, protected=True, backend=scene())
    return drawn[0]


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    sys.stdout.write(picture())
