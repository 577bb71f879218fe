"""Recipes for pools on clusters: scripts that a shell parses, manifests with their fields, entries that are read."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
import yaml

from core.model.problems import Problem
from core.project.connectors import DELTA, KAFKA, Connector
from core.project.model import Pool
from core.project.pool_recipe import Recipe, RecipeInput, RecipeKind, recipe
from core.project.server_settings import SERVER_SETTINGS
from core.project_reader.manifest import read_manifest

CONF = (
    ("spark.sql.shuffle.partitions", "8"),
    ("spark.hadoop.fs.s3a.access.key", "${env:KEY}"),
)
GIVEN = RecipeInput(
    Pool("large", cores=3, memory="4g", conf=CONF), data="/shared/o'brien", connectors=(DELTA, KAFKA), home="/h"
)


def made(kind: str) -> Recipe:
    return recipe(RecipeKind(kind), GIVEN)


def test_folders_of_jars_are_given_to_spark_as_patterns() -> None:
    connectors = (Connector("delta", jars=("/jars/delta/", "/jars/one.jar")),)
    (script,) = recipe(RecipeKind.YARN, replace(GIVEN, connectors=connectors)).files.values()
    assert "--jars '/jars/delta/*.jar,/jars/one.jar'" in script


@pytest.mark.parametrize("kind", RecipeKind)
def test_a_key_stays_a_reference_and_each_entry_is_one_of_headgate_yml(kind: RecipeKind) -> None:
    found = made(kind)
    reference = "spark.hadoop.fs.s3a.access.key=${env.KEY}"
    assert kind is RecipeKind.STANDALONE or any(reference in text for text in found.files.values())
    entry = "".join(f"    {line}\n" for line in found.entry.splitlines())
    problems: list[Problem] = []
    (dev,) = read_manifest(small_project.HEAD.replace("dev: {}", f"\n  dev:\n{entry}"), problems).environments
    assert not problems and [pool.name for pool in dev.pools] == ["large"]
    assert (dev.pool.master is None) is (kind is not RecipeKind.STANDALONE)


@pytest.mark.parametrize("kind", ["standalone", "yarn"])
def test_a_script_is_one_that_a_shell_parses(kind: str, tmp_path: Path) -> None:
    ((name, text),) = made(kind).files.items()
    (tmp_path / name).write_text(text)
    subprocess.run(["sh", "-n", name], cwd=tmp_path, check=True)


def test_a_server_on_yarn_gets_the_settings_that_a_local_one_has(tmp_path: Path) -> None:
    ((_, text),) = made("yarn").files.items()
    # In place of spark-submit, print its arguments.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin" / "spark-submit").chmod(0o755)
    (tmp_path / "python").write_text(f"#!/bin/sh\necho {tmp_path}\n")
    (tmp_path / "python").chmod(0o755)
    text = text.replace("/h/large.token", str(tmp_path / "token"))
    environ = {"PATH": "/usr/bin:/bin", "PYTHON": str(tmp_path / "python")}
    said = subprocess.run(["sh", "-c", text], env=environ, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    conf = dict(pair.split("=", 1) for pair in said if pair.startswith("spark.") and "=" in pair)
    assert conf.items() >= (SERVER_SETTINGS | {"spark.sql.shuffle.partitions": "8"}).items()
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert conf["spark.connect.session.manager.defaultSessionTimeout"] == "-1"
    assert (conf["spark.executor.instances"], conf["spark.executor.memory"]) == ("3", "4g")
    assert said[said.index("--packages") + 1] == ",".join((*DELTA.coordinates, *KAFKA.coordinates))
    assert said[said.index("--master") + 1] == "yarn" and said[-2] == "spark-internal"
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


REQUIRED = {
    "ServiceAccount": (),
    "Role": ("rules",),
    "RoleBinding": ("roleRef", "subjects"),
    "Service": ("spec.selector", "spec.ports", "spec.clusterIP"),
    "Deployment": ("spec.replicas", "spec.selector.matchLabels", "spec.template.metadata.labels", "spec.template.spec"),
}


def test_the_manifests_for_kubernetes_have_the_fields_of_their_kinds() -> None:
    found = recipe(RecipeKind.KUBERNETES, replace(GIVEN, data="/shared/dev"))
    (_, image), (name, text) = found.files.items()
    assert "pandas<3" in image, "the pods have what the functions of statements need"
    documents = list(yaml.safe_load_all(text))
    assert name == "headgate-large.yaml" and [each["kind"] for each in documents] == list(REQUIRED)
    assert documents[3]["spec"]["publishNotReadyAddresses"] is True, "the driver looks up its own name while it starts"
    for each in documents:
        assert each["apiVersion"] and each["metadata"]["name"] == "headgate-large"
        for path in REQUIRED[each["kind"]]:
            value: Any = each
            for key in path.split("."):
                value = value[key]
            assert value, path
    deployment = documents[-1]["spec"]
    assert deployment["replicas"] == 1 and deployment["strategy"] == {"type": "Recreate"}, "never two servers"
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    (server,) = deployment["template"]["spec"]["containers"]
    assert all(isinstance(word, str) for word in server["args"]) and server["args"][-1] == "spark-internal"
    assert "spark.driver.bindAddress=0.0.0.0" in server["args"], "its name need not be that of an interface yet"
    known = {each["name"] for each in server["env"]}
    assert {name for word in server["args"] for name in re.findall(r"\$\((\w+)\)", word)} <= known
    assert [each["name"] for each in server["volumeMounts"]] == ["data"]
    ports = {each["port"] for each in documents[3]["spec"]["ports"]}
    assert {15002, 7078, 7079} == ports


def test_a_data_folder_in_hdfs_is_no_folder_of_a_machine() -> None:
    given = replace(GIVEN, data="hdfs://names:8020/shop")
    shared = "every machine that runs executors must be able to write to hdfs://names:8020/shop"
    assert shared in recipe(RecipeKind.YARN, given).notes
    found = recipe(RecipeKind.KUBERNETES, given)
    image, manifest = found.files.values()
    (server,) = list(yaml.safe_load_all(manifest))[-1]["spec"]["template"]["spec"]["containers"]
    assert "volumeMounts" not in server and not [word for word in server["args"] if "persistentVolumeClaim" in word]
    assert "HADOOP_CONF_DIR" in image and any("hdfs-site.xml" in note for note in found.notes)


def test_the_step_for_kubernetes_creates_a_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    notes = recipe(RecipeKind.KUBERNETES, replace(GIVEN, home=str(tmp_path / "o'brien"))).notes
    (step,) = [note.partition(": ")[2] for note in notes if note.startswith("create the token once: ")]
    subprocess.run(["sh", "-c", step], check=True)
    token = tmp_path / "o'brien" / "large.token"
    assert re.fullmatch("[0-9a-f]{64}", token.read_text()) and token.stat().st_mode & 0o077 == 0
    before = token.read_text()
    subprocess.run(["sh", "-c", step], check=True)
    assert token.read_text() == before, "a server that runs keeps its token"


@pytest.mark.parametrize("words", [[], ["master"], ["mster", "h"], ["worker", "spark://h:7077", "more"]])
def test_the_script_of_a_standalone_cluster_prints_its_usage(words: list[str], tmp_path: Path) -> None:
    ((name, text),) = made("standalone").files.items()
    (tmp_path / name).write_text(text)
    ended = subprocess.run(["sh", name, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("usage: sh large-cluster.sh master HOST\n")


def test_a_worker_writes_into_no_installation(tmp_path: Path) -> None:
    ((name, text),) = made("standalone").files.items()
    (tmp_path / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-class").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").write_text(f"#!/bin/sh\necho {tmp_path}\n")
    for each in ("bin/spark-class", "python"):
        (tmp_path / each).chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin", "PYTHON": str(tmp_path / "python"), "HOME": "/home/x"}
    run = ["sh", str(tmp_path / name), "worker", "spark://h:7077"]
    said = subprocess.run(run, env=environ, capture_output=True, text=True, check=True).stdout.split("\n")
    assert said[said.index("--work-dir") + 1] == "/home/x/large-cluster-work" and said[-2] == "spark://h:7077"
