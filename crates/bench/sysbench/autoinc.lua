-- Single-row inserts into a history table whose key is AUTO_INCREMENT; or, with --given, with keys that the client
-- makes.

sysbench.cmdline.options = {
   engine = {"Storage engine", "innodb"},
   given = {"The client gives the keys", false}
}

function prepare()
   sysbench.sql.driver():connect():query(string.format([[
CREATE TABLE history1 (
  id BIGINT NOT NULL AUTO_INCREMENT,
  aid INT, tid INT, bid INT,
  TransTime DATETIME,
  scriptId CHAR(10),
  filler CHAR(80),
  PRIMARY KEY (id)
) ENGINE=%s]], sysbench.opt.engine))
end

function cleanup()
   sysbench.sql.driver():connect():query("DROP TABLE IF EXISTS history1")
end

function thread_init()
   con = sysbench.sql.driver():connect()
   -- Each thread and each run has its own range of keys; numbers of Lua are exact up to 2^53.
   next_key = os.time() % 10000000 * 100000000 + sysbench.tid * 1000000
   local columns, marks = "aid, tid, bid, TransTime, scriptId, filler", "?, ?, ?, NOW(), 's', 'MoreMoney'"
   local int = sysbench.sql.type.INT
   if sysbench.opt.given then
      statement = con:prepare("INSERT INTO history1 (id, " .. columns .. ") VALUES (?, " .. marks .. ")")
      key = statement:bind_create(sysbench.sql.type.BIGINT)
   else
      statement = con:prepare("INSERT INTO history1 (" .. columns .. ") VALUES (" .. marks .. ")")
   end
   aid, tid, bid = statement:bind_create(int), statement:bind_create(int), statement:bind_create(int)
   if key then
      statement:bind_param(key, aid, tid, bid)
   else
      statement:bind_param(aid, tid, bid)
   end
end

function thread_done()
   statement:close()
   con:disconnect()
end

function event()
   if key then
      next_key = next_key + 1
      key:set(next_key)
   end
   aid:set(sysbench.rand.uniform(1, 100000))
   tid:set(sysbench.rand.uniform(1, 10))
   bid:set(1)
   statement:execute()
end
