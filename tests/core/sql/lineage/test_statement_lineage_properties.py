"""Properties of lineage over generated statements: it drops nothing, and does not depend on arbitrary names."""

from dataclasses import dataclass

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from core.sql.lineage.model import StatementLineage
from tests.core.sql.lineage.test_statement_lineage import CASES, TABLES, followed

SIMPLE = {name: [c.name for c in columns if " " not in c.name] for name, columns in TABLES.items()}
NUMBERS = {name: [c.name for c in columns if c.type in ("int", "bigint")] for name, columns in TABLES.items()}


@dataclass(frozen=True)
class Written:
    """A statement with `{0}`, `{1}` … in place of its aliases."""

    text: str
    aliases: int
    outputs: tuple[str, ...]

    def named(self, *aliases: str) -> str:
        return self.text.format(*aliases)


@st.composite
def statements(draw: st.DrawFn) -> Written:
    """Draw a join of tables, perhaps inside a part of WITH, with expressions over their columns."""
    tables = draw(st.lists(st.sampled_from(sorted(SIMPLE)), min_size=1, max_size=3, unique=True))
    sources, columns = [], []
    for number, table in enumerate(tables):
        source = f"STREAM {table} AS {{{number}}}" if number == 0 else f"{table} AS {{{number}}}"
        if number:
            left, right = draw(st.sampled_from(NUMBERS[tables[0]])), draw(st.sampled_from(NUMBERS[table]))
            source = f"{draw(st.sampled_from(('JOIN', 'LEFT JOIN')))} {source} ON {{0}}.{left} = {{{number}}}.{right}"
        sources.append(source)
        columns += [f"{{{number}}}.{column}" for column in SIMPLE[table]]
    outputs = []
    forms = ("{0}", "upper(CAST({0} AS STRING))", "CASE WHEN {0} IS NULL THEN {1} END", "array({0}, {1})", "nope + {0}")
    for number in range(draw(st.integers(1, 4))):
        form, first = draw(st.sampled_from(forms)), draw(st.sampled_from(columns))
        outputs.append(form.format(first, draw(st.sampled_from(columns))) + f" AS o{number}")
    where = f" WHERE {draw(st.sampled_from(columns))} IS NOT NULL" if draw(st.booleans()) else ""
    text = f"SELECT {', '.join(outputs)} FROM {' '.join(sources)}{where}"
    names = tuple(f"o{number}" for number in range(len(outputs)))
    if draw(st.booleans()):
        text = f"WITH {{{len(tables)}}} AS ({text}) SELECT {', '.join(names)} FROM {{{len(tables)}}}"
    return Written(text, len(tables) + 1, names)


def edges(found: StatementLineage) -> list[tuple[object, ...]]:
    """Return the parts of a lineage that must not depend on names: everything except step texts and positions."""
    outputs = [
        (each.name, each.expression, tuple((i.origin, i.kind, i.fields) for i in each.inputs)) for each in found.outputs
    ]
    conditions = [(each.clause, each.expression, tuple(i.origin for i in each.inputs)) for each in found.conditions]
    return [*outputs, *conditions, *((each.reason, each.within) for each in found.unresolved)]


@given(statements())
def test_every_output_has_inputs_or_an_unresolved_name(written: Written) -> None:
    found = followed(written.named("a", "b", "c", "d"))
    assert tuple(each.name for each in found.outputs) == written.outputs
    missed = {each.within for each in found.unresolved}
    for output in found.outputs:
        assert output.inputs or output.name in missed


@given(
    statements(),
    st.lists(
        st.sampled_from(("x1", "`y y`", "orders_", "Z", "id", "o0", "_t1", "_c1")), min_size=4, max_size=4, unique=True
    ),
)
def test_renamed_aliases_change_nothing(written: Written, names: list[str]) -> None:
    assert edges(followed(written.named("a", "b", "c", "d"))) == edges(followed(written.named(*names)))


@given(statements())
def test_every_input_is_a_column_of_a_table_that_is_read(written: Written) -> None:
    found = followed(written.named("a", "b", "c", "d"))
    tables = {i.origin.table for c in found.conditions if c.clause == "FROM" for i in c.inputs}
    for each in (*found.outputs, *found.conditions):
        for one in each.inputs:
            assert one.origin.table in tables
            assert not one.origin.column or one.origin.column in {c.name for c in TABLES[one.origin.table]}


@settings(max_examples=examples(300))
@given(st.sampled_from(CASES), st.data())
def test_lineage_never_raises_for_a_deleted_or_repeated_token(
    case: tuple[str, str, list[str]], data: st.DataObject
) -> None:
    words = case[1].split(" ")
    at = data.draw(st.integers(0, len(words) - 1))
    words[at : at + 1] = data.draw(st.sampled_from(([], [words[at]] * 2)))
    try:
        found = followed(" ".join(words))
    except AssertionError:
        return  # The reader refuses such a statement with a Problem, which its own tests cover.
    assert found == followed(" ".join(words))


def test_a_wide_call_and_a_long_chain_of_parts_keep_their_steps() -> None:
    columns = "concat(id, order_id, method, amount, paid_at)"
    parts = ", ".join(f"w{n} AS (SELECT x AS x FROM w{n - 1})" for n in range(1, 30))
    found = followed(f"WITH w0 AS (SELECT {columns} AS x FROM STREAM payments), {parts} SELECT x FROM w29")
    (output,) = found.outputs
    assert [each.origin.column for each in output.inputs] == ["amount", "id", "method", "order_id", "paid_at"]
    assert [step.name for step in output.inputs[0].through] == [f"w{n}.x" for n in range(29, -1, -1)]
