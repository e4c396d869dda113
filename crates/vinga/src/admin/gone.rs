//! Data nodes that belong to a cluster and are not in it: since when, and why.
//!
//! Those without which the cluster has gone on are known by the others. Which ones there should be stands in the
//! configuration, and of one whose folder is on this machine its files say how it has ended.

use super::place::{Configured, ConfiguredData};
use super::show::{Node, number_in, text_in};
use super::status::{self, State};
use std::collections::BTreeMap;
use vinga::blocking::Cluster;
use vinga::{InfoRows, InfoTable};

/// What a member says of a data node without which it has gone on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    pub group: Option<u64>,
    pub address: String,
    /// When it was given up, in seconds since 1970.
    pub since: Option<u64>,
    pub why: String,
}

/// Those that the members have lost, by their ids; none if nobody says it.
pub fn lost(cluster: &Cluster) -> BTreeMap<u64, Lost> {
    cluster.info(InfoTable::LostNodes).map(|rows| read(&rows)).unwrap_or_default()
}

/// The data nodes that are configured, or that the members have lost, but those that are among `nodes`.
pub fn all(nodes: &[Node], lost: &InfoRows, configured: Option<&Configured>) -> Vec<Node> {
    let is_member = |id: u64| nodes.iter().any(|node| node.kind == "data" && node.id == id);
    let mut lost = read(lost);
    lost.retain(|&id, _| !is_member(id));
    let configured = configured.map_or(&[][..], |configured| &configured.data);
    let missing = configured.iter().filter(|one| !is_member(u64::from(one.node)));
    let mut all: Vec<Node> = missing.map(|one| look(one, lost.remove(&u64::from(one.node)))).collect();
    all.extend(lost.into_iter().map(|(id, lost)| show(id, NOT_CONNECTED.to_owned(), lost)));
    all
}

const NOT_CONNECTED: &str = "not connected";

/// By their ids. What the first one says of a data node counts: they may have lost it a moment apart.
fn read(rows: &InfoRows) -> BTreeMap<u64, Lost> {
    let mut all = BTreeMap::new();
    for row in rows.rows.iter().filter(|row| !InfoRows::is_note(row)) {
        let number = |column| number_in(rows, row, column);
        let text = |column| text_in(rows, row, column);
        let Some(id) = number("lost_node") else { continue };
        let since = number("since").filter(|&since| since != 0);
        let lost = Lost { group: number("node_group"), address: text("address"), since, why: text("why") };
        all.entry(id).or_insert(lost);
    }
    all
}

/// One that the configuration has. `lost`: what the others say of it, if anything.
fn look(one: &ConfiguredData, lost: Option<Lost>) -> Node {
    let id = u64::from(one.node);
    let lost = match (lost, &one.folder) {
        // The others know more than can be found out from here.
        (Some(lost), None) => return show(id, NOT_CONNECTED.to_owned(), lost),
        (lost, _) => lost,
    };
    let status = status::look_at_data(one, None, None);
    let here = status.state.why().or(status.state.phase()).map(str::to_owned);
    let known = lost.unwrap_or_else(|| Lost {
        group: status.group,
        address: status.address.clone(),
        // When its start has come so far.
        since: status.since.filter(|_| matches!(status.state, State::Starting(_))),
        why: String::new(),
    });
    let parts = [Some(known.why.clone()).filter(|why| !why.is_empty()), here];
    let why = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let address = if known.address.is_empty() { status.address } else { known.address };
    let group = known.group.or(status.group);
    show(id, status.state.name().to_owned(), Lost { group, address, why, ..known })
}

fn show(id: u64, state: String, lost: Lost) -> Node {
    let Lost { group, address, since, why } = lost;
    let why = Some(why).filter(|why| !why.is_empty());
    Node { id, kind: "data".to_owned(), state, group, address, since, why, ..Node::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga::InfoValue;
    use vinga_runtime::node_folder::NodeFolder;

    fn rows(lost: &[(u64, u64, u64, &str)]) -> InfoRows {
        let columns = ["node_id", "lost_node", "node_group", "address", "since", "why"];
        let row = |&(reporter, id, since, why): &(u64, u64, u64, &str)| {
            let number = InfoValue::Number;
            let text = |text: &str| InfoValue::Text(text.to_owned());
            vec![number(reporter), number(id), number(0), text(&format!("h:{id}")), number(since), text(why)]
        };
        let rows = lost.iter().map(row).collect();
        InfoRows { columns: columns.map(str::to_owned).into(), rows, ..InfoRows::default() }
    }

    fn member(id: u64) -> Node {
        Node { id, kind: "data".to_owned(), ..Node::default() }
    }

    #[test]
    fn those_that_the_members_have_lost_are_shown_without_a_configuration() {
        let lost =
            rows(&[(1, 2, 50, "silent"), (1, 4, 0, "ended"), (3, 2, 51, "closed"), (3, 1, 9, "before")]);
        let gone = all(&[member(1), member(3)], &lost, None);
        let shown: Vec<_> = gone.iter().map(|node| (node.id, node.since, node.why.as_deref())).collect();
        // Node 1 has come again.
        assert_eq!(shown, [(2, Some(50), Some("silent")), (4, None, Some("ended"))]);
        assert_eq!((gone[0].group, gone[0].address.as_str()), (Some(0), "h:2"));
        assert!(gone.iter().all(|node| node.state == "not connected"));
    }

    #[test]
    fn those_that_are_configured_are_shown_with_what_is_known_of_them() {
        let place = tempfile::tempdir().expect("a folder");
        let configured = |node: u8, is_here: bool| ConfiguredData {
            node,
            group: Some(1),
            address: Some(format!("key=k,c:{node}")),
            folder: is_here.then(|| NodeFolder::new(place.path(), node)),
        };
        let data = vec![configured(1, true), configured(2, true), configured(3, false), configured(4, true)];
        let configured = Configured { data, management: Vec::new(), named: None };
        let gone = all(&[member(1)], &rows(&[(1, 2, 50, "ended"), (1, 3, 51, "silent")]), Some(&configured));
        let shown: Vec<_> = gone.iter().map(|node| (node.id, node.since, node.why.as_deref())).collect();
        assert_eq!(
            shown,
            [
                (2, Some(50), Some("ended; it does not run")),
                (3, Some(51), Some("silent")),
                (4, None, Some("it does not run"))
            ]
        );
        assert_eq!((gone[2].group, gone[2].address.as_str()), (Some(1), "c:4"));
    }
}
