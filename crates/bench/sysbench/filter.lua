-- A range of rows of which one fulfils a condition on a column without index: how fast the storage engine filters.
--
-- The table is that of sysbench's own OLTP scripts with one more column, 'filter', that is equal to the primary key; a
-- query scans a range of the primary key and selects the one row of it that has a certain 'filter'.

sysbench.cmdline.options = {
   table_size = {"Number of rows", 100000},
   range_size = {"Rows of a range", 100},
   engine = {"Storage engine", "innodb"}
}

local template = string.rep("#", 11) .. string.rep("-" .. string.rep("#", 11), 9)

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query(string.format([[
CREATE TABLE filter1 (
  id INT NOT NULL,
  k INT NOT NULL DEFAULT 0,
  c CHAR(120) NOT NULL DEFAULT '',
  pad CHAR(60) NOT NULL DEFAULT '',
  filter INT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=%s]], sysbench.opt.engine))
   con:bulk_insert_init("INSERT INTO filter1 (id, k, c, pad, filter) VALUES")
   for id = 1, sysbench.opt.table_size do
      con:bulk_insert_next(string.format("(%d, %d, '%s', 'pad', %d)", id,
         sysbench.rand.uniform(1, sysbench.opt.table_size), sysbench.rand.string(template), id))
   end
   con:bulk_insert_done()
end

function cleanup()
   sysbench.sql.driver():connect():query("DROP TABLE IF EXISTS filter1")
end

function thread_init()
   con = sysbench.sql.driver():connect()
   statement = con:prepare("SELECT c FROM filter1 WHERE id BETWEEN ? AND ? AND filter = ?")
   local int = sysbench.sql.type.INT
   low, high, wanted = statement:bind_create(int), statement:bind_create(int), statement:bind_create(int)
   statement:bind_param(low, high, wanted)
end

function thread_done()
   statement:close()
   con:disconnect()
end

function event()
   local size = sysbench.opt.range_size
   local first = sysbench.rand.uniform(1, sysbench.opt.table_size - size + 1)
   low:set(first)
   high:set(first + size - 1)
   wanted:set(sysbench.rand.uniform(first, first + size - 1))
   local rows = statement:execute()
   assert(rows.nrows == 1, "one row of the range has the wanted value")
   rows:free()
end
