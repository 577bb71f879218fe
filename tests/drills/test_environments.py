"""Environments and checkouts of one project on shared servers: nothing is shared that is not declared."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from live_project import until
from shared_servers import Checkout, server
from tiny_project import DML

pytestmark = [pytest.mark.drill, pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("servers", [1, 2])
def test_environments_and_checkouts_share_only_what_is_declared(servers: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(server(tmp_path / "server1"))
        two = stack.enter_context(server(tmp_path / "server2")) if servers == 2 else one
        main, branch, third = (tmp_path / name for name in ("main", "branch", "third"))
        dev = Checkout(main, name="dev", naming=lambda table: f"default.{prefixed(table)}")
        stage = Checkout(main, name="stage", environment="stage", naming=lambda table: f"stage.{suffixed(table)}")
        other = Checkout(branch, name="branch", naming=lambda table: f"branch.{table}")
        dev.write(
            dev=f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{one.url}'}}",
            stage=f"naming: {{suffix: _s, database: stage}}, sources: dev, pool: {{name: two, url: '{two.url}'}}",
        )
        other.write(dev=f"naming: {{catalog: spark_catalog, database: branch}}, pool: {{name: one, url: '{one.url}'}}")
        dev.land(10)
        other.land(7)
        for each in (dev, stage, other):
            stack.callback(each.run, "down", "--confirm", "")
            each.deploy()
        places = {"dev": one, "stage": two, "branch": one}
        for each, rows in ((dev, 10), (stage, 10), (other, 7)):
            view = each.naming("marked")
            until(lambda: places[each.name].count(view) == rows, 60, f"{view} has {rows} rows")  # noqa: B023  # At once.

        entries = {name: place.entries() for name, place in places.items()}
        for each in (dev, stage, other):
            mine = entries[each.name]
            assert each.names() <= mine.keys(), (each.names(), mine)
            for table in DML:
                assert mine[each.naming(f"{table}__v1")].startswith(f"{each.data}/tables/")
                assert f"`{each.naming(table + '__v1').split('.')[1]}`" in mine[each.naming(table)]
            assert all(path.startswith(str(each.data)) for path in each.content()) and each.content()
        assert not dev.names() & stage.names() | dev.names() & other.names() | stage.names() & other.names()
        # Of everything, stage shares with dev what it declares, the external table, and nothing else.
        shared = {name for name, place in entries["stage"].items() if place.startswith(f"{dev.data}/landing")}
        assert shared == {"default.dev_landed"}
        made = {name for each in (dev, stage, other) for name in each.names()}
        assert made | {"default.dev_landed", "branch.landed"} == {name for found in entries.values() for name in found}

        late = Checkout(third, name="third")
        late.write(dev=f"naming: {{prefix: dev_}}, pool: {{name: one, url: '{one.url}'}}")
        late.land(3)
        late.done("up")
        stack.callback(late.run, "down", "--confirm", "")
        before = [each.content() for each in (dev, stage, other)]
        refused = late.run("plan", "--all")
        said = refused.stdout + refused.stderr
        print(said)
        assert refused.returncode != 0
        assert "would meet dev_" in said and f"{dev.data}/tables/dev_" in said and str(dev.home()) in said
        assert one.entries() == entries["dev"]
        assert late.content() == {} and before == [each.content() for each in (dev, stage, other)]

        moved = (dev.folder / "headgate.yml").read_text()
        (dev.folder / "headgate.yml").write_text(moved.replace("prefix: dev_", "prefix: d_"))
        edited = dev.run("plan", "--all", "--rebuild")
        print(edited.stderr)
        dev.done("down", "--confirm", "")
        began = dev.run("up")
        print(began.stderr)
        assert began.returncode != 0 and "was deployed as dev_" in began.stderr


def prefixed(table: str) -> str:
    return f"dev_{table}"


def suffixed(table: str) -> str:
    name, mark, version = table.partition("__v")
    return f"{name}_s{mark}{version}"
