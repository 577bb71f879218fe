"""Clients of object stores, made from the settings with which Spark's own client (Hadoop) reaches them.

A secret is a reference to an environment variable, and is in no value but the client. Without keys, the client finds
credentials as the programs of its store do: in the environment, in a profile, or from the machine's role.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from core.model.file_stores import AZURE, GCS, store_kind
from pipelines.storage.hadoop_settings import resolved

CONNECT_S, ANSWER_S = 3.0, 4.0
"""Deadlines in seconds for a connection, and for each part of an answer.

They end before a round stops waiting, so that its reason is that of the store; and a process ends only after its calls.
"""

_AZURE_HOST = ".dfs."


def inner_root(root: str) -> str:
    """Return the bucket or container of a root such as `s3a://bucket` or `abfss://container@account.dfs.host`."""
    return root.partition("://")[2].partition("@")[0]


def client_of(root: str, settings: Mapping[str, str]) -> Any:
    """Return Arrow's file system for a root; it may ask a service of the cloud for a region or for credentials.

    Raises NoSecret if a key refers to a variable that is not set, and ValueError or OSError for settings that the
    client refuses.
    """
    match store_kind(root):
        case kind if kind is GCS:
            return _gcs(settings)
        case kind if kind is AZURE:
            return _azure(root.partition("@")[2], settings)
        case _:
            return _s3(inner_root(root), settings)


def _s3(bucket: str, settings: Mapping[str, str]) -> Any:
    # Imported here, because most agents read no object store.
    from pyarrow import fs

    def of(name: str) -> str:
        return settings.get(f"fs.s3a.bucket.{bucket}.{name}") or settings.get(f"fs.s3a.{name}") or ""

    scheme, _, host = of("endpoint").rpartition("://")
    options: dict[str, Any] = {"region": of("endpoint.region") or None}
    if host:
        plain = of("connection.ssl.enabled").lower() == "false"
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or ("http" if plain else "https")}
        options["force_virtual_addressing"] = of("path.style.access").lower() != "true"
    elif not options["region"]:
        options["region"] = fs.resolve_s3_region(bucket)
    if "Anonymous" in of("aws.credentials.provider"):
        options["anonymous"] = True
    elif of("access.key") and of("secret.key"):
        options |= {"access_key": resolved(of("access.key")), "secret_key": resolved(of("secret.key"))}
        if of("session.token"):
            options["session_token"] = resolved(of("session.token"))
    # The library repeats a failed request itself; the next round of measurements does so as well.
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    return fs.S3FileSystem(connect_timeout=CONNECT_S, request_timeout=ANSWER_S, retry_strategy=retries, **options)


def _gcs(settings: Mapping[str, str]) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = {"anonymous": settings.get("fs.gs.auth.type", "").upper() == "UNAUTHENTICATED"}
    if endpoint := settings.get("fs.gs.storage.root.url", ""):
        address = urlsplit(endpoint)
        options |= {"scheme": address.scheme, "endpoint_override": address.netloc}
    return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=CONNECT_S), **options)


def _azure(host: str, settings: Mapping[str, str]) -> Any:
    from pyarrow import fs

    account, _, cloud = host.partition(_AZURE_HOST)

    def of(name: str) -> str:
        return settings.get(f"fs.azure.{name}.{host}") or settings.get(f"fs.azure.{name}") or ""

    options: dict[str, Any] = {}
    if key := of("account.key"):
        options["account_key"] = resolved(key)
    elif token := of("sas.fixed.token"):
        options["sas_token"] = resolved(token)
    elif client := of("account.oauth2.client.id"):
        # The address is https://login.microsoftonline.com/TENANT/oauth2/token.
        tenant = urlsplit(of("account.oauth2.client.endpoint")).path.strip("/").partition("/")[0]
        secret = resolved(of("account.oauth2.client.secret"))
        options |= {"client_id": client, "client_secret": secret, "tenant_id": tenant}
    for service in ("blob", "dfs"):
        options[f"{service}_storage_authority"] = f".{service}.{cloud}"
    return fs.AzureFileSystem(account, **options)


Connect = Callable[[], Any]
"""Creates the client of one root."""
