-- A join of some outer rows with another table by its primary key. The inner table is that of sysbench's own OLTP
-- scripts.

sysbench.cmdline.options = {
   table_size = {"Number of rows of the inner table", 10000},
   outer_rows = {"Number of outer rows", 1000},
   engine = {"Storage engine", "innodb"}
}

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query(string.format("CREATE TABLE outer1 (id INT NOT NULL PRIMARY KEY, inner_id INT NOT NULL) ENGINE=%s",
      sysbench.opt.engine))
   con:bulk_insert_init("INSERT INTO outer1 (id, inner_id) VALUES")
   for id = 1, sysbench.opt.outer_rows do
      con:bulk_insert_next(string.format("(%d, %d)", id, sysbench.rand.uniform(1, sysbench.opt.table_size)))
   end
   con:bulk_insert_done()
   con:query("ANALYZE TABLE outer1, sbtest1")
end

function cleanup()
   sysbench.sql.driver():connect():query("DROP TABLE IF EXISTS outer1")
end

function thread_init()
   con = sysbench.sql.driver():connect()
   statement = con:prepare([[
SELECT COUNT(*), SUM(i.k), MAX(i.pad) FROM outer1 AS o STRAIGHT_JOIN sbtest1 AS i ON i.id = o.inner_id]])
end

function thread_done()
   statement:close()
   con:disconnect()
end

function event()
   local rows = statement:execute()
   assert(rows.nrows == 1)
   rows:free()
end
