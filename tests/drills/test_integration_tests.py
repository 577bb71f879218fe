"""headgate test --integration on real Spark: on a shared server, with a case that passes and one with a wrong row."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import Tiny, tiny_that_runs

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

CASE = """given:
  - landed: [{id: 1, kind: x}, {id: 2, kind: y}]
  - landed: [{id: 3}]
expect:
  marked: [{id: 1, kind: X}, {id: 2, kind: Y}, {id: 3}]
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=0) as found:
        cases = found.folder / "pipelines/facts/p/integration"
        cases.mkdir()
        (cases / "marked.yml").write_text(CASE)
        (cases / "wrong.yml").write_text(CASE.replace("kind: Y", "kind: Z").replace("marked:", "kept:"))
        yield found


def left(tiny: Tiny) -> list[Path]:
    return sorted((tiny.root / "home").glob("ephemeral/*"))


def test_a_case_passes_a_wrong_one_shows_its_rows_and_nothing_is_left(tiny: Tiny) -> None:
    done = tiny.run("test", "--integration", "--pool", "dev", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    results = {each["name"]: each for each in found["results"]}
    assert results["p/marked"]["outcome"] == "passed"
    wrong = results["p/wrong"]
    assert (wrong["outcome"], wrong["table"], wrong["difference"]["missing"]) == ("failed", "kept", 2)
    assert all(not each["left"] and each["server"] for each in found["environments"]) and not left(tiny)
    assert tiny.statements()["kept"]["state"] == "absent", "nothing of the shared environment was touched"
