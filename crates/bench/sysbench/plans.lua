-- One of several statements, again and again, whose plan determines their cost: a count, ranges in both directions, an
-- open range near the end of a key, an UPDATE of two tables.

sysbench.cmdline.options = {
   table_size = {"Number of rows", 100000},
   statement = {"Which: count, ascending, descending, open_range, multi_update", "count"},
   engine = {"Storage engine", "innodb"}
}

-- Rows of a range, of an open range, and of an UPDATE of two tables.
local RANGE, OPEN_RANGE, CHANGED = 5000, 11, 1000

function prepare()
   local con = sysbench.sql.driver():connect()
   local size = sysbench.opt.table_size
   for _, name in ipairs({"plans1", "plans2"}) do
      con:query(string.format([[
CREATE TABLE %s (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, pad CHAR(60) NOT NULL, KEY (k), KEY (v))
ENGINE=%s]], name, sysbench.opt.engine))
      con:bulk_insert_init("INSERT INTO " .. name .. " (id, k, v, pad) VALUES")
      for id = 1, size do
         con:bulk_insert_next(string.format("(%d, %d, %d, 'pad')", id, (id * 7919) % size, id % 100))
      end
      con:bulk_insert_done()
   end
   con:query("ANALYZE TABLE plans1, plans2")
end

function cleanup()
   sysbench.sql.driver():connect():query("DROP TABLE IF EXISTS plans1, plans2")
end

local function random_from(last)
   return sysbench.rand.uniform(1, last)
end

-- Each returns the text of a statement, and how many rows it should return.
local statements = {
   count = function() return "SELECT COUNT(*) FROM plans1", 1 end,
   ascending = function(size)
      local first = random_from(size - RANGE)
      return string.format("SELECT k, pad FROM plans1 WHERE k >= %d AND k < %d ORDER BY k", first, first + RANGE), RANGE
   end,
   descending = function(size)
      local first = random_from(size - RANGE)
      return string.format("SELECT k, pad FROM plans1 WHERE k >= %d AND k < %d ORDER BY k DESC", first, first + RANGE), RANGE
   end,
   open_range = function(size)
      return string.format("SELECT id, k, pad FROM plans1 WHERE k >= %d", size - OPEN_RANGE), OPEN_RANGE
   end,
   multi_update = function(size)
      local first = random_from(size - CHANGED)
      return string.format("UPDATE plans1 AS a JOIN plans2 AS b ON b.id = a.id SET a.v = a.v + 1, b.pad = '%d' " ..
         "WHERE a.id >= %d AND a.id < %d", first, first, first + CHANGED), nil
   end
}

function thread_init()
   con = sysbench.sql.driver():connect()
   make = assert(statements[sysbench.opt.statement], "there is no such statement")
end

function thread_done()
   con:disconnect()
end

function event()
   local text, count = make(sysbench.opt.table_size)
   local rows = con:query(text)
   if count then
      assert(rows.nrows == count, "the statement returns " .. tonumber(rows.nrows) .. " rows, not " .. count)
      rows:free()
   end
end
