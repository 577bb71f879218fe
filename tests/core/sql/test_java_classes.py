"""Reading of Java class files."""

import struct
import zipfile
from pathlib import Path

import pyspark
import pytest
from java_class_files import OBJECT, STRING, class_file

from core.sql.jar_relocation import read_file
from core.sql.java_classes import SIZES, DamagedClass, JavaClass, read_class, used_constants

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


def test_constants_are_found_in_all_code_of_a_large_jar() -> None:
    (place,) = (Path(pyspark.__file__).parent / "jars").glob("commons-lang3-*.jar")
    found = set[int]()
    with zipfile.ZipFile(place) as opened:
        for name in opened.namelist():
            if name.endswith(".class"):
                content = read_file(opened, name)
                of_lambdas, of_others = used_constants(content)
                tags = constant_tags(content)
                found |= {tags[each] for each in of_lambdas | of_others}
    # Numbers, classes and strings; a misread instruction would give others.
    assert found == {3, 4, 5, 7, 8}


def constant_tags(content: bytes) -> dict[int, int]:
    (count,) = struct.unpack_from(">H", content, 8)
    found, at, index = dict[int, int](), 10, 1
    while index < count:
        tag = found[index] = content[at]
        at += 3 + struct.unpack_from(">H", content, at + 1)[0] if tag == 1 else 1 + SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    return found
