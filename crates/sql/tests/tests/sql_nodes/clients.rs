//! Programs in other languages, with their usual drivers: each uses a database in typical ways and checks the results.

use std::process::Command;
use vinga_sql_tests::{TestCluster, packaged, program, run, source};

const ENGINE: &str = "VINGA";

fn client(mut command: Command, cluster: &TestCluster) -> String {
    let port = cluster.sql_nodes[0].port().to_string();
    run(command.args(["127.0.0.1", &port, "test", ENGINE]))
}

#[test]
fn a_program_in_python() {
    let cluster = TestCluster::start(1);
    let mut python = Command::new("/usr/bin/python3");
    python.env("PYTHONPATH", packaged("usr/lib/python3/dist-packages")).arg("-B");
    python.arg(source("../clients/client.py"));
    assert_eq!(client(python, &cluster), "python client: ok\n");
}

#[test]
fn a_program_in_java_with_statements_prepared_at_the_server() {
    let cluster = TestCluster::start(1);
    let mut java = Command::new("java");
    java.args(["-Xmx256m", "-cp"]).arg(packaged("usr/share/java/mariadb-java-client.jar"));
    java.arg(source("../clients/Client.java"));
    assert_eq!(client(java, &cluster), "java client: ok\n");
}

#[test]
fn a_dump_goes_out_and_comes_in_again() {
    let cluster = TestCluster::start(2);
    let mut session = cluster.connect(0);
    session.query(&format!(
        "CREATE TABLE packed (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(50) NOT NULL DEFAULT 'x', \
         price DECIMAL(9,3), body TEXT, moment DATETIME(3), raw VARBINARY(20), kind ENUM('a','b'), \
         KEY name (name), KEY price (price DESC, name)) ENGINE={ENGINE} COMMENT='for a dump'"
    ));
    session.query(
        "INSERT INTO packed (name, price, body, moment, raw, kind) SELECT CONCAT('name ', seq), seq / 7, \
         IF(seq % 3, REPEAT('body ', seq % 50), NULL), '2024-01-01 00:00:00.125' + INTERVAL seq SECOND, UNHEX(HEX(seq)), \
         ELT(1 + seq % 2, 'a', 'b') FROM seq_1_to_3000",
    );
    session.query("CREATE VIEW cheap AS SELECT id, name FROM packed WHERE price < 10");
    let digest = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', id, name, price, body, moment, HEX(raw), kind))) FROM packed";
    let before = session.lines(digest);
    let definition = session.query("SHOW CREATE TABLE packed");
    let dump = || {
        let mut dump = program("mariadb-dump");
        dump.args(["--no-defaults", "--user=root", "--single-transaction", "--hex-blob", "test"]);
        dump
    };
    let socket = |node: usize| format!("--socket={}", cluster.sql_nodes[node].socket().display());
    let text = run(dump().arg(socket(0)));
    assert!(text.contains("for a dump") && text.contains("ENGINE=VINGA"), "{}", &text[..500]);

    // The dump is loaded at the other SQL node.
    let file = std::env::temp_dir().join(format!("vinga-dump-{}.sql", std::process::id()));
    std::fs::write(&file, text).expect("a file can be written");
    session.query("DROP VIEW cheap");
    session.query("DROP TABLE packed");
    let input = std::fs::File::open(&file).expect("it was written just now");
    run(program("mariadb").args(["--no-defaults", "--user=root", "test"]).arg(socket(1)).stdin(input));
    std::fs::remove_file(&file).expect("it was written just now");
    assert_eq!(session.lines(digest), before);
    assert_eq!(session.query("SHOW CREATE TABLE packed"), definition);
    assert_eq!(cluster.connect(1).lines("SELECT COUNT(*) FROM cheap"), ["69"]);
}
