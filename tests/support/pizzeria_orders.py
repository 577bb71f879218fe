"""The pizzeria's statements from orders to revenue and kitchen load, fed by a test that knows every row."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from live_project import Driven, until
from release_project import asked

from pipelines.demo.sample_copy import copy_sample
from pipelines.spark_connect.session import Session
from pipelines.whole_files import write_whole

STATEMENTS = (
    "src_orders", "int_order_items", "int_priced_items", "fct_kitchen_load", "fct_revenue", "vw_busy_windows"
)  # fmt: skip
KEYS = {
    "src_orders": "id",
    "int_order_items": "struct(order_id, line)",
    "int_priced_items": "struct(order_id, line)",
    "fct_kitchen_load": "struct(window_start, pizza_id)",
    "fct_revenue": "struct(window_start, pizza_name)",
    "vw_busy_windows": "struct(window_start, pizza_id)",
}
"""The key of each table; no two rows of a table may have equal keys."""
BEGAN = 1_767_225_600
"""The moment of a hypothetical order 0 in epoch seconds, on a full minute."""
PACE_S = 3
"""Event time between two orders, in seconds."""
MINUTE = 60 // PACE_S
"""Orders per minute."""
TIP_CENTS = 50


@dataclass
class OrderFeed:
    """Lands eight orders every two seconds, and repeats one of them, until told to end.

    With more and smaller files, two versions of a table would rarely have read the same input, and a comparison waits
    until they have.
    """

    folder: Path
    landed: int = 0
    tips_from: int = 0
    """The first order with a tip; 0 if tips are not recorded."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._over.wait(2.0):
            self.land(8)

    def land(self, count: int) -> None:
        """Land a file with the next orders and an earlier order, because tills repeat orders."""
        ids = [*range(max(1, self.landed), self.landed + count + 1)]
        write_whole(self.folder / f"{self.landed + count:09}.json", "".join(map(self._line, ids)))
        self.landed += count

    def _line(self, id: int) -> str:
        order = {
            "id": id, "channel": "takeaway", "status": "void" if id % 7 == 0 else "new",
            "order_time": _moment(id), "pizzas": [1 + id % 3, 4],
        }  # fmt: skip
        if self.tips_from and id >= self.tips_from:
            order["tip_cents"] = TIP_CENTS
        return json.dumps(order) + "\n"


def _moment(id: int) -> str:
    """Return the time of an order, in ISO format."""
    seconds = BEGAN + PACE_S * id
    day, rest = divmod(seconds - BEGAN, 86400)
    return f"2026-01-{1 + day:02}T{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}Z"


@dataclass
class OrdersProject(Driven):
    """A copy of the sample with only the statements from orders to revenue and kitchen load, at a trigger of 1 s."""

    session: Session | None = None
    """The session for queries; needed by `asks`."""

    @property
    def folder(self) -> Path:
        return self.root / "pizzeria"

    def write(self) -> None:
        copy_sample(self.folder)
        for ddl in [*(self.folder / "pipelines").rglob("ddl.*.sql")]:
            if ddl.stem.removeprefix("ddl.") not in (*STATEMENTS, "orders", "pizzas"):
                shutil.rmtree(ddl.parent.parent, ignore_errors=True)
        head = self.folder / "headgate.yml"
        for file in (head, *(self.folder / "pipelines").rglob("*.yml")):
            file.write_text(re.sub(r"trigger: \d+ seconds", "trigger: 1 second", file.read_text()))

    def edit(self, table: str, kind: str, old: str, new: str) -> None:
        """Replace a text that occurs exactly once in a table's file of this kind (`dml` or `ddl`)."""
        (file,) = (self.folder / "pipelines").rglob(f"{kind}.{table}.sql")
        text = file.read_text()
        assert text.count(old) == 1, text
        file.write_text(text.replace(old, new))

    def texts(self) -> dict[Path, str]:
        """Return the text of each SQL file in the project, so that it can be written back later."""
        return {file: file.read_text() for file in (self.folder / "pipelines").rglob("*.sql")}

    def serving(self) -> dict[str, tuple[int, str]]:
        """Return the serving version of each table and the run id of its query."""
        found = self.ledger('SELECT "table", version, run_id FROM deployment WHERE active = 1 AND version > 0')
        return {str(table): (int(str(version)), str(run)) for table, version, run in found}

    def asks(self, *queries: str) -> tuple[tuple[int, ...], ...]:
        """Return the single row that each query returns when run on the serving versions."""
        sql = " UNION ALL ".join(f"SELECT {n} AS query, * FROM ({query})" for n, query in enumerate(queries))
        assert self.session is not None
        found = self.session.call(60, self.session.spark.sql(sql).collect)
        return tuple(tuple(int(value or 0) for value in row[1:]) for row in sorted(found))

    def doubled(self) -> dict[str, int]:
        """Return the number of duplicate rows in each table that has any."""
        found = self.asks(*(f"SELECT count(*), count(DISTINCT {key}) FROM {table}" for table, key in KEYS.items()))
        return {table: row[0] - row[1] for table, row in zip(KEYS, found, strict=True) if row[0] != row[1]}

    def lacks(self, upto: int) -> dict[str, tuple[int, int]]:
        """Return (actual, expected) counts for each table without all orders before `upto`, which is a full minute."""
        assert upto % MINUTE == 0
        orders = upto - 1
        sold = orders - orders // 7
        windows = f"window_end <= timestamp_seconds({BEGAN + PACE_S * upto})"
        wanted = {
            "src_orders": ("count(*)", f"id < {upto}", orders),
            "int_order_items": ("count(*)", f"order_id < {upto}", 2 * orders),
            "int_priced_items": ("count(*)", f"order_id < {upto}", 2 * sold),
            "fct_kitchen_load": ("sum(pizzas)", windows, 2 * orders),
            "fct_revenue": ("sum(items)", windows, 2 * sold),
        }
        found = self.asks(*(f"SELECT {what} FROM {table} WHERE {of}" for table, (what, of, _) in wanted.items()))
        rows = {table: (row[0], wanted[table][2]) for table, row in zip(wanted, found, strict=True)}
        return {table: (got, expected) for table, (got, expected) in rows.items() if got != expected}

    def whole(self, feed: OrderFeed) -> int:
        """Wait until all orders of every full minute are in every table exactly once; return the number of orders."""
        upto = feed.landed // MINUTE * MINUTE
        last: dict[str, tuple[int, int]] = {}

        def arrived() -> bool:
            last.clear()
            last.update(self.lacks(upto))
            return not last

        try:
            until(arrived, 60, f"the {upto} first orders are in every table", every_s=1.0)
        finally:
            assert not self.doubled(), (self.doubled(), last)
        return upto - 1


@contextmanager
def orders_project(root: Path) -> Iterator[tuple[OrdersProject, OrderFeed]]:
    """Yield the project with all tables deployed and orders arriving; stop everything afterwards."""
    world = OrdersProject(root, {"HEADGATE_MEASURE_S": "1"})
    world.write()
    feed = OrderFeed(world.folder / "data/landing/orders")
    feed.land(100)
    world.done("up")
    try:
        found = world.apply(world.plan("--all"))
        assert found.returncode == 0, found.stdout + found.stderr
        feed.begin()
        with asked(world) as world.session:
            yield world, feed
    finally:
        feed.end()
        world.down()
