//! The command line with wrong input of every sort: each error says what is wrong and what is allowed.

use crate::support::Node;
use crate::support::folder::{said, vinga};

/// Runs `vinga` with these arguments.
fn run(arguments: &[&str]) -> (bool, String) {
    said(vinga().args(arguments).output())
}

/// Runs `vinga` and reads the JSON that it prints.
fn json(arguments: &[&str]) -> serde_json::Value {
    let output = vinga().args(arguments).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
}

#[test]
fn json_is_taken_before_and_behind_the_command() {
    let node = Node::start(&[]);
    let connect = ["--connect", node.address.as_str()];
    let create = [
        &["admin", "create", "a.t", "id int, n int null, primary key (id), unique index u (n)"][..],
        &connect,
    ];
    assert!(run(&create.concat()).0);
    for arguments in
        [["--json", "admin", "tables"], ["admin", "--json", "tables"], ["admin", "tables", "--json"]]
    {
        assert_eq!(json(&[&arguments[..], &connect].concat())[0]["table"], "a.t");
    }
    for what in ["threads", "memory", "pools", "blocks", "nodes", "transactions", "locks"] {
        assert!(json(&[&["admin", what, "--json"][..], &connect].concat()).is_array(), "{what}");
    }
    let described = json(&[&["admin", "describe", "a.t", "--json"][..], &connect].concat());
    assert_eq!(described["indexes"][0]["columns"][0]["name"], "n");
    let dropped = json(&[&["admin", "drop", "a.t", "--json"][..], &connect].concat());
    assert_eq!(dropped, serde_json::json!({ "dropped": "a.t" }));
    assert_eq!(json(&["sim", "--seeds", "1..3", "--json"])["seeds"], 2);
    assert_eq!(json(&["--json", "sim", "--seed", "1"])["failures"], serde_json::json!([]));
    assert_eq!(json(&["data", "--show", "--json"])["parameters"]["Name"]["value"], "vinga");
    for command in [&["up", "--json"][..], &["demo", "--json"], &["--json", "completions", "bash"]] {
        let output = vinga().args(command).output().expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains("prints no JSON"), "{command:?}: {text}");
    }
}

#[test]
fn errors_name_what_they_are_about() {
    let node = Node::start(&[]);
    let connect = ["--connect", node.address.as_str()];
    for what in ["describe", "drop"] {
        let (ok, text) = run(&[&["admin", what, "shop.orders"][..], &connect].concat());
        assert!(!ok && text.contains("There is no table shop.orders."), "{text}");
    }
    let create = [&["admin", "create", "shop.orders", "id int, primary key (id)"][..], &connect].concat();
    assert!(run(&create).0);
    let (ok, text) = run(&create);
    assert!(!ok && text.contains("shop.orders"), "{text}");
    for (address, piece) in [("", "none is given"), (":1", "host is missing"), ("h:x", "a port is a number")]
    {
        let (ok, text) = run(&["admin", "tables", "--connect", address]);
        assert!(!ok && text.contains("(Usage)") && text.contains(piece), "{text}");
    }
    for table in ["orders", ".orders", "shop."] {
        let (ok, text) = run(&["admin", "describe", table, "--connect", "127.0.0.1:1"]);
        assert!(!ok && text.contains("expected database.table"), "{text}");
    }
    // A column list is read before the cluster is asked.
    let (ok, text) = run(&["admin", "create", "a.b", "id whole", "--connect", "127.0.0.1:1"]);
    assert!(!ok && text.contains("'whole' is no type") && !text.contains("127.0.0.1"), "{text}");
}

#[test]
fn errors_about_a_row_name_table_and_key() {
    use vinga::{ColumnType, NewTable, Record, Update, Value};
    let node = Node::start(&[]);
    let cluster = vinga::blocking::Cluster::connect(&node.address).expect("the node admits us");
    let new = |name: &str| {
        NewTable::new(name)
            .column("shop", ColumnType::VarChar { bytes_max: 100 })
            .column("number", ColumnType::Integer { bytes: 4, signed: true })
            .column("v", ColumnType::Integer { bytes: 4, signed: true })
            .primary_key(&["shop", "number"])
    };
    let plain = cluster.create_table(new("shop.orders")).expect("a table can be created");
    let row = |v: i32| Record::new([("shop", Value::from("Ulm")), ("number", (-7).into()), ("v", v.into())]);
    cluster.insert(&plain, &row(1)).expect("an insert succeeds");
    let twice = cluster.insert(&plain, &row(1)).expect_err("it is there").to_string();
    assert!(twice.contains("630") && twice.ends_with("(table shop.orders, shop Ulm, number -7)"), "{twice}");
    let missing = cluster.delete(&plain, ("Bonn", 8)).expect_err("it is not there").to_string();
    assert!(
        missing.contains("626") && missing.ends_with("(table shop.orders, shop Bonn, number 8)"),
        "{missing}"
    );
    let update = cluster.update(&plain, ("x".repeat(90).as_str(), 8), &Update::new().set("v", 2));
    let update = update.expect_err("it is not there").to_string();
    assert!(
        update.ends_with(&format!("(table shop.orders, shop {}…, number 8)", "x".repeat(60))),
        "{update}"
    );
    // With several keys the duplicate one is unknown.
    let unique =
        cluster.create_table(new("shop.unique").unique_index("v", &["v"])).expect("a table can be created");
    cluster.insert(&unique, &row(1)).expect("an insert succeeds");
    let other = Record::new([("shop", Value::from("Bonn")), ("number", 1.into()), ("v", 1.into())]);
    let twice = cluster.insert(&unique, &other).expect_err("its v is there").to_string();
    assert!(
        twice.contains("table shop.unique, shop Bonn, number 1; it may be the key of a unique index"),
        "{twice}"
    );
}

#[test]
fn tables_are_sorted_and_measured() {
    use vinga::{ColumnType, NewTable, Record, Value};
    let node = Node::start(&["ThreadConfig=ldm={count=2},tc,recv,main"]);
    let cluster = vinga::blocking::Cluster::connect(&node.address).expect("the node admits us");
    for name in ["b.t", "a.z", "a.full"] {
        let new = NewTable::new(name)
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .column("v", ColumnType::VarChar { bytes_max: 1000 })
            .primary_key(&["id"])
            .ordered_index("by_v", &["v"]);
        cluster.create_table(new).expect("a table can be created");
    }
    let full = cluster.table("a.full").expect("it is there");
    for id in 0..2000u64 {
        let row = Record::new([("id", Value::from(id)), ("v", Value::from("x".repeat(500).as_str()))]);
        cluster.insert(&full, &row).expect("an insert succeeds");
    }
    let tables = json(&["admin", "tables", "--json", "--connect", &node.address]);
    let names: Vec<_> = tables.as_array().expect("a list").iter().map(|table| &table["table"]).collect();
    assert_eq!(names, ["a.full", "a.z", "b.t"]);
    assert_eq!((&tables[0]["rows"], &tables[1]["rows"]), (&2000.into(), &0.into()));
    let bytes = |field: &str| tables[0][field].as_u64().expect("a number");
    // 2000 rows of 500 bytes; an index entry has a few bytes of each value.
    assert!((1_000_000..3_000_000).contains(&bytes("row_bytes")), "{tables}");
    assert!((20_000..1_000_000).contains(&bytes("index_bytes")), "{tables}");
}

#[test]
fn all_errors_of_a_configuration_are_reported_together() {
    let file = std::env::temp_dir().join(format!("vinga-errors-{}.ini", std::process::id()));
    let text = "[data]\nDataMemroy=1G\nServerPort=x\n[foo]\nbar=1\n[data default]\nLogLevel=loud\n";
    std::fs::write(&file, text).expect("a file can be written");
    let config = file.to_str().expect("a plain path");
    for command in [&["data", "--show"][..], &["up", "--folder", "/nowhere/vinga"]] {
        let (ok, text) = run(&[command, &["--config", config, "--set", "colour=blue"]].concat());
        assert!(!ok && text.lines().count() == 6 && text.contains("5 errors in the configuration"), "{text}");
        for piece in [
            "line 2",
            "DataMemory?",
            "line 3",
            "line 4: '[foo]'",
            "[data default], [ndbd default]",
            "line 7",
            "error, warning, info or debug",
            "'colour'",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
    }
    std::fs::remove_file(&file).expect("it is ours");
    let (ok, text) = run(&["data", "--show", "--config", config]);
    assert!(!ok && text.contains("cannot read the configuration file"), "{text}");
    let (ok, text) = run(&["data", "--show", "--set", "DataMemory=10T"]);
    assert!(ok && text.contains("warning: ") && text.contains("more than the"), "{text}");
    let (ok, text) = run(&["data", "--show", "--set", "=1"]);
    assert!(!ok && text.contains("expected NAME=VALUE"), "{text}");
}

#[test]
fn the_log_has_the_level_that_is_set() {
    for (level, has_info, has_debug) in
        [("warning", false, false), ("info", true, false), ("debug", true, true)]
    {
        // Two threads own connections: a client has a second one, which is logged only at level debug.
        let two = "ThreadConfig=ldm={count=2},tc,recv={count=2},main";
        let node = Node::start(&[&format!("LogLevel={level}"), two]);
        let (ok, text) = run(&["admin", "tables", "--connect", &node.address]);
        assert!(ok, "{text}");
        // The threads that own the connections log them behind the answer to the client.
        while has_debug && !node.log().contains(" debug listener") {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let log = node.log();
        let info = log.contains("is ready on") && log.contains(env!("CARGO_PKG_VERSION"));
        assert_eq!((info, log.contains(" debug listener")), (has_info, has_debug), "{level}: {log}");
    }
    let (ok, text) = run(&["data", "--show", "--log-level", "loud"]);
    assert!(!ok && text.contains("error, warning, info or debug"), "{text}");
}

#[test]
fn clients_that_leave_are_not_called_failed() {
    let node = Node::start(&[]);
    assert!(run(&["admin", "nodes", "--connect", &node.address]).0);
    while !node.log().contains("has disconnected") {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(!node.log().contains("failed"), "{}", node.log());
}

#[test]
fn the_version_names_its_commit_if_it_is_known() {
    let (ok, text) = run(&["--version"]);
    assert!(ok && text.starts_with(&format!("vinga {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let head = std::process::Command::new("git").args(["-C", root, "rev-parse", "HEAD"]).output();
    let top = std::process::Command::new("git").args(["-C", root, "rev-parse", "--show-prefix"]).output();
    let is_checkout = top.is_ok_and(|top| top.status.success() && top.stdout == b"\n");
    if let Ok(head) = head
        && is_checkout
    {
        let head = String::from_utf8_lossy(&head.stdout).into_owned();
        assert!(text.contains(&format!("({})", &head[..10])), "{text}: {head}");
    }
}

#[test]
fn shells_and_manuals_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (ok, text) = run(&["completions", shell]);
        assert!(ok && text.contains("flexasynch") && text.contains("sql-nodes"), "{shell}");
    }
    let (ok, text) = run(&["completions", "tcsh"]);
    assert!(!ok && text.contains("bash"), "{text}");
    let folder = std::env::temp_dir().join(format!("vinga-man-{}", std::process::id()));
    let (ok, text) = run(&["man", folder.to_str().expect("a plain path")]);
    assert!(
        ok && folder.join("vinga.1").exists() && folder.join("vinga-admin-describe.1").exists(),
        "{text}"
    );
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn lists_take_commas_and_blanks() {
    for parts in [&["spike,start"][..], &["spike", "start"]] {
        let arguments = [&["bench", "all", "--parts"][..], parts, &["--connect", "127.0.0.1:1"]].concat();
        let (ok, text) = run(&arguments);
        // The list was read: the address is what is refused.
        assert!(!ok && text.contains("it takes neither --connect"), "{text}");
    }
    let (ok, text) = run(&["bench", "all", "--parts", "spike", "nothing"]);
    assert!(!ok && text.contains("'nothing'") && text.contains("hostile"), "{text}");
}

#[test]
fn many_tables_need_no_setting() {
    use vinga::{ColumnType, NewTable};
    let node = Node::start(&[]);
    let cluster = vinga::blocking::Cluster::connect(&node.address).expect("the node admits us");
    for number in 0..400 {
        let new = NewTable::new(format!("many.t{number}"))
            .column("id", ColumnType::Integer { bytes: 8, signed: false })
            .column("n", ColumnType::Integer { bytes: 8, signed: false })
            .primary_key(&["id"])
            .ordered_index("by_n", &["n"])
            .unique_index("n", &["n"]);
        cluster.create_table(new).unwrap_or_else(|error| panic!("table {number}: {error}"));
    }
    assert_eq!(
        json(&["admin", "tables", "--json", "--connect", &node.address]).as_array().map(Vec::len),
        Some(400)
    );
}
