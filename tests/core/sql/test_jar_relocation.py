"""Relocation of jars."""

import hashlib
import io
import zipfile
from pathlib import Path

import pyspark
import pytest
from java_class_files import STRING, archive, class_file, fmt_jar

from core.sql.jar_relocation import relocated_jar, relocated_package
from core.sql.java_classes import DamagedClass, read_class

HASH = "0123456789abcdef" * 4
PACKAGE = relocated_package(HASH)


def files(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_classes_move_with_their_references_and_texts_stay() -> None:
    mine, other = "Lcom/acme/Own<[Lcom/acme/Fmt;TT;>.Inner;", "Lcom/other/Fmt;"
    content = archive({
        "com/acme/Fmt.class": class_file("com.acme.Fmt", "com.acme.Fmt", types=[mine, other, STRING]),
        "com/acme/Own.class": class_file("com.acme.Own", "Lcom/acme/Unknown;"),
    })  # fmt: skip
    found = files(relocated_jar(content, HASH))
    assert list(found) == [f"{PACKAGE}/com/acme/Fmt.class", f"{PACKAGE}/com/acme/Own.class"]
    one = found[f"{PACKAGE}/com/acme/Fmt.class"]
    for text in (f"{PACKAGE}/com/acme/Fmt", f"L{PACKAGE}/com/acme/Own<[L{PACKAGE}/com/acme/Fmt;TT;>.Inner;{other}"):
        assert text.encode() in one
    assert b"\x00\x0ccom.acme.Fmt" in one and b"Lcom/acme/Unknown;" in found[f"{PACKAGE}/com/acme/Own.class"]
    assert read_class(one).functions == ((f"{PACKAGE}.com.acme.Own$Inner", "com.other.Fmt", "java.lang.String"),)


def test_two_contents_have_no_file_in_common_and_equal_contents_give_equal_jars() -> None:
    jars = [archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", each), "a.properties": b""}) for each in "ab"]
    hashes = [hashlib.sha256(each).hexdigest() for each in jars]
    one, two = (files(relocated_jar(*each)) for each in zip(jars, hashes, strict=True))
    assert not one.keys() & two.keys()
    assert relocated_jar(jars[0], hashes[0]) == relocated_jar(jars[0], hashes[0])


def test_resources_move_along_and_what_describes_the_jar_is_left_out() -> None:
    content = archive({
        "com/acme/Own.class": class_file("com.acme.Own", "a"),
        "com/acme/x.properties": b"com.acme.Own",
        "META-INF/MANIFEST.MF": b"",
        "META-INF/versions/21/com/acme/Own.class": b"",
        "META-INF/services/com.acme.Own": b"# com.acme.Own\ncom.acme.Own # mine\norg.other.Own\n",
        "META-INF/services/java.lang.Runnable": b"com.acme.Own\n",
        "module-info.class": b"",
        "scala/Option.class": b"",
        "com/acme/": b"",
    })  # fmt: skip
    found = files(relocated_jar(content, HASH))
    assert found.keys() == {
        f"{PACKAGE}/com/acme/Own.class",
        f"{PACKAGE}/com/acme/x.properties",
        f"META-INF/services/{PACKAGE}.com.acme.Own",
    }
    assert found[f"{PACKAGE}/com/acme/x.properties"] == b"com.acme.Own"
    assert found[f"META-INF/services/{PACKAGE}.com.acme.Own"] == f"{PACKAGE}.com.acme.Own\norg.other.Own\n".encode()


def test_no_damaged_class_ends_the_relocation() -> None:
    whole = class_file("com.acme.Fmt", "a")
    for length in range(len(whole)):
        try:
            relocated_jar(archive({"com/acme/Fmt.class": whole[:length]}), HASH)
        except DamagedClass:
            continue
    with pytest.raises(zipfile.BadZipFile):
        relocated_jar(fmt_jar("a")[:-10], HASH)


def test_every_class_of_a_large_jar_can_be_relocated_and_read() -> None:
    (place,) = (Path(pyspark.__file__).parent / "jars").glob("commons-lang3-*.jar")
    before, after = files(place.read_bytes()), files(relocated_jar(place.read_bytes(), HASH))
    classes = [name for name in before if name.endswith(".class") and not name.startswith(("META-INF", "module-info"))]
    assert len(classes) > 300
    for name in classes:
        moved, found = read_class(after[f"{PACKAGE}/{name}"]), read_class(before[name])
        assert (moved.java, moved.is_public, moved.is_abstract, len(moved.interfaces)) == (
            found.java, found.is_public, found.is_abstract, len(found.interfaces),
        )  # fmt: skip
        assert after[f"{PACKAGE}/{name}"].count(b"Lorg/apache/commons/lang3/") == 0
