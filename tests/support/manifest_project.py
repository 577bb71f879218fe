"""A project of two YAML manifests, as file contents by path."""

HEADGATE = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
environments:
  dev: {}
layout: manifests
manifests:
  tables: [schemas/in.sql, schemas/out.sql]
"""

IN = "-- What arrives.\nCREATE TABLE orders (\n  id BIGINT,\n  price DOUBLE\n) USING json LOCATION 'landing/orders';\n"
OUT = """CREATE TABLE cheap (id BIGINT, price DOUBLE) USING parquet;

-- Dear ones.
CREATE TABLE dear (
  id BIGINT,
  price DOUBLE -- in EUR; never NULL
) USING parquet;
"""

CHEAP = """---
name: cheap-orders
description: "Orders below 10"
target-table: "`cheap`"
sql: >-
  SELECT
      `id`,
      `price`
  FROM
      STREAM `orders`
  WHERE
      `price` < 10
flinkProperties: { }
"""

DEAR = """name: dear-orders
target-table: dear
sql: |
  SELECT id, price
  FROM STREAM orders
  WHERE price >= 10
"""


def files(**other: str | None) -> dict[str, str]:
    """Return a project of two manifests; other files are given by path, with `__` for `/`; None leaves a file out."""
    found: dict[str, str | None] = {
        "headgate.yml": HEADGATE,
        "schemas/in.sql": IN,
        "schemas/out.sql": OUT,
        "manifests/cheap.yaml": CHEAP,
        "manifests/dear.yml": DEAR,
    }
    found |= {path.replace("__", "/").replace("_yaml", ".yaml").replace("_sql", ".sql"): t for path, t in other.items()}
    return {path: text for path, text in found.items() if text is not None}
