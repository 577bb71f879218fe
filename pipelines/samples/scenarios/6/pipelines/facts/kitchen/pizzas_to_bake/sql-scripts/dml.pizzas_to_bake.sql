-- Each order as of its commit. A row of another table belongs to it if it was committed before, or by the same
-- transaction; the newest of these counts. Of two changes of an order in one transaction, the last one counts. A row is
-- written once the watermarks of all tables have passed its commit. (The id in Debezium's transaction metadata contains
-- the position of the change, and so differs within a transaction; _xid does not.)
INSERT INTO pizzas_to_bake
SELECT order_id, newest.revision, client.name AS client_name, placed.name AS table_name,
  transform(
    sequence(0, newest.lines - 1),
    n -> array_max(filter(lines, l -> l.part <=> newest.part AND l.line = n)).item
  ) AS pizzas
FROM (
  SELECT order_id, at, tx, max(struct(part, revision, lines)) AS newest,
    max(struct(a_ms, a_lsn, c_ms, c_lsn, client_name AS name)) AS client,
    max(struct(a_ms, a_lsn, t_ms, t_lsn, table_name AS name)) AS placed,
    collect_set(struct(part, line, p_ms, p_lsn, struct(pizza, price) AS item)) AS lines
  FROM (
    SELECT o.*, p.name AS pizza, p.price, unix_millis(p._committed_at) AS p_ms, p._lsn AS p_lsn
    FROM (
      SELECT o.*, t.name AS table_name, unix_millis(t._committed_at) AS t_ms, t._lsn AS t_lsn
      FROM (
        SELECT o.*, c.name AS client_name, unix_millis(c._committed_at) AS c_ms, c._lsn AS c_lsn
        FROM (
          SELECT o.*, a.client_id, a.table_id, unix_millis(a._committed_at) AS a_ms, a._lsn AS a_lsn
          FROM (
            SELECT id AS order_id, revision, table_assignment_id, size(pizzas) AS lines, line, pizza_id,
              _committed_at AS at, _lsn AS lsn, _xid AS tx, _transaction.total_order AS part
            FROM STREAM order_changes WATERMARK _committed_at DELAY OF INTERVAL '0.001' SECOND
            LATERAL VIEW posexplode(pizzas) items AS line, pizza_id
            WHERE _op <> 'd'
          ) AS o
          JOIN STREAM assignment_changes WATERMARK _committed_at DELAY OF INTERVAL '0.001' SECOND AS a
            ON a.id = o.table_assignment_id AND a._committed_at <= o.at
            AND (a._committed_at < o.at OR a._xid = o.tx OR a._lsn < o.lsn)
        ) AS o
        JOIN STREAM client_changes WATERMARK _committed_at DELAY OF INTERVAL '0.001' SECOND AS c
          ON c.id = o.client_id AND c._committed_at <= o.at
          AND (c._committed_at < o.at OR c._xid = o.tx OR c._lsn < o.lsn)
      ) AS o
      JOIN STREAM table_changes WATERMARK _committed_at DELAY OF INTERVAL '0.001' SECOND AS t
        ON t.id = o.table_id AND t._committed_at <= o.at
        AND (t._committed_at < o.at OR t._xid = o.tx OR t._lsn < o.lsn)
    ) AS o
    JOIN STREAM pizza_changes WATERMARK _committed_at DELAY OF INTERVAL '0.001' SECOND AS p
      ON p.id = o.pizza_id AND p._committed_at <= o.at
      AND (p._committed_at < o.at OR p._xid = o.tx OR p._lsn < o.lsn)
  )
  GROUP BY order_id, at, tx
);
