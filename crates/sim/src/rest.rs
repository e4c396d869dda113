//! What must hold when everything has come to its end.
//!
//! Nothing of any transaction or scan is left; primaries are shared among the nodes of each group; the replicas of each
//! partition hold the same bytes under the same row ids with the same epochs; everybody has the same definitions, and
//! no schema lock or write fence is left; each hash index leads to exactly the rows that there are; unique indexes hold
//! exactly what follows from the rows of their tables; and when all tables are dropped, all pages are free.

use crate::thread::ThreadId;
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use vinga_base::schema::IndexKind;
use vinga_base::{NodeId, PartitionId, RowId};
use vinga_datamanager::DataManager;
use vinga_dictionary::Dictionary;
use vinga_wire::dictionary::{TableRecord, VersionedTable};
use vinga_wire::view::ClusterView;
use vinga_workloads::step::TableRef;
use vinga_workloads::workload::Contents;

/// A row's bytes and epoch in one replica.
type Replica = BTreeMap<RowId, (u64, Vec<u8>)>;

/// A partition of a table: id, birth, number.
type Partition = (u32, u64, PartitionId);

/// A hidden row of a unique index: table, version, image.
type HiddenRow = (u32, u64, Vec<u8>);

impl World {
    /// The data managers of all live nodes, with the views that they are in.
    fn data_managers(&self) -> impl Iterator<Item = (u8, &ClusterView, &DataManager)> {
        let live = self.threads.iter().filter(|thread| thread.is_alive);
        live.flat_map(|thread| {
            let (host, view) = (thread.executor.host(), thread.executor.view());
            host.data_managers().iter().map(move |data_manager| (thread.node, &**view, data_manager))
        })
    }

    /// The dictionary of the president's node.
    fn dictionary(&self) -> &Dictionary {
        let own = self.threads.iter().filter(|thread| thread.node == self.president());
        let dictionary = own.into_iter().find_map(|thread| thread.executor.host().dictionary());
        dictionary.expect("the president has one")
    }

    /// All dictionaries, with their nodes.
    fn dictionaries(&self) -> impl Iterator<Item = (u8, &Dictionary)> {
        let live = self.threads.iter().filter(|thread| thread.is_alive);
        live.filter_map(|thread| Some((thread.node, thread.executor.host().dictionary()?)))
    }

    /// Whether nothing is under way anywhere.
    pub(crate) fn is_at_rest(&self) -> bool {
        let live = || self.threads.iter().filter(|thread| thread.is_alive);
        // A node may stop in the very step after which this is asked: then it is to be started again first.
        live().next().is_some()
            && !self.is_anybody_starting()
            && self.stops.is_idle()
            && self.operator.is_idle()
            && self.clients_are_idle()
            && !self.dictionary().is_changing()
            && self.dictionaries().all(|(_, dictionary)| dictionary.noted().is_none())
            // Nobody waits until they have received that a write fence is lifted, or the schema lock released.
            && self.dictionaries().all(|(_, dictionary)| dictionary.lock_holder().is_none())
            && self.dictionaries().all(|(_, other)| other.fences().eq(self.dictionary().fences()))
            && self.has_agreed()
            && live().all(|thread| thread.executor.view().hand_overs().is_empty())
            && live().all(|thread| World::is_placed(thread.executor.view()))
            && live().all(|thread| thread.is_idle() && thread.executor.host().is_at_rest())
            && live().all(|thread| {
                let mut coordinators = thread.executor.host().coordinators().iter();
                // Likewise.
                coordinators.all(|c| c.unconfirmed_outcomes() == 0 && c.tables().all(|(_, f)| f.is_none()))
            })
    }

    /// Names the tables that there are, those too that no client has been answered about.
    pub(crate) fn name_tables(&mut self) {
        let named: Vec<(u64, TableRef)> = self
            .dictionary()
            .tables()
            .filter_map(|table| {
                let at = self.shapes.iter().position(|shape| shape.name() == table.definition.name)?;
                Some((table.birth, TableRef(at as u16)))
            })
            .collect();
        self.names.extend(named);
    }

    /// Whether clients have been answered about the versions of all tables that there are.
    pub(crate) fn knows_all_tables(&self) -> bool {
        self.dictionary().tables().all(|table| self.names.contains_key(&table.birth))
    }

    /// Why it is not at rest, for people.
    pub(crate) fn describe_unrest(&self) -> String {
        let mut text = self.describe_sessions();
        if !self.operator.is_idle() {
            text += "a request to reorganize is not answered; ";
        }
        if self.dictionary().is_changing() {
            text += "a schema change is under way; ";
        }
        for (node, dictionary) in self.dictionaries() {
            if let Some(api) = dictionary.lock_holder() {
                text += &format!("node {node}: API node {api} has the schema lock; ");
            }
        }
        for (at, thread) in self.threads.iter().enumerate().filter(|(_, thread)| thread.is_alive) {
            let hand_overs = thread.executor.view().hand_overs();
            if !hand_overs.is_empty() {
                text += &format!("{:?} knows of primaries to be handed over: {hand_overs:?}; ", ThreadId(at));
            }
            let view = thread.executor.view();
            if !World::is_placed(view) {
                let (next, placing) = (view.next_placement(), view.placing());
                text += &format!("{:?} knows of partitions that move: {next:?}, {placing:?}; ", ThreadId(at));
            }
            if !thread.is_idle() {
                let parked = thread.executor.parked_bytes();
                text += &format!("{:?} has not handled all ({parked} bytes parked); ", ThreadId(at));
            }
            for data_manager in thread.executor.host().data_managers() {
                if !data_manager.is_at_rest() {
                    text +=
                        &format!("node {}: data manager: {}; ", thread.node, data_manager.describe_rest());
                }
            }
            for coordinator in thread.executor.host().coordinators() {
                if coordinator.tables().any(|(_, fence)| fence.is_some()) {
                    text += &format!("node {}: a coordinator thinks that a table is fenced; ", thread.node);
                }
                if !coordinator.is_at_rest() || coordinator.unconfirmed_outcomes() > 0 {
                    text += &format!(
                        "node {}: coordinator: {:?} transactions, {} unconfirmed outcomes; ",
                        thread.node,
                        coordinator.transaction_pool(),
                        coordinator.unconfirmed_outcomes()
                    );
                }
            }
        }
        text
    }

    /// Each fragment has the ordered indexes that its table's definition names.
    fn compare_ordered_indexes(&self, data_manager: &DataManager) -> Result<(), String> {
        for ((table, partition), found) in data_manager.inspect_ordered_indexes() {
            let record = self.dictionary().tables().find(|record| record.table == table);
            let indexes = record.into_iter().flat_map(|record| &record.definition.indexes);
            let ordered = indexes.filter(|index| index.kind == IndexKind::Ordered);
            let defined: BTreeSet<u16> = ordered.map(|index| index.id).collect();
            if found != defined {
                return Err(format!(
                    "table {table}, partition {partition}: ordered indexes {found:?}, {defined:?} are defined"
                ));
            }
        }
        Ok(())
    }

    /// Compares the replicas and returns the rows of their primaries.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn contents(&self) -> Result<Contents, String> {
        let mut replicas: BTreeMap<Partition, Vec<(u8, bool, Replica)>> = BTreeMap::new();
        for (node, view, data_manager) in self.data_managers() {
            data_manager.inspect_indexes().map_err(|what| format!("node {node}: {what}"))?;
            self.compare_ordered_indexes(data_manager).map_err(|what| format!("node {node}: {what}"))?;
            let mut own: BTreeMap<Partition, Replica> = BTreeMap::new();
            for place in data_manager.inspect_fragments() {
                own.insert(place, Replica::new());
            }
            data_manager.inspect_rows(|row| {
                let replica = own.get_mut(&(row.table, row.birth, row.partition)).expect("it has a fragment");
                replica.insert(row.row, (row.epoch.0, row.image));
            });
            for ((table, version, partition), replica) in own {
                if !view.partition(partition).chain.contains(NodeId(node)) {
                    // It holds no partition, and nothing is left of what it has held.
                    match replica.is_empty() {
                        true => continue,
                        false => {
                            return Err(format!(
                                "node {node} has rows of partition {partition}, of which it is no replica"
                            ));
                        }
                    }
                }
                let is_primary = data_manager.is_primary_of(view, partition);
                replicas.entry((table, version, partition)).or_default().push((node, is_primary, replica));
            }
        }
        let hidden = self.hidden_tables();
        let mut found = BTreeSet::new();
        let mut contents = Contents::default();
        for ((table, version, partition), replicas) in &replicas {
            let Some((first, _, rows)) = replicas.first() else { continue };
            if replicas.iter().filter(|(_, is_primary, _)| *is_primary).count() != 1 {
                return Err(format!("table {table}, partition {partition}: not one primary"));
            }
            for (node, _, other) in &replicas[1..] {
                if let Some(what) = difference(rows, other) {
                    return Err(format!(
                        "table {table} version {version}, partition {partition}: nodes {first} and {node} differ: {what}"
                    ));
                }
            }
            if hidden.contains(&(*table, *version)) {
                found.extend(rows.values().map(|(_, image)| (*table, *version, image.clone())));
                continue;
            }
            let name = self.names.get(version).ok_or_else(|| format!("nobody knows version {version}"))?;
            let shape = &self.shapes[usize::from(name.0)];
            if !shape.is_recorded() {
                continue;
            }
            contents.versions.insert(*name, self.changes.rows_of(*version));
            for (row, (epoch, image)) in rows {
                let (key, value) = shape.read_image(image)?;
                if contents.rows.insert((*name, key), (value, *epoch)).is_some() {
                    return Err(format!("table {table}: row {row} has key {key} that another row has"));
                }
            }
        }
        self.check_unique(&found)?;
        Ok(contents)
    }

    /// The hidden tables of unique indexes, with their versions.
    fn hidden_tables(&self) -> BTreeSet<(u32, u64)> {
        self.data_managers().flat_map(|(.., data_manager)| data_manager.inspect_hidden_tables()).collect()
    }

    /// Compares the hidden rows of unique indexes with those that follow from the rows of their tables.
    fn check_unique(&self, found: &BTreeSet<HiddenRow>) -> Result<(), String> {
        let mut expected = BTreeSet::new();
        let mut twice = None;
        for (_, view, data_manager) in self.data_managers() {
            let fragments: BTreeSet<PartitionId> =
                data_manager.inspect_fragments().map(|(.., partition)| partition).collect();
            for partition in
                fragments.into_iter().filter(|&partition| data_manager.is_primary_of(view, partition))
            {
                data_manager.inspect_projection(partition, |table, version, image| {
                    if let Some(row) = expected.replace((table, version, image)) {
                        twice = Some(row);
                    }
                });
            }
        }
        if let Some((table, _, image)) = twice {
            return Err(format!("two rows belong to row {image:02x?} of hidden table {table}"));
        }
        if let Some((table, _, image)) = expected.difference(found).next() {
            return Err(format!("hidden table {table} lacks row {image:02x?}, which a row of its table has"));
        }
        if let Some((table, _, image)) = found.difference(&expected).next() {
            return Err(format!("hidden table {table} has row {image:02x?}, which no row of its table has"));
        }
        Ok(())
    }

    /// Whether everybody has the tables that the dictionary has, in the same versions, and no write fence is left.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn check_definitions(&self) -> Result<(), String> {
        let live = || self.threads.iter().filter(|thread| thread.is_alive);
        let dictionary = self.dictionary();
        if let Some(what) = self.late_schema_event() {
            return Err(what.clone());
        }
        if let Some((table, api)) = dictionary.fences().next() {
            return Err(format!(
                "table {table} is fenced by API node {api}, which has no session that wants it"
            ));
        }
        let expected: BTreeSet<VersionedTable> = dictionary.tables().flat_map(TableRecord::all).collect();
        for (node, other) in self.dictionaries() {
            let differs = [
                ("tables", !other.tables().eq(dictionary.tables())),
                ("databases", !other.databases().eq(dictionary.databases())),
                ("write fences", !other.fences().eq(dictionary.fences())),
            ];
            if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
                return Err(format!("node {node}: the dictionary has other {what} than the president's"));
            }
        }
        for thread in live() {
            let node = thread.node;
            for coordinator in thread.executor.host().coordinators() {
                let tables: BTreeMap<_, _> = coordinator.tables().collect();
                if let Some((table, api)) = tables.iter().find_map(|(table, fence)| Some((table, (*fence)?)))
                {
                    return Err(format!("node {node}: a coordinator thinks that {api} has fenced {table:?}"));
                }
                if !tables.keys().eq(&expected) {
                    return Err(format!("node {node}: a coordinator has {tables:?} instead of {expected:?}"));
                }
            }
            for data_manager in thread.executor.host().data_managers() {
                let tables: BTreeMap<_, _> = data_manager.tables().collect();
                if !tables.keys().eq(&expected) || tables.values().any(Option::is_some) {
                    return Err(format!(
                        "node {node}: a data manager has {tables:?} instead of {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether all pages are free, once all tables are dropped.
    ///
    /// # Errors
    /// Who holds some.
    pub(crate) fn check_pages(&self) -> Result<(), String> {
        for (node, _, data_manager) in self.data_managers() {
            let owned = data_manager.pages_owned();
            if owned > 0 {
                return Err(format!(
                    "all tables are dropped, but a data manager of node {node} holds {owned} pages"
                ));
            }
        }
        Ok(())
    }
}

fn difference(one: &Replica, other: &Replica) -> Option<String> {
    for (row, content) in one {
        match other.get(row) {
            None => return Some(format!("row {row} is missing in the second")),
            Some(same) if same == content => {}
            Some((epoch, image)) => {
                return Some(format!(
                    "row {row} is {image:02x?} in epoch {epoch} in the second, {:02x?} in epoch {} in the first",
                    content.1, content.0
                ));
            }
        }
    }
    other.keys().find(|row| !one.contains_key(row)).map(|row| format!("row {row} is missing in the first"))
}
