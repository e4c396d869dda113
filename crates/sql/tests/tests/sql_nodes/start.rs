//! A SQL node starts even if no data node answers.

use std::net::TcpListener;
use std::time::Instant;
use vinga_sql_tests::HANG_GUARD;
use vinga_sqlnode::ScopedSqlNode;

#[test]
fn a_sql_node_starts_and_works_without_data_nodes() {
    // A port on which no one listens.
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let began = Instant::now();
    let node = ScopedSqlNode::start(&format!("127.0.0.1:{port}")).expect("it starts");
    assert!(began.elapsed() < HANG_GUARD, "it took {:?}", began.elapsed());
    let mut session = node.connect().expect("it answers");
    session.query("CREATE DATABASE d").expect("its own things work");
    session.query("CREATE TABLE d.local (a INT) ENGINE=InnoDB").expect("so do other engines");
    for statement in ["CREATE TABLE d.t (a INT) ENGINE=VINGA", "SELECT * FROM d.nothing"] {
        let error = session.query(statement).expect_err(statement).to_string();
        let cause = format!("can't connect to 127.0.0.1:{port}: Connection refused");
        assert!(error.contains(&cause) && error.contains("No data node is connected"), "{error}");
    }
}
