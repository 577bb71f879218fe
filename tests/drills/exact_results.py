"""Drill: make the demo's five changes through plan and apply, settle, and compare every table with the landed files.

Run: python tests/drills/exact_results.py [ROOT]. Takes about fifteen minutes; ROOT (a new folder) is kept, a temporary
one is removed. Exits 1 if a table has one row too many or too few, or if a plan differs from the expected one.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from drill_process import run_drill
from expected_results import ExpectedRules
from pizzeria_demo import Pizzeria

CHANGED = ExpectedRules(void_is_baked=False, revenue_window_ms=120_000, pizza_column="menu_id")
EXPECTED = {
    "comment": ("src_payments", "record"),
    "column": ("int_priced_items", "restart"),
    "filter": ("fct_kitchen_load", "rebuild"),
    "window": ("fct_revenue", "rebuild"),
    "rename": ("int_order_items", "rebuild"),
}
"""For each change, the statement that it edits and the expected action."""


def main() -> int:
    kept = len(sys.argv) > 1
    root = Path(sys.argv[1]).absolute() if kept else Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    demo = Pizzeria(root)
    try:
        began = time.monotonic()
        said = demo.begin()
        print(f"demo: {said['statements']} statements have rows after {time.monotonic() - began:.0f} s", flush=True)
        bad = sum(not change(demo, word) for word in EXPECTED)
        bad += finish(demo, CHANGED)
        print(f"{bad} things are wrong")
        return 1 if bad else 0
    finally:
        demo.down()
        if not kept:
            shutil.rmtree(root)


def change(demo: Pizzeria, word: str) -> bool:
    """Make one change, plan and apply it; return whether all went as expected."""
    table, action = EXPECTED[word]
    print(f"\n== demo change {word}", flush=True)
    demo.done("demo", "change", word)
    good = True
    if word == "rename":
        refused = demo.run("plan", table, "--children", "all", "--json")
        refusals = json.loads(refused.stdout)["refusals"]
        for refusal in refusals:
            print(f"  refused: {refusal['table']}: {refusal['summary']}; {refusal['remedy']}")
        good = refused.returncode == 3 and bool(refusals)
        demo.done("demo", "change", word, "--with-readers")
    plan = demo.plan(table, "--children", "all")
    show(plan)
    good &= action in {node["action"] for node in plan["nodes"] if node["table"] == table}
    began = time.monotonic()
    done = demo.apply(plan)
    print(f"  applied: exit code {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr)
    return good and done.returncode == 0


def show(plan: dict[str, Any]) -> None:
    print(f"  plan {plan['hash'][:8]}: {len(plan['order'])} tables, {len(plan['steps'])} steps")
    for node in plan["nodes"]:
        if node["action"] != "keep":
            loss, why = (
                ", ".join(node["loses"]) or "nothing",
                "; ".join(seen["sentence"] for seen in node["evidence"]) or "-",
            )
            print(f"  {node['table']} v{node['from_version']} → v{node['version']}: {node['action']} "
                  f"(row {node['row']}), {node['reason']}; evidence: {why}; loses: {loss}")  # fmt: skip
    for left in plan["left_behind"]:
        print(f"  left behind: {left}")


def finish(demo: Pizzeria, rules: ExpectedRules) -> int:
    """Settle and compare; return the number of tables that differ."""
    print("\n== demo settle", flush=True)
    said = demo.settle()
    print(f"  settled in {said['took_s']} s, {said['rounds']} closing rounds, closing ids {said['closing_ids']}")
    lines, wrong = demo.compare(rules)
    print("\n".join(f"  {line}" for line in lines))
    print(f"  {wrong} comparisons failed", flush=True)
    return wrong


if __name__ == "__main__":
    run_drill(main)
