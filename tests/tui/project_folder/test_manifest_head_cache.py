"""The head of headgate.yml: all forms of YAML are accepted, broken files refused, and the cache is verified."""

import json
import os
from pathlib import Path

import pytest

from core.model.errors import InvalidProject, UsageError
from core.project.manifest_head import ManifestHead
from core.project_reader import manifest
from tui.project_folder.manifest_head_cache import read_manifest_head

ID = "5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c"
TOP = f"project: shop\nid: {ID}\ndefault_env: dev\n"

FORMS = {
    "block": TOP + "environments:\n  dev:\n    data: d\n  prod:\n    protected: true\n",
    "deep": f"project: 'shop'  # ours\nid: \"{ID.upper()}\"\ndefault_env: dev\nenvironments:\n    dev:\n"
    "        data: d\n    prod:\n        protected: yes\n        pool: {name: x}\n",
    "flow": TOP + "environments:\n  dev: {data: d, protected: false}\n  prod: {protected: true}\n",
    "windows": (TOP + "environments:\n  dev:\n    data: d\n  prod:\n    protected: true\n").replace("\n", "\r\n"),
    "quoted key": TOP + "environments:\n  dev: {data: 'd'}\n  prod:\n    'protected': true\n",
    "quoted name": TOP + "environments:\n  \"dev\": {data: d}\n  'prod':\n    protected: true\n",
    "next line": f"project:\n  shop\nid:\n  {ID}\ndefault_env:\n  dev\nenvironments:\n  dev:\n    data:\n      d\n"
    "  prod:\n    protected:\n      true\n",
    "comments": TOP + "environments: # two\n  dev: # ours\n    data: d # protected: true\n# prod: {protected: false}\n"
    "  prod:\n    pool:\n      name: 'a # protected: false'\n    protected: on # a comment\n",
    "flow over lines": TOP + "environments: {dev: {data: d},\n  prod: {\n    protected: true}}\n",
    "one line": f"{{project: shop, id: {ID}, default_env: dev, "
    "environments: {dev: {data: d}, prod: {protected: on}}}",
    "anchors": TOP + "environments:\n  dev: {data: &d d, protected: &no false}\n  prod: &p {protected: TRUE}\n",
    "alias": f"project: &n shop\nid: {ID}\ndefault_env: dev\ndefaults: {{owner: *n}}\n"
    "environments:\n  dev: {data: d}\n  prod:\n    policy: {rebuild: &yes true}\n    protected: *yes\n",
    "tag": TOP + "environments:\n  dev: {data: !!str d}\n  prod: {protected: !!bool true}\n",
    "byte order mark": "\ufeff" + TOP + "environments:\n  dev: {data: d}\n  prod: {protected: true}\n",
    "broken elsewhere": TOP + "defaults: {trigger: [1]}\nnobody: knows\n"
    "environments:\n  dev: {data: d, pool: {cores: many}}\n  prod: {protected: true}\n",
}

BROKEN = {
    "a text": TOP + 'environments:\n  dev: {}\n  prod: {protected: "true"}\n',
    "misspelt value": TOP + "environments:\n  dev: {}\n  prod: {protected: ture}\n",
    "misspelt key": TOP + "environments:\n  dev: {}\n  prod: {protectd: true}\n",
    "key twice": TOP + "environments:\n  dev: {}\n  prod:\n    protected: false\n    protected: true\n",
    "environment twice": TOP + "environments:\n  dev: {}\n  prod: {}\n  prod: {protected: true}\n",
    "environments twice": TOP + "environments:\n  prod: {}\nenvironments:\n  prod: {protected: true}\n",
    "merged": TOP + "environments:\n  dev: &d {protected: true}\n  prod:\n    <<: *d\n",
    "no YAML below": TOP + "environments:\n  dev: {}\n  prod:\n    protected: true\ndefaults: [\n",
    "a tab": TOP + "environments:\n  dev: {}\n  prod:\n\tprotected: true\n",
    "cut off": TOP + "environments:\n  dev: {}\n  prod: {protec",
    "no mapping": TOP + "environments:\n  dev: {}\n  prod: true\n",
    "a list": TOP + "environments:\n  dev: {}\n  prod: [{protected: true}]\n",
    "no alias": TOP + "environments:\n  dev: {}\n  prod: {protected: *yes}\n",
    "keys missing": "project: shop\n",
    "empty": "",
    "two documents": TOP + "environments: {dev: {}, prod: {}}\n---\nenvironments: {prod: {protected: true}}\n",
}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HEADGATE_HOME": str(tmp_path / "home")}


def kept_files(home: dict[str, str]) -> list[Path]:
    return sorted(Path(home["HEADGATE_HOME"]).glob("manifests/*"))


def read(home: dict[str, str], folder: Path, text: str) -> ManifestHead:
    (folder / "headgate.yml").write_bytes(text.encode())
    return read_manifest_head(home, str(folder))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_yaml_says_the_same(form: str, home: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        head = read(home, tmp_path, FORMS[form])
        assert (head.project, head.id, head.default_env) == ("shop", ID, "dev")
        assert head.protected_by_name == {"dev": False, "prod": True}
        assert head.data_by_name == {"dev": "d", "prod": "data"}


@pytest.mark.parametrize("form", FORMS)
def test_the_head_is_what_the_whole_manifest_says(form: str, home: dict[str, str], tmp_path: Path) -> None:
    head, whole = read(home, tmp_path, FORMS[form]), manifest.read_manifest(FORMS[form], [])
    assert (head.project, head.id, head.default_env) == (whole.name, whole.id, whole.default_env)
    assert head.protected_by_name == {found.name: found.protected for found in whole.environments}
    assert head.data_by_name == {found.name: found.data for found in whole.environments}


@pytest.mark.parametrize("form", BROKEN)
def test_a_broken_head_is_refused_each_time_and_never_kept(form: str, home: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(InvalidProject) as refused:
            read(home, tmp_path, BROKEN[form])
        assert refused.value.problems and refused.value.remedy and refused.value.exit_code == 2
    assert not kept_files(home)


def test_a_file_that_broke_after_it_was_read_is_refused(home: dict[str, str], tmp_path: Path) -> None:
    read(home, tmp_path, FORMS["block"])
    with pytest.raises(InvalidProject):
        read(home, tmp_path, BROKEN["misspelt value"])


def test_a_file_of_no_text_is_refused(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_bytes(b"project: \xff\n")
    with pytest.raises(UsageError):
        read_manifest_head(home, str(tmp_path))


def test_the_same_content_is_read_once(home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = read(home, tmp_path, FORMS["block"])
    monkeypatch.setattr(manifest, "read_yaml", None)
    assert read(home, tmp_path, FORMS["block"]) == head
    with pytest.raises(TypeError):
        read(home, tmp_path, FORMS["flow"])


def test_stored_totals_count_only_if_complete_and_unchanged(home: dict[str, str], tmp_path: Path) -> None:
    head = read(home, tmp_path, FORMS["block"])
    (kept,) = kept_files(home)
    whole = kept.read_text()
    digest, _, body = whole.partition("\n")
    unprotected = json.dumps(json.loads(body) | {"protected_by_name": {"dev": False, "prod": False}})
    for damaged in (f"{digest}\n{unprotected}", whole[:-9], "", "\x00", body, f"{digest}\n", "x" + whole):
        kept.write_text(damaged)
        assert read(home, tmp_path, FORMS["block"]) == head
        assert kept.read_text() == whole, "it is written anew"


def test_one_file_is_kept_for_a_folder_however_often_it_is_edited(home: dict[str, str], tmp_path: Path) -> None:
    for form in FORMS.values():
        read(home, tmp_path, form)
    (kept,) = kept_files(home)
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_cache_file_by_another_user_is_not_trusted(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(home, tmp_path, FORMS["block"])
    (kept,) = kept_files(home)
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    kept.rename(kept.with_name(kept.name.replace(str(uid), str(uid + 1), 1)))
    monkeypatch.setattr(manifest, "read_yaml", None)
    with pytest.raises(TypeError):
        read(home, tmp_path, FORMS["block"])


def test_without_a_writable_cache_everything_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    for environ in ({}, {"HEADGATE_HOME": str(tmp_path / "home")}):
        assert read(environ, tmp_path, FORMS["block"]).protected_by_name == {"dev": False, "prod": True}
