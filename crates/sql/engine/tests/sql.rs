//! Runs SQL on Vinga tables, on real servers with a real data node. The memory of each server is limited.
//!
//! `scripts/build-plugin.sh` must have been run.

use std::time::{Duration, Instant};
use vinga_datanode::LocalNode;
use vinga_sqlnode::{Connection, ScopedSqlNode};

/// A data node and several SQL nodes.
struct World {
    nodes: Vec<ScopedSqlNode>,
    _data: LocalNode,
}

impl World {
    fn new(sql_nodes: usize) -> Self {
        let data = LocalNode::start().expect("a data node starts");
        let start = |_| {
            ScopedSqlNode::start_with(data.address(), |settings| {
                settings.variables.push(("transaction_isolation".into(), "READ-COMMITTED".into()));
            })
        };
        let nodes = (0..sql_nodes).map(start).collect::<Result<_, _>>();
        World { nodes: nodes.expect("SQL nodes start"), _data: data }
    }

    fn session(&self, node: usize) -> Session {
        Session(self.nodes[node].connect().expect("the SQL node accepts a connection"))
    }
}

struct Session(Connection);

impl Session {
    fn run(&mut self, statement: &str) {
        if let Err(error) = self.0.query(statement) {
            panic!("{statement}: {error}");
        }
    }

    /// Rows in the form `a b|c d`.
    fn rows(&mut self, statement: &str) -> String {
        match self.0.rows(statement) {
            Ok(rows) => rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("|"),
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    fn fails(&mut self, statement: &str) -> (u16, String) {
        let error = self.0.query(statement).expect_err(statement);
        (error.number().unwrap_or_else(|| panic!("{statement}: {error}")), error.to_string())
    }

    fn expect(&mut self, statement: &str, rows: &str) {
        assert_eq!(self.rows(statement), rows, "{statement}");
    }
}

#[test]
fn rows_come_and_go() {
    let world = World::new(1);
    let mut s = world.session(0);
    s.run("create database d");
    s.run("use d");
    s.run("create table t (id bigint auto_increment primary key, v int, unique key u (v)) engine=vinga");
    s.run("insert into t (v) values (1), (2), (3)");
    s.expect("select * from t order by id", "1 1|2 2|3 3");
    // Explicit values move the counter.
    s.run("insert into t values (10, 10)");
    s.run("insert into t (v) values (11)");
    s.expect("select id from t where v = 11", "11");
    // The correct row and key of several are reported, and none of the rows is stored.
    let (number, text) = s.fails("insert into t values (20, 20), (2, 21), (22, 22)");
    assert_eq!(number, 1062);
    assert!(text.contains("'2' for key 'PRIMARY'"), "{text}");
    let (number, text) = s.fails("insert into t values (20, 20), (21, 3), (22, 22)");
    assert_eq!(number, 1062);
    assert!(text.contains("'3' for key 'u'"), "{text}");
    s.expect("select count(*) from t", "5");
    s.run("insert ignore into t values (1, 100), (30, 30), (31, 30)");
    s.expect("select * from t where id >= 30", "30 30");
    s.run("replace into t values (31, 30)");
    s.expect("select * from t where v = 30", "31 30");
    s.run("insert into t values (5, 30) on duplicate key update v = 31");
    s.expect("select * from t where id = 31", "31 31");
    s.run("update t set v = v + 100 where id = 2");
    s.expect("select v from t where id = 2", "102");
    let (number, text) = s.fails("update t set v = 1 where id = 2");
    assert_eq!(number, 1062);
    assert!(text.contains("'1' for key 'u'"), "{text}");
    s.run("update t set id = 50 where id = 2");
    s.expect("select * from t where id in (2, 50)", "50 102");
    s.run("delete from t where id = 50");
    s.expect("select count(*) from t", "5");
    s.run("truncate t");
    s.run("insert into t (v) values (1)");
    s.expect("select * from t", "1 1");
    // A table without a primary key.
    s.run("create table n (a int, b text) engine=vinga");
    s.run("insert into n values (1, 'a'), (1, 'a'), (2, repeat('x', 1000))");
    s.run("update n set a = 5 where b = 'a' limit 1");
    s.expect("select a, length(b) from n order by a", "1 1|2 1000|5 1");
}

#[test]
fn ranges_follow_the_order_of_their_columns() {
    let world = World::new(1);
    let mut s = world.session(0);
    s.run("create database d");
    s.run("use d");
    s.run(
        "create table a (id int primary key, k int not null, s varchar(30), d date, u int, unique key uu (u), key ss (s), \
         key kd (k, d desc)) engine=vinga charset utf8mb4",
    );
    s.run(
        "insert into a select seq, seq % 10, concat('Str', seq), date '2020-01-01' + interval seq day, seq from seq_1_to_1000",
    );
    s.expect("select count(*), min(id), max(id), min(u), max(k) from a", "1000 1 1000 1 9");
    s.expect("select id from a where id between 5 and 8 order by id", "5|6|7|8");
    s.expect("select id from a where id between 5 and 8 order by id desc", "8|7|6|5");
    s.expect("select id from a where k = 3 order by id limit 3", "3|13|23");
    s.expect("select id from a where s = 'STR77'", "77");
    s.expect("select s from a where s like 'str99%' order by s desc limit 2", "Str999|Str998");
    s.expect("select id from a where u = 500", "500");
    s.expect("select d from a where k = 3 order by d desc limit 2", "2022-09-20|2022-09-10");
    s.expect("select d from a where k = 3 order by d limit 2", "2020-01-04|2020-01-14");
    s.run("insert into a (id, k, u) values (2000, 1, null), (2001, 1, null)");
    s.expect("select count(*) from a where u is null", "2");
    s.run("update a set k = k + 1 where k = 9");
    s.expect("select count(*) from a where k = 10", "100");
    s.run("delete from a where k between 1 and 3");
    s.expect("select count(*) from a", "700");
    s.expect(
        "select a1.id, a2.id from a a1 join a a2 on a1.u = a2.id where a1.id between 14 and 16",
        "14 14|15 15|16 16",
    );
    s.run("alter table a add column z int default 5");
    s.expect("select id, z from a where id = 5", "5 5");
    s.run("rename table a to b");
    s.expect("select count(*) from b", "700");
}

#[test]
fn every_type_comes_back_as_it_went() {
    let world = World::new(1);
    let mut s = world.session(0);
    s.run("create database d");
    s.run("use d");
    s.run(
        "create table t (a tinyint, b smallint unsigned, c mediumint, d int unsigned, e bigint, f float, g double, \
         h decimal(20,5), i bit(13), j date, k time(3), l datetime(6), m timestamp(2) null, n year, o char(5), p binary(4), \
         q varbinary(10), r enum('x','y'), s set('a','b','c'), t text, u blob, v json, w uuid, x inet6, y geometry, \
         z varchar(10) as (concat(o,'!')) virtual, id int primary key) engine=vinga",
    );
    s.run("set time_zone = '+00:00'");
    s.run(
        "insert into t (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,id) values (-1, 65535, -8388608, 4000000000, \
         -9000000000000000000, 1.5, 2.25, -12345.678, b'1010101010101', '2024-02-29', '-12:34:56.789', \
         '2024-01-01 01:02:03.123456', '2024-01-01 00:00:00.12', 1999, 'abc', 'ab', 'cd', 'y', 'a,c', 'text', 'blob', \
         '{}', '123e4567-e89b-12d3-a456-426655440000', '::1', point(1,2), 1)",
    );
    s.run("insert into t (id) values (2)");
    s.expect(
        "select a,b,c,d,e,f,g,h,bin(i),j,k,l,m,n,o,hex(p),q,r,s,t,u,v,w,x,st_astext(y),z from t where id = 1",
        "-1 65535 -8388608 4000000000 -9000000000000000000 1.5 2.25 -12345.67800 1010101010101 2024-02-29 -12:34:56.789 \
         2024-01-01 01:02:03.123456 2024-01-01 00:00:00.12 1999 abc 61620000 cd y a,c text blob {} \
         123e4567-e89b-12d3-a456-426655440000 ::1 POINT(1 2) abc!",
    );
    s.expect("select count(*) from t where a is null and h is null and t is null and z is null", "1");
}

#[test]
fn transactions_hold_and_are_undone() {
    let world = World::new(2);
    let (mut s, mut other) = (world.session(0), world.session(1));
    s.run("create database d");
    s.run("use d");
    s.run("create table t (id int primary key, v int) engine=vinga");
    s.run("insert into t values (1, 1), (2, 2)");
    // Another SQL node has discovered database and table.
    other.expect("select * from d.t order by id", "1 1|2 2");
    s.run("begin");
    s.run("insert into t values (3, 3)");
    s.run("savepoint p");
    s.run("update t set v = 9 where id = 1");
    s.expect("select v from t where id = 1", "9");
    other.expect("select v from d.t where id = 1", "1");
    s.run("rollback to p");
    assert_eq!(s.fails("insert into t values (4, 4), (2, 0)").0, 1062);
    s.expect("select * from t order by id", "1 1|2 2|3 3");
    s.run("commit");
    other.expect("select count(*) from d.t", "3");
    // A lock that is not granted within the time limit ends the statement.
    s.run("begin");
    s.expect("select v from t where id = 1 for update", "1");
    assert_eq!(other.fails("update d.t set v = 5 where id = 1").0, 1205);
    s.run("rollback");
    other.run("update d.t set v = 5 where id = 1");
    s.expect("select v from t where id = 1", "5");
    // When one SQL node changes a table the other one knows at once.
    s.run("alter table t add column w int default 7");
    other.expect("select * from d.t where id = 1", "1 5 7");
    s.run("drop table t");
    assert_eq!(other.fails("select * from d.t").0, 1146);
}

#[test]
fn what_is_not_there_is_refused() {
    let world = World::new(1);
    let mut s = world.session(0);
    s.run("create database d");
    s.run("use d");
    s.run("create table t (id int primary key) engine=vinga");
    let cases = [
        (1235, "create table x (a int primary key, foreign key (a) references t (id)) engine=vinga"),
        (1572, "create table x (a int primary key) engine=vinga partition by key (a)"),
        (1214, "create table x (a int primary key, b text, fulltext (b)) engine=vinga"),
        (1478, "create temporary table x (a int) engine=vinga"),
        (1074, "create table x (a int primary key, b varchar(40000)) engine=vinga charset latin1"),
        (1071, "create table x (a varchar(4000) primary key) engine=vinga charset latin1"),
    ];
    for (number, statement) in cases {
        assert_eq!(s.fails(statement).0, number, "{statement}");
    }
    s.run("create table l (id int primary key, b longtext) engine=vinga");
    assert_eq!(s.fails("insert into l values (1, repeat('x', 40000))").0, 1118);
    s.run("insert into l values (1, repeat('x', 29000))");
    s.expect("select length(b) from l", "29000");
}

#[test]
fn an_outage_is_reported_in_time() {
    let World { nodes, _data: data } = World::new(1);
    let mut s = Session(nodes[0].connect().expect("the SQL node accepts a connection"));
    s.run("create database d");
    s.run("create table d.t (id int primary key) engine=vinga");
    s.run("insert into d.t values (1)");
    let address = data.address().to_string();
    drop(data);
    let began = Instant::now();
    let (_, text) = s.fails("select * from d.t where id = 1");
    assert!(text.contains(&address), "{text}");
    let (_, text) = s.fails("insert into d.t values (2)");
    assert!(text.contains(&address), "{text}");
    assert!(began.elapsed() < Duration::from_secs(180), "two statements");
    s.expect("select 1", "1");
}
