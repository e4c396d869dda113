-- Rows by a list of primary keys: SELECT … WHERE id IN (…). Runs on the table of sysbench's own OLTP scripts.

sysbench.cmdline.options = {
   table_size = {"Number of rows", 10000},
   keys = {"Keys of a list", 100}
}

function thread_init()
   con = sysbench.sql.driver():connect()
   local marks = string.rep("?, ", sysbench.opt.keys - 1) .. "?"
   statement = con:prepare("SELECT c FROM sbtest1 WHERE id IN (" .. marks .. ")")
   keys = {}
   for n = 1, sysbench.opt.keys do
      keys[n] = statement:bind_create(sysbench.sql.type.INT)
   end
   statement:bind_param(unpack(keys))
end

function thread_done()
   statement:close()
   con:disconnect()
end

-- One key from each of several ranges of the table, so that no key occurs twice.
function event()
   local stretch = math.floor(sysbench.opt.table_size / sysbench.opt.keys)
   for n, key in ipairs(keys) do
      key:set((n - 1) * stretch + sysbench.rand.uniform(1, stretch))
   end
   local rows = statement:execute()
   assert(rows.nrows == sysbench.opt.keys, "each key has its row")
   rows:free()
end
