"""Recipes: commands and manifests that start a Connect server for Headgate on a cluster, and its entry below `pools`.

Tokens and other secrets are never in them: the token is a file that the commands create.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.project.connectors import Connector
from core.project.data_folder import is_in_hdfs
from core.project.model import Pool
from core.project.server_settings import SERVER_SETTINGS, XML_OPTIONS, connector_settings

SPARK_VERSION = "4.2.0"
"""The version of Spark whose server Headgate drives."""

PORT = 15002

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class RecipeKind(StrEnum):
    """A cluster for which there is a recipe."""

    STANDALONE = "standalone"
    YARN = "yarn"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class RecipeInput:
    """What a recipe is made of."""

    pool: Pool
    """The pool that the server becomes: its name, cores, memory and settings."""
    data: str
    """The data folder: an absolute path that is the same for server and executors, or a URI."""
    connectors: tuple[Connector, ...] = ()
    """Connectors, the paths of whose jars are absolute."""
    home: str = "/etc/headgate"
    """Folder for the token on the machine of the agent."""
    python: str = "/opt/headgate-spark/bin/python"
    """Python with PySpark of the pinned version on the machine where the commands run."""
    port: int = PORT

    @property
    def token_file(self) -> str:
        return f"{self.home}/{self.pool.name}.token"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe in parts, each of which can be used as it is."""

    notes: tuple[str, ...]
    """What must be so before, as sentences."""
    files: Mapping[str, str]
    """Contents by file name: shell scripts and manifests."""
    entry: str
    """The lines below `environments: NAME:` of headgate.yml."""


def recipe(kind: RecipeKind, given: RecipeInput) -> Recipe:
    """Return the recipe for a kind of cluster."""
    match kind:
        case RecipeKind.STANDALONE:
            return _standalone(given)
        case RecipeKind.YARN:
            return _yarn(given)
        case RecipeKind.KUBERNETES:
            return _kubernetes(given)


def _settings(given: RecipeInput) -> dict[str, str]:
    """Return the settings of a server for Headgate; `conf` has no secrets, but references."""
    found = {
        "spark.driver.memory": "2g",
        **SERVER_SETTINGS,
        **connector_settings(given.connectors, dict(given.pool.conf)),
    }
    for side in ("driver", "executor"):
        key = f"spark.{side}.extraJavaOptions"
        found[key] = " ".join((*XML_OPTIONS, found.get(key, ""))).strip()
    return found | {
        "spark.connect.grpc.binding.port": str(given.port),
        # A running query does not keep its session alive: after an hour without calls, all queries would be stopped.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        "spark.executor.cores": "1",
        "spark.executor.instances": str(given.pool.cores),
        "spark.executor.memory": given.pool.memory,
    }


def _packages(given: RecipeInput) -> dict[str, str]:
    options = {
        "--packages": [each for connector in given.connectors for each in connector.coordinates],
        "--exclude-packages": [each for connector in given.connectors for each in connector.exclude],
        # spark-submit takes no folders, but patterns.
        "--jars": [
            jar if jar.endswith(".jar") else f"{jar.rstrip('/')}/*.jar"
            for connector in given.connectors
            for jar in connector.jars
        ],
    }
    if not options["--packages"]:
        del options["--exclude-packages"]
    return {option: ",".join(values) for option, values in options.items() if values}


def _submit(master: str, given: RecipeInput, settings: Mapping[str, str], *more: str) -> str:
    options = [
        ("--master", master),
        ("--deploy-mode", "client"),
        ("--class", SERVER_CLASS),
        ("--name", given.pool.name),
    ]
    options += [*_packages(given).items(), *(("--conf", f"{key}={value}") for key, value in settings.items())]
    lines = [f"{option} {shlex.quote(value)}" for option, value in options]
    return " \\\n  ".join(['exec "$SPARK_HOME/bin/spark-submit"', *lines, *more, "spark-internal"])


def _preamble(given: RecipeInput) -> str:
    token = shlex.quote(given.token_file)
    return f"""#!/bin/sh
# Run it under a supervisor, such as systemd, which starts it again.
set -eu
# Elsewhere: pip install 'pyspark[connect]=={SPARK_VERSION}' 'pandas<3'
PYTHON="${{PYTHON:-{given.python}}}"
export SPARK_HOME="$("$PYTHON" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
export PYSPARK_PYTHON="$PYTHON"
mkdir -p {shlex.quote(given.home)}
[ -s {token} ] || (umask 077; "$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32), end="")' > {token})
export SPARK_CONNECT_AUTHENTICATE_TOKEN="$(cat {token})"
"""


_SHARED = "the data folder {data} must be at the same path on every machine that runs executors, and writable there"
_REMOTE = "every machine that runs executors must be able to write to {data}"
_JAVA = "Java 17 or newer must be on the PATH of every machine"
_BESIDE = "run it on the machine of the agent; the server listens on the loopback interface only"


def _notes(given: RecipeInput, *more: str) -> tuple[str, ...]:
    return (_JAVA, (_REMOTE if is_in_hdfs(given.data) else _SHARED).format(data=given.data), *more)


def _url_entry(given: RecipeInput) -> str:
    return f"""pools:
  {given.pool.name}:
    url: "sc://127.0.0.1:{given.port}"
    token: ${{file:{given.token_file}}}
"""


def _yarn(given: RecipeInput) -> Recipe:
    settings = _settings(given) | {"spark.connect.grpc.binding.address": "127.0.0.1"}
    script = f"""{_preamble(given)}
# The folder with core-site.xml and yarn-site.xml of the cluster.
export HADOOP_CONF_DIR="${{HADOOP_CONF_DIR:-/etc/hadoop/conf}}"
# Where YARN finds Spark's jars: on the file system of the cluster.
FILES="$("$PYTHON" -c '{_FILE_SYSTEM}' "$HADOOP_CONF_DIR/core-site.xml")"
{_submit("yarn", given, settings, '--conf "spark.yarn.stagingDir=$FILES/user/$(id -un)"')}
"""
    return Recipe(_notes(given, _BESIDE), {f"{given.pool.name}-server.sh": script}, _url_entry(given))


_FILE_SYSTEM = (
    "import sys, xml.etree.ElementTree as e; "
    'print({p.findtext("name"): p.findtext("value") for p in e.parse(sys.argv[1]).iter("property")}["fs.defaultFS"])'
)


def _standalone(given: RecipeInput) -> Recipe:
    preamble, name = _preamble(given).partition("mkdir -p")[0], f"{given.pool.name}-cluster.sh"
    usage = f"""set -eu
# On the machine of the master, then on each worker.
usage() {{
  printf '%s\\n' 'usage: sh {name} master HOST' '       sh {name} worker spark://HOST:7077' >&2
  exit 2
}}
[ "$#" = 2 ] || usage
case "$1" in master|worker) ;; *) usage ;; esac
"""
    preamble = preamble.replace("set -eu\n", usage)
    script = f"""{preamble}{_OPEN}
case "$1" in
master)
  exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \\
    --host "$2" --port 7077 --webui-port 8080 ;;
worker)
  exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \\
    --cores {given.pool.cores} --memory {given.pool.memory} \\
    --work-dir "${{WORK_DIR:-$HOME/{given.pool.name}-cluster-work}}" "$2" ;;
esac
"""
    entry = f"""pools:
  {given.pool.name}:
    master: spark://HOST:7077
    master_ui: http://HOST:8080
    cores: {given.pool.cores}
    memory: {given.pool.memory}
"""
    notes = _notes(given, "the agent starts the Connect server itself, with all settings and jars")
    return Recipe(notes, {name: script}, entry)


_OPEN = """\
# Without authentication, whoever reaches their ports can run code. Web pages are served on all interfaces;
# export SPARK_LOCAL_IP=ADDRESS binds them, and the worker, to one. HOST binds the master's own port."""


def _kubernetes(given: RecipeInput) -> Recipe:
    name = f"headgate-{given.pool.name.lower().replace('_', '-')}"
    settings = _settings(given) | {
        "spark.connect.grpc.binding.address": "0.0.0.0",
        "spark.driver.host": f"{name}.$(NAMESPACE).svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.kubernetes.namespace": "$(NAMESPACE)",
        "spark.kubernetes.container.image": "$(IMAGE)",
        "spark.kubernetes.driver.pod.name": "$(POD)",
        "spark.kubernetes.authenticate.driver.serviceAccountName": name,
    }
    remote = is_in_hdfs(given.data)
    if not remote:
        claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
        settings |= {f"{claim}.options.claimName": f"{name}-data", f"{claim}.mount.path": given.data}
    words = ["--master", "k8s://https://kubernetes.default.svc", "--deploy-mode", "client", "--class", SERVER_CLASS]
    words += [word for pair in _packages(given).items() for word in pair]
    words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    arguments = "\n".join(f"            - {_quoted(word)}" for word in [*words, "spark-internal"])
    manifest = _MANIFEST.format(name=name, port=given.port, version=SPARK_VERSION, arguments=arguments)
    if not remote:
        manifest += _VOLUME.format(name=name, data=given.data)
    entry = _url_entry(given)
    token, secret = shlex.quote(given.token_file), shlex.quote(f"token={given.token_file}")
    # Without a line break, which would become part of the secret.
    writes = f'(umask 077; printf %s "$(openssl rand -hex 32)" > {token})'
    notes = (
        "build the image of the Dockerfile, push it, and write its name for REGISTRY/… in the manifest, in both places",
        _HADOOP_STEP.format(data=given.data) if remote else _CLAIM_STEP.format(name=name, data=given.data),
        f"create the token once: mkdir -p {shlex.quote(given.home)}; [ -s {token} ] || {writes}",
        f"then store it in the cluster: kubectl create secret generic {name} --from-file={secret}",
        f"the agent reaches the server by kubectl port-forward service/{name} {given.port}, or by an ingress with TLS",
        "these manifests were checked by their fields only: no Kubernetes was available to run them",
    )
    files = {"Dockerfile": _DOCKERFILE + (_HADOOP if remote else ""), f"{name}.yaml": manifest}
    return Recipe(notes, files, entry)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_CLAIM_STEP = "the claim {name}-data must be a volume for many pods (ReadWriteMany), which the agent has at {data}"
_HADOOP_STEP = "copy core-site.xml and hdfs-site.xml of {data} to the folder hadoop-conf beside the Dockerfile"

_DOCKERFILE = f"""# It has Spark in /opt/spark with its entry point for executors; Python functions need the packages.
FROM apache/spark:{SPARK_VERSION}
USER root
RUN pip install --no-cache-dir 'pandas<3' pyarrow
USER spark
"""
_HADOOP = """COPY hadoop-conf /opt/spark/hadoop-conf
ENV HADOOP_CONF_DIR=/opt/spark/hadoop-conf
"""

_MANIFEST = """apiVersion: v1
kind: ServiceAccount
metadata:
  name: {name}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {name}
rules:
  - apiGroups: [""]
    resources: [pods, services, configmaps, persistentvolumeclaims]
    verbs: [create, get, list, watch, update, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {name}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {name}
subjects:
  - kind: ServiceAccount
    name: {name}
---
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  # Without an address of its own, because executors connect to the pod itself.
  clusterIP: None
  # The driver looks up its own name before it is ready.
  publishNotReadyAddresses: true
  selector:
    app: {name}
  ports:
    - name: connect
      port: {port}
    - name: driver
      port: 7078
    - name: blocks
      port: 7079
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 1
  strategy:
    # A second server must never run beside the first one.
    type: Recreate
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      serviceAccountName: {name}
      containers:
        - name: server
          image: REGISTRY/headgate-spark:{version}
          command: [/opt/spark/bin/spark-submit]
          args:
{arguments}
          env:
            - name: IMAGE
              value: REGISTRY/headgate-spark:{version}
            - name: POD
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            - name: SPARK_CONNECT_AUTHENTICATE_TOKEN
              valueFrom:
                secretKeyRef:
                  name: {name}
                  key: token
          ports:
            - containerPort: {port}
          readinessProbe:
            tcpSocket:
              port: {port}
"""
_VOLUME = """\
          volumeMounts:
            - name: data
              mountPath: {data}
      volumes:
        - name: data
          persistentVolumeClaim:
            claimName: {name}-data
"""
