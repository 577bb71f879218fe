"""What a request means in this project: which tables are asked for, and which children may be touched."""

from dataclasses import dataclass, replace

from core.layouts.sections import did_you_mean
from core.names import TableName
from core.plan import Refusal, Request, Warned
from core.situation import Situation

CHILDREN = ("none", "product", "all")


@dataclass(frozen=True, slots=True)
class Scope:
    """A request resolved against the project."""

    request: Request
    asked: tuple[TableName, ...]
    """What was named, with the rest of their statement sets; sorted, without what is excluded."""
    because_of: dict[TableName, TableName]
    """For a table that came with its statement set: the one that was named."""
    excluded: frozenset[TableName]
    products: frozenset[str]
    """Products whose children may be rebuilt."""
    refusals: tuple[Refusal, ...]
    warnings: tuple[Warned, ...]

    def may_touch(self, table: TableName, product: str) -> bool:
        """Whether a child may be rebuilt: asked for, or within the accepted products, and not excluded."""
        if table in self.excluded:
            return False
        return table in self.asked or self.request.children == "all" or product in self.products


def normal(request: Request) -> Request:
    """Sort a request and drop repeats, so that the same request has the same bytes."""
    children = ",".join(sorted({word.strip() for word in request.children.split(",") if word.strip()}))
    return replace(
        request,
        tables=tuple(sorted(set(request.tables))),
        products=tuple(sorted(set(request.products))),
        exclude=tuple(sorted(set(request.exclude))),
        children=children or "product",
    )


def resolve(request: Request, situation: Situation) -> Scope:
    """Resolve tables, products and children; unknown names are refused with the nearest known one."""
    known = situation.tables()
    product_by_table = {name: table.product for name, table in situation.project.tables.items()}
    products = set(product_by_table.values())
    refusals = [_unknown("table", name, known) for name in (*request.tables, *request.exclude) if name not in known]
    refusals += [_unknown("product", name, products) for name in request.products if name not in products]
    named = {name for name in request.tables if name in known}
    named |= {name for name, product in product_by_table.items() if product in request.products}
    if request.everything:
        named |= set(situation.project.tables if request.verb == "deploy" else known)
    if not (request.tables or request.products or request.everything):
        refusals.append(Refusal("", "the request names nothing", "name tables, a product, or everything"))
    excluded = frozenset(request.exclude)
    warnings = [Warned(t, "is named and excluded: it stays out") for t in request.tables if t in excluded]
    came_with = _statement_sets(named - excluded, situation) if request.verb == "deploy" else {}
    refusals += [
        Refusal(
            name,
            f"{name} belongs to one statement set with {came_with[name]}",
            f"exclude {came_with[name]} too, or neither",
        )
        for name in sorted(came_with)
        if name in excluded
    ]
    accepted, wrong = _accepted(request, named - excluded, product_by_table)
    return Scope(
        request=request,
        asked=tuple(sorted((named | set(came_with)) - excluded)),
        because_of={table: asked for table, asked in came_with.items() if table not in excluded},
        excluded=excluded,
        products=accepted,
        refusals=(*refusals, *wrong),
        warnings=tuple(warnings),
    )


def _statement_sets(named: set[TableName], situation: Situation) -> dict[TableName, TableName]:
    """Find the statements that are deployed together with named ones: same folder, same unit."""
    named_by_folder: dict[str, TableName] = {}
    for name in sorted(named):
        table = situation.declared(name)
        if table is not None and not table.external:
            named_by_folder.setdefault(table.folder, name)
    return {
        name: named_by_folder[table.folder]
        for name, table in situation.project.tables.items()
        if name not in named and not table.external and table.folder in named_by_folder
    }


def _accepted(
    request: Request, named: set[TableName], product_by_table: dict[TableName, str]
) -> tuple[frozenset[str], list[Refusal]]:
    """Give the products whose children may be rebuilt; a list of products adds to the products of what was named."""
    own = frozenset(product_by_table[name] for name in named if name in product_by_table)
    if request.children == "none":
        return frozenset(), []
    if request.children in CHILDREN:
        return own, []
    words = frozenset(request.children.split(","))
    unknown = sorted(words - set(product_by_table.values()))
    return own | words, [_unknown("product", word, set(product_by_table.values()) | set(CHILDREN)) for word in unknown]


def _unknown(kind: str, name: str, known: "tuple[str, ...] | set[str] | tuple[TableName, ...]") -> Refusal:
    return Refusal(
        name, f"there is no {kind} {name}", did_you_mean(name, known) or f"see the {kind}s with `headgate ls`"
    )
