"""What the shipped pizzeria declares outside its SQL: menu and tables, read from the files that Spark reads too."""

import csv
import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "samples" / "pizzeria"
"""The sample as shipped: never written to."""

KEYED_TABLES = FOLDER.with_name("pizzeria_keyed")
"""Tables that a demo has as well where its format can replace rows by key."""

FEEDS = ("orders", "payments", "table_assignments", "client_changes")
"""The feeds, in the order in which the files of one second land."""

CLOSING = "closing"
"""Name, channel, status and method of closing events."""


@cache
def menu() -> dict[int, tuple[str, int]]:
    """Return pizza id to name and price in cents; pizza 0 belongs to closing events."""
    lines = (FOLDER / "reference" / "pizzas" / "pizzas.json").read_text().splitlines()
    return {row["id"]: (row["name"], row["price_cents"]) for row in map(json.loads, lines)}


@cache
def dining_tables() -> dict[int, tuple[str, int]]:
    """Return table id to name and seats; table 0 belongs to closing events."""
    with (FOLDER / "reference" / "tables" / "tables.csv").open(newline="") as file:
        return {int(row["id"]): (row["name"], int(row["seats"])) for row in csv.DictReader(file)}
