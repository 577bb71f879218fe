"""Names of an environment: one value makes all of them."""

from core.model.names import TableName
from core.project.naming import DECLARED, Naming

T = TableName("orders")


def test_prefix_and_suffix_are_part_of_every_name() -> None:
    naming = Naming("dev_", "_a")
    assert naming.of("orders") == "dev_orders_a"
    assert naming.pointer(T) == "dev_orders_a"
    assert naming.version(T, 3) == naming.folder(T, 3) == "dev_orders_a__v3"
    assert naming.folder(T, 0) == "dev_orders_a"


def test_without_a_naming_names_are_as_declared() -> None:
    assert (DECLARED.pointer(T), DECLARED.version(T, 1)) == ("orders", "orders__v1")
