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


def test_a_database_qualifies_names_in_the_catalog_and_no_folder_topic_or_view() -> None:
    naming = Naming("dev_", database="stage")
    assert (naming.pointer(T), naming.version(T, 2)) == ("stage.dev_orders", "stage.dev_orders__v2")
    assert naming.before(T, 2) == "stage.dev_orders__v2_before"
    assert (naming.folder(T, 2), naming.source_view(T), naming.of("topic")) == (
        "dev_orders__v2",
        "dev_orders",
        "dev_topic",
    )
    in_catalog = Naming(catalog="main", database="stage")
    assert (in_catalog.pointer(T), in_catalog.namespace) == ("main.stage.orders", "main.stage")
    assert Naming(catalog="spark_catalog", database="default").place == DECLARED.place
