"""Reading of Java class files."""

import pytest
from java_class_files import OBJECT, STRING, class_file

from core.sql.java_classes import DamagedClass, JavaClass, read_class

UDF1 = "org.apache.spark.sql.api.java.UDF1"


def test_a_class_is_read_with_its_version_its_constructor_and_its_interfaces() -> None:
    assert read_class(class_file("com.acme.Fmt", "a", java=21)) == JavaClass(
        java=21,
        is_public=True,
        is_abstract=False,
        is_made_without_arguments=True,
        interfaces=((UDF1, ("java.lang.String", "java.lang.String")),),
    )
    other = read_class(class_file("com.acme.Fmt", "a", access=0x420, constructor="(I)V", interfaces=0))
    assert (other.is_public, other.is_abstract, other.is_made_without_arguments) == (False, True, False)
    assert other.interfaces == other.functions == ()


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (["[B", "[[J"], ("byte[]", "long[][]")),
        (["TT;", "*"], ("", "")),
        (["+Ljava/lang/Number;", "[TT;"], ("", "")),
        (["Ljava/util/List<Ljava/lang/String;>;", OBJECT], ("java.util.List", "java.lang.Object")),
        (["Lcom/acme/Outer<TT;>.Inner<[I>;", STRING], ("com.acme.Outer$Inner", "java.lang.String")),
        ([STRING], ("java.lang.String",)),
    ],
)
def test_types_of_a_function_are_named_as_in_java(types: list[str], names: tuple[str, ...]) -> None:
    assert read_class(class_file("com.acme.Fmt", "a", types=types)).functions == (names,)


def test_no_part_of_a_class_file_and_no_damaged_byte_ends_the_reader() -> None:
    whole = class_file("com.acme.Fmt", "a")
    for length in range(len(whole)):
        with pytest.raises(DamagedClass):
            read_class(whole[:length])
    for at in range(len(whole)):
        try:
            read_class(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        except DamagedClass:
            continue
