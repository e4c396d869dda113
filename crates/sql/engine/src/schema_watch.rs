//! What other SQL nodes do to tables: a thread that hears of it and lets the server forget what it knows.
//!
//! Whoever changes the schema waits until this node has confirmed; so when a `DROP` or `ALTER` returns anywhere, no statement
//! that begins here afterwards uses the old definition. Statements that are under way meet `StaleTable` at the data nodes.
//! It has a connection of its own: who waits on a connection reads from it, and on one of the pool it would stand between
//! statements and their answers.
//!
//! A database of which this server has no folder is given one as soon as a table is in it.

use crate::definition::OWN_DATABASE;
use crate::node::Node;
use std::sync::Arc;
use std::time::Duration;
use vinga::SchemaNews;
use vinga::blocking::Cluster;

/// How long the thread waits for news before it looks whether it is to end.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Pause before it subscribes again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);

/// What the thread does.
pub fn run(node: &Arc<Node>) {
    while !node.is_stopping() {
        // The pool is connected first: it says what is wrong if that does not work.
        if node.cluster(0, None).is_ok()
            && let Ok(cluster) = Cluster::connect(node.connectstring())
            && let Ok(mut events) = cluster.as_async().schema_events()
        {
            while !node.is_stopping() {
                let news = cluster.block_on(events.next_within(LOOK_PAUSE));
                let Some((id, news)) = news else { continue };
                match news {
                    SchemaNews::Everything { incarnation } => {
                        node.become_incarnation(incarnation);
                        node.forget_tables(|_| true);
                        if let Ok(names) = cluster.tables() {
                            names.iter().for_each(|name| make_database(node, name));
                        }
                    }
                    SchemaNews::Changed(event) => {
                        // Our own statement holds the table's lock, and the server forgets by itself.
                        if !node.is_own(event.by) {
                            node.forget_tables(|name| name == event.name || name == event.new_name);
                            node.server.forget(&event.name);
                        }
                        let made = if event.new_name.is_empty() { &event.name } else { &event.new_name };
                        make_database(node, made);
                    }
                }
                events.confirm(id);
            }
        }
        std::thread::sleep(SUBSCRIBE_PAUSE);
    }
}

fn make_database(node: &Arc<Node>, name: &str) {
    if let Some((database, table)) = name.split_once('.')
        && database != OWN_DATABASE
        && !table.starts_with('$')
    {
        node.server.make_database(database);
    }
}
