//! Databases that users create here are created at the data nodes: a thread that looks for them, for the server tells
//! nobody. If the data nodes can't be asked then, the first table in a database does it.

use crate::node::Node;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vinga::ErrorCode;

/// How often it looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What the thread does.
pub fn run(node: &Arc<Node>) {
    // Those that are there already were known before, or have no tables of data nodes.
    node.server.new_databases();
    while !node.is_stopping() {
        thread::sleep(LOOK_PAUSE);
        for (name, options) in node.server.new_databases() {
            share(node, &name, &options);
        }
    }
}

fn share(node: &Arc<Node>, name: &str, options: &[u8]) {
    // Most are there: they were made because another SQL node has created them.
    let failure = match node.cluster(0, None) {
        Ok((_, cluster)) => match cluster.block_on(cluster.as_async().create_database(name, options)) {
            Ok(()) => return,
            Err(error) if error.code() == ErrorCode::DatabaseExists => return,
            Err(error) => node.failure(&error),
        },
        Err(failure) => failure,
    };
    node.server.warn(&format!("other SQL nodes do not learn of database {name} yet: {}", failure.text));
}
