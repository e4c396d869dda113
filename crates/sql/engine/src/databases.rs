//! Databases that users create or alter here are created and altered at the data nodes: a thread that looks for them, for
//! the server tells nobody. If the data nodes can't be asked then, the first table in a new database does it.

use crate::node::Node;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vinga::ErrorCode;
use vinga::blocking::Cluster;

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

/// Creates a database at the data nodes, or gives it these options. Most have them: another SQL node has told them.
async fn tell(cluster: &Cluster, name: &str, options: &[u8]) -> vinga::Result<()> {
    let cluster = cluster.as_async();
    match cluster.create_database(name, options).await {
        Err(error) if error.code() == ErrorCode::DatabaseExists => {}
        created => return created,
    }
    if cluster.database(name).await?.attachment == options {
        return Ok(());
    }
    cluster.alter_database(name, options).await
}

fn share(node: &Arc<Node>, name: &str, options: &[u8]) {
    let failure = match node.cluster(0, None) {
        Ok((_, cluster)) => match cluster.block_on(tell(&cluster, name, options)) {
            Ok(()) => return,
            Err(error) => node.failure(&error),
        },
        Err(failure) => failure,
    };
    node.server.warn(&format!(
        "other SQL nodes do not learn of database {name}, or its options, yet: {}",
        failure.text
    ));
}
