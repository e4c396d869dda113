-- TPC-B: a bank whose every transaction changes an account, its teller and its branch, and adds a row to a history
-- table with an AUTO_INCREMENT key (the schema of the history is that of the well-known measurements of NDB Cluster
-- with it).
--
-- Consistent at any moment: the sums of all balances of accounts, of tellers and of branches are equal, and equal to
-- the sum of the deltas in the history.

sysbench.cmdline.options = {
   scale = {"Branches; each has 10 tellers and --accounts accounts", 24},
   accounts = {"Accounts of a branch", 1000},
   engine = {"Storage engine", "innodb"},
   history_only = {"Only the insert into the history", false}
}

sysbench.cmdline.commands = {
   check = {function()
      local con = sysbench.sql.driver():connect()
      local sums = {}
      for _, sum in ipairs({"abalance) FROM account", "tbalance) FROM teller", "bbalance) FROM branch", "delta) FROM history"}) do
         sums[#sums + 1] = con:query_row("SELECT SUM(" .. sum) or "0"
      end
      print("sums: " .. table.concat(sums, " "))
      for n = 2, 4 do
         assert(sums[n] == sums[1], "the sums of accounts, tellers, branches and history are equal")
      end
   end}
}

local TELLERS = 10

function prepare()
   local con = sysbench.sql.driver():connect()
   local engine = sysbench.opt.engine
   con:query("CREATE TABLE branch (bid INT NOT NULL PRIMARY KEY, bbalance BIGINT NOT NULL, filler CHAR(88)) ENGINE=" .. engine)
   con:query("CREATE TABLE teller (tid INT NOT NULL PRIMARY KEY, bid INT NOT NULL, tbalance BIGINT NOT NULL, filler CHAR(84)) ENGINE=" .. engine)
   con:query("CREATE TABLE account (aid INT NOT NULL PRIMARY KEY, bid INT NOT NULL, abalance BIGINT NOT NULL, filler CHAR(84)) ENGINE=" .. engine)
   con:query(string.format([[
CREATE TABLE history (
  id BIGINT NOT NULL AUTO_INCREMENT,
  aid INT, tid INT, bid INT,
  delta BIGINT,
  TransTime DATETIME,
  scriptId CHAR(10),
  filler CHAR(80),
  PRIMARY KEY (id)
) ENGINE=%s]], engine))
   local function fill(columns, count, row)
      con:bulk_insert_init("INSERT INTO " .. columns .. " VALUES")
      for n = 1, count do
         con:bulk_insert_next(row(n))
      end
      con:bulk_insert_done()
   end
   local scale, accounts = sysbench.opt.scale, sysbench.opt.accounts
   fill("branch (bid, bbalance, filler)", scale, function(n) return string.format("(%d, 0, '')", n) end)
   fill("teller (tid, bid, tbalance, filler)", scale * TELLERS, function(n)
      return string.format("(%d, %d, 0, '')", n, math.floor((n - 1) / TELLERS) + 1)
   end)
   fill("account (aid, bid, abalance, filler)", scale * accounts, function(n)
      return string.format("(%d, %d, 0, '')", n, math.floor((n - 1) / accounts) + 1)
   end)
end

function cleanup()
   sysbench.sql.driver():connect():query("DROP TABLE IF EXISTS history, account, teller, branch")
end

function thread_init()
   con = sysbench.sql.driver():connect()
   local int = sysbench.sql.type.INT
   local function prepared(text, parameters)
      local statement = {handle = con:prepare(text), values = {}}
      for n = 1, parameters do
         statement.values[n] = statement.handle:bind_create(int)
      end
      if parameters > 0 then
         statement.handle:bind_param(unpack(statement.values))
      end
      return statement
   end
   statements = {
      begin = prepared("START TRANSACTION", 0),
      account = prepared("UPDATE account SET abalance = abalance + ? WHERE aid = ?", 2),
      balance = prepared("SELECT abalance FROM account WHERE aid = ?", 1),
      teller = prepared("UPDATE teller SET tbalance = tbalance + ? WHERE tid = ?", 2),
      branch = prepared("UPDATE branch SET bbalance = bbalance + ? WHERE bid = ?", 2),
      history = prepared([[
INSERT INTO history (aid, tid, bid, delta, TransTime, scriptId, filler) VALUES (?, ?, ?, ?, NOW(), 's', 'MoreMoney')]], 4),
      commit = prepared("COMMIT", 0)
   }
end

function thread_done()
   for _, statement in pairs(statements) do
      statement.handle:close()
   end
   con:disconnect()
end

local function execute(statement, ...)
   for n, value in ipairs({...}) do
      statement.values[n]:set(value)
   end
   return statement.handle:execute()
end

function event()
   local tid = sysbench.rand.uniform(1, sysbench.opt.scale * TELLERS)
   local bid = math.floor((tid - 1) / TELLERS) + 1
   -- 15 % of the customers are of another branch.
   local home = sysbench.rand.uniform(1, 100) <= 15 and sysbench.rand.uniform(1, sysbench.opt.scale) or bid
   local aid = (home - 1) * sysbench.opt.accounts + sysbench.rand.uniform(1, sysbench.opt.accounts)
   local delta = sysbench.rand.uniform(1, 1999998) - 999999
   execute(statements.begin)
   if not sysbench.opt.history_only then
      execute(statements.account, delta, aid)
      execute(statements.balance, aid):free()
      execute(statements.teller, delta, tid)
      execute(statements.branch, delta, bid)
   end
   execute(statements.history, aid, tid, bid, delta)
   execute(statements.commit)
end
