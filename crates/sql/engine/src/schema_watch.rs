//! Follows the changes that other SQL nodes make to tables and databases: a thread receives schema events and makes the
//! server do the same, or forget its cached state.
//!
//! The node that changes the schema waits until this node has confirmed; so when a `DROP` or `ALTER` returns on any
//! node, no statement that begins here afterwards uses the old definition. Statements that are already running get
//! `StaleTable` from the data nodes. The thread has a connection of its own: a thread that waits on a connection reads
//! from it, and on a connection of the pool it would come between statements and their answers.
//!
//! Databases of the data nodes are created here, with their options. This thread changes nothing at the data nodes:
//! others wait for its confirmation, so both would be delayed if it waited for a change of its own.

use crate::cached_tables;
use crate::definition::OWN_DATABASE;
use crate::node::Node;
use std::sync::Arc;
use std::time::Duration;
use vinga::blocking::Cluster;
use vinga::{SchemaEvent, SchemaEventKind, SchemaNews};

/// How long the thread waits for schema events before it checks whether it has to end.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Pause before it subscribes again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);

/// The main function of the thread.
pub fn run(node: &Arc<Node>) {
    while !node.is_stopping() {
        // The pool is connected first, as it reports why a connection fails.
        if node.cluster(0, None).is_ok()
            && let Ok(cluster) = Cluster::connect(node.connectstring())
            && let Ok(mut events) = cluster.as_async().schema_events()
        {
            let mut has_files = false;
            while !node.is_stopping() {
                if has_files {
                    has_files = !node.server.remove_definitions();
                }
                // The API node may be another one after an outage.
                node.note_news_node(cluster.node().0);
                let news = cluster.block_on(events.next_within(LOOK_PAUSE));
                let Some((id, news)) = news else { continue };
                match news {
                    SchemaNews::Everything { incarnation } => {
                        let is_same = node.become_incarnation(incarnation);
                        node.sayable.forget_all();
                        cached_tables::forget_stale(node, &cluster, is_same);
                        has_files = !node.server.remove_definitions();
                        for name in cluster.block_on(cluster.as_async().databases()).unwrap_or_default() {
                            make_database(node, &cluster, &name);
                        }
                        node.sharing.meet(cluster.database_id());
                        node.sweeper.want();
                    }
                    SchemaNews::Changed(event) => follow(node, &cluster, &event),
                }
                events.confirm(id);
            }
        }
        std::thread::sleep(SUBSCRIBE_PAUSE);
    }
}

fn follow(node: &Arc<Node>, cluster: &Cluster, event: &SchemaEvent) {
    match event.kind {
        SchemaEventKind::CreateDatabase | SchemaEventKind::AlterDatabase => {
            make_database(node, cluster, &event.name);
        }
        SchemaEventKind::DropDatabase => {
            if !node.is_own(event.by) {
                node.server.remove_database(&event.name);
            }
        }
        SchemaEventKind::CreateTable
        | SchemaEventKind::DropTable
        | SchemaEventKind::RenameTable
        | SchemaEventKind::TruncateTable
        | SchemaEventKind::AlterTable => {
            if has_removed_rows(event.kind) {
                node.sweeper.want();
            }
            node.sayable.forget(&event.name);
            node.sayable.forget(&event.new_name);
            // A statement of this SQL node holds the table's lock, and the server forgets the table by itself.
            if !node.is_own(event.by) {
                if event.kind == SchemaEventKind::DropTable {
                    node.server.drop_triggers(&event.name);
                }
                node.server.forget(&event.name);
                // After a rename: the table that had this name may have been replaced.
                if !event.new_name.is_empty() {
                    node.server.forget(&event.new_name);
                }
            }
        }
    }
}

/// Whether a table may have gone by such a change; by a rename one whose name was taken over.
fn has_removed_rows(kind: SchemaEventKind) -> bool {
    matches!(kind, SchemaEventKind::DropTable | SchemaEventKind::RenameTable | SchemaEventKind::TruncateTable)
}

fn make_database(node: &Arc<Node>, cluster: &Cluster, name: &str) {
    if name != OWN_DATABASE
        && let Ok(database) = cluster.block_on(cluster.as_async().database(name))
    {
        node.server.make_database(name, &database.attachment);
    }
}
