"""Generates projects of any size with layers, products and diamonds; the same seed yields the same bytes."""

import random
from collections.abc import Iterator
from pathlib import Path

MANIFEST = """\
project: bench
id: 6f1c0b0e-6a0f-4d53-9d0e-2f7a5d1b9c11
default_env: dev
environments:
  dev: {}
defaults:
  trigger: 10 seconds
"""

LAYERS = (("sources", 0.3), ("intermediates", 0.3), ("dimensions", 0.1), ("facts", 0.25), ("views", 0.05))
EXTERNAL = 0.1
"""Share of external tables, which are in `sources` and have no statement."""

PER_PRODUCT = 50

DDL = """\
-- {name}: generated.
CREATE TABLE {name} (
  id BIGINT COMMENT 'key',
  customer_id BIGINT,
  kind STRING,
  amount DECIMAL(12, 2),
  happened_at TIMESTAMP,
  place STRUCT<city: STRING, zip: STRING>,
  tags ARRAY<STRING>,
  note STRING
)
USING {format}{location};
"""

STATELESS = """\
-- {name}: projection and filter of {a}.
INSERT INTO {name}
SELECT id, customer_id, upper(kind) AS kind, CAST(amount * 1.19 AS DECIMAL(12, 2)) AS amount, happened_at,
  place, tags, concat_ws(' ', note, '{name}') AS note
FROM STREAM {a}
WHERE amount > {number} AND kind <> 'void' AND happened_at IS NOT NULL;
"""

ENRICHED = """\
-- {name}: {a} enriched with what lands in {s}.
INSERT INTO {name}
SELECT e.id, e.customer_id, s.kind, e.amount, e.happened_at, e.place, e.tags, coalesce(s.note, e.note) AS note
FROM STREAM {a} AS e
LEFT JOIN {s} AS s ON s.id = e.customer_id
WHERE e.amount BETWEEN {number} AND 10000;
"""

JOINED = """\
-- {name}: {a} beside {b} within a minute.
INSERT INTO {name}
SELECT a.id, a.customer_id, b.kind, a.amount + b.amount AS amount, a.happened_at, a.place, b.tags, a.note
FROM STREAM {a} WATERMARK happened_at DELAY OF INTERVAL {number} SECONDS AS a
JOIN STREAM {b} WATERMARK happened_at DELAY OF INTERVAL {number} SECONDS AS b
  ON b.customer_id = a.customer_id
  AND b.happened_at >= a.happened_at
  AND b.happened_at <= a.happened_at + INTERVAL 60 SECONDS;
"""

UNITED = """\
-- {name}: {a} and {b}, one after the other.
INSERT INTO {name}
WITH first AS (SELECT id, customer_id, kind, amount, happened_at, place, tags, note FROM STREAM {a}),
second AS (
  SELECT id, customer_id, kind, amount, happened_at, place, tags, note
  FROM STREAM {b} WHERE kind IN ('card', 'cash', 'voucher')
)
SELECT * FROM first WHERE amount > {number}
UNION ALL
SELECT * FROM second;
"""

COUNTED_DDL = """\
-- {name}: generated.
CREATE TABLE {name} (
  window_start TIMESTAMP, window_end TIMESTAMP, kind STRING, events BIGINT, amount DECIMAL(22, 2)
)
USING parquet;
"""

COUNTED = """\
-- {name}: counts of {a}.
INSERT INTO {name}
SELECT window.start AS window_start, window.end AS window_end, kind, count(*) AS events, sum(amount) AS amount
FROM STREAM {a} WATERMARK happened_at DELAY OF INTERVAL {number} SECONDS
GROUP BY window(happened_at, '1 minute'), kind;
"""

YML = """\
owner: team {product}
description: {name}, generated
trigger: {number} seconds
"""


def project_texts(tables: int, seed: int = 7) -> dict[str, str]:
    """Return the texts of a project, with two files per table on average."""
    chance = random.Random(seed)
    texts = {"headgate.yml": MANIFEST}
    external = max(2, int(tables * EXTERNAL))
    streamable: list[str] = []
    landed: list[str] = []
    for index, layer in enumerate(_layers(tables)):
        product = f"product_{index % max(1, tables // PER_PRODUCT):03d}"
        name = f"{layer[:3]}_{product[8:]}_{index:05d}"
        folder = f"pipelines/{layer}/{product}/{name}"
        if index < external:
            landed.append(name)
            location = f"\nLOCATION 'landing/{name}'"
            texts[f"{folder}/sql-scripts/ddl.{name}.sql"] = DDL.format(name=name, format="json", location=location)
        else:
            ends = layer in ("facts", "views") and chance.random() < 0.5
            texts[f"{folder}/sql-scripts/ddl.{name}.sql"] = (
                COUNTED_DDL.format(name=name) if ends else DDL.format(name=name, format="parquet", location="")
            )
            texts[f"{folder}/sql-scripts/dml.{name}.sql"] = _statement(name, streamable or landed, landed, ends, chance)
            if not ends:
                streamable.append(name)
        if index % 10 == 0:
            texts[f"{folder}/{name}.yml"] = YML.format(product=product, name=name, number=5 + index % 25)
    return texts


def layered_texts(layers: int, width: int) -> dict[str, str]:
    """Return a project whose tables read the whole previous layer: paths grow exponentially, edges linearly."""
    texts = {"headgate.yml": MANIFEST}
    before = ["landed"]
    folder = "pipelines/sources/deep/landed/sql-scripts"
    texts[f"{folder}/ddl.landed.sql"] = DDL.format(name="landed", format="json", location="\nLOCATION 'landing'")
    for layer in range(layers):
        now = [f"t_{layer:02d}_{place}" for place in range(width)]
        for name in now:
            folder = f"pipelines/facts/deep/{name}/sql-scripts"
            parts = (f"SELECT * FROM STREAM {parent}" for parent in before)
            texts[f"{folder}/ddl.{name}.sql"] = DDL.format(name=name, format="parquet", location="")
            texts[f"{folder}/dml.{name}.sql"] = f"INSERT INTO {name}\n" + "\nUNION ALL\n".join(parts) + ";\n"
        before = now
    return texts


def write(texts: dict[str, str], folder: Path) -> int:
    """Write texts into a folder and return the number of files."""
    for path, text in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return len(texts)


def _layers(tables: int) -> Iterator[str]:
    for layer, share in LAYERS[:-1]:
        yield from [layer] * int(tables * share)
    yield from [LAYERS[-1][0]] * (tables - sum(int(tables * share) for _, share in LAYERS[:-1]))


def _statement(name: str, above: list[str], landed: list[str], ends: bool, chance: random.Random) -> str:
    """Return a statement that reads nearby tables of the list `above`, so that diamonds and long chains arise."""
    near = above[-max(2, len(above) // 3) :]
    a, b = chance.choice(near), chance.choice(near)
    form = COUNTED if ends else chance.choice((STATELESS, STATELESS, ENRICHED, JOINED, UNITED))
    if form in (JOINED, UNITED) and a == b:
        form = STATELESS
    return form.format(name=name, a=a, b=b, s=chance.choice(landed), number=chance.randrange(1, 60))
