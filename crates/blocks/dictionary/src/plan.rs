//! What a schema change consists of, and whether it may be carried out.

use crate::databases::{DATABASES_MAX, database_of};
use crate::events::event;
use crate::partitions::Partitioning;
use crate::{Dictionary, Requester};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use vinga_base::schema::{ATTACHMENT_BYTES_MAX, Durability, IndexKind, TableDefinition, check_database_name};
use vinga_base::{NodeId, TableVersion};
use vinga_kernel::{Context, InjectedBug};
use vinga_wire::dictionary::{TableRecord, UniqueTable, VersionedTable};
use vinga_wire::schema::{Database, SchemaChange, SchemaEvent, SchemaEventKind};
use vinga_wire::schema_round::{DatabaseStep, NotedChange};
use vinga_wire::view::ClusterView;
use vinga_wire::{ErrorCode, cold};

/// Bytes of a definition in a signal, at most: with what else travels beside it, it fits every frame.
const DEFINITION_BYTES_MAX: usize = 120_000;

/// What an API node wants.
#[derive(Debug)]
pub enum ChangeRequest {
    /// A new table.
    Create(TableDefinition),
    /// No longer the table of this name.
    Drop(String),
    /// Something else.
    Change(SchemaChange),
}

/// Why a change was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    pub code: ErrorCode,
    pub detail: String,
}

/// A change of a table, of a database, or of both.
#[derive(Default, Debug)]
pub struct Plan {
    /// The table as it was.
    pub before: Option<TableRecord>,
    /// The table as it is going to be.
    pub after: Option<TableRecord>,
    /// Another table, whose place it takes.
    pub replaced: Option<TableRecord>,
    /// Storage that has to be made.
    pub made: Vec<VersionedTable>,
    /// Storage that is no longer wanted.
    pub gone: Vec<VersionedTable>,
    /// Ordered indexes that have to be built from the rows.
    pub ordered: Vec<u16>,
    /// Whether there must be no rows.
    pub must_be_empty: bool,
    /// Who is going to be the only one to change the table's rows. Nothing else changes then.
    pub fence: Option<NodeId>,
    /// What becomes of a database.
    pub database: Option<DatabaseStep>,
    /// What subscribers are sent.
    pub events: Vec<SchemaEvent>,
}

impl Plan {
    /// The table's rows stay where they are.
    pub fn is_in_place(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.table == after.table,
            _ => false,
        }
    }

    /// What other dictionaries have to know of it; `version` is the next one that is given.
    pub fn noted(&self, version: TableVersion) -> NotedChange {
        let id = |record: &Option<TableRecord>| record.as_ref().map(|record| record.table);
        NotedChange {
            before: id(&self.before),
            after: self.after.clone(),
            replaced: id(&self.replaced),
            made: self.made.clone(),
            gone: self.gone.clone(),
            fence: self.fence.map_or(0, |api| api.0),
            database: self.database.clone(),
            version_next: version.0,
        }
    }

    /// Whether a name belongs to the table, before or after.
    pub fn concerns(&self, name: &str) -> bool {
        let records = [&self.before, &self.after].into_iter().flatten();
        records.into_iter().any(|record| record.definition.name == name)
    }
}

type Planned = Result<Plan, Refused>;

pub fn refuse<T>(code: ErrorCode, detail: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, detail: detail.into() })
}

impl Dictionary {
    /// Makes a plan of a request whose turn has come. Ids that it needs are in use from now on.
    pub(crate) fn plan(&mut self, cx: &Context<'_>, requester: Requester, change: ChangeRequest) -> Planned {
        let view = cx.view();
        match change {
            ChangeRequest::Create(definition) => self.plan_create(view, requester, definition),
            ChangeRequest::Drop(name) => self.plan_drop(requester, &name),
            ChangeRequest::Change(SchemaChange::RenameTable { name, new_name, pinned }) => {
                let before = self.table_for(requester, &name, pinned)?;
                let definition = TableDefinition { name: new_name, ..before.definition.clone() };
                self.plan_alter(requester, before, definition, None)
            }
            ChangeRequest::Change(SchemaChange::RenameCopy { name, new_name, fenced }) => {
                let must_be_fenced = !cx.has_bug(InjectedBug::CopyReplacesUnfenced);
                self.plan_rename_copy(requester, &name, new_name, fenced, must_be_fenced)
            }
            ChangeRequest::Change(SchemaChange::AlterTable { name, definition, pinned }) => {
                let before = self.table_for(requester, &name, pinned)?;
                self.plan_alter(requester, before, definition, None)
            }
            ChangeRequest::Change(SchemaChange::TruncateTable { name, pinned }) => {
                self.plan_truncate(view, requester, &name, pinned)
            }
            ChangeRequest::Change(SchemaChange::FenceTable { name, pinned }) => {
                let before = self.table_for(requester, &name, pinned)?;
                if self.fences.contains_key(&before.table) {
                    return refuse(ErrorCode::SchemaBusy, format!("this client has fenced '{name}' already"));
                }
                Ok(Plan { before: Some(before), fence: Some(requester.address.node()), ..Plan::default() })
            }
            // Answered at once: see `requests`.
            ChangeRequest::Change(SchemaChange::LiftFence { .. }) => Ok(Plan::default()),
            ChangeRequest::Change(SchemaChange::CreateDatabase(database)) => {
                self.plan_create_database(requester, database)
            }
            ChangeRequest::Change(SchemaChange::AlterDatabase(database)) => {
                self.plan_alter_database(requester, database)
            }
            ChangeRequest::Change(SchemaChange::DropDatabase { name }) => {
                self.plan_drop_database(requester, &name)
            }
        }
    }

    /// The table that a change is about.
    fn table_for(
        &self,
        requester: Requester,
        name: &str,
        pinned: Option<VersionedTable>,
    ) -> Result<TableRecord, Refused> {
        let Some(record) = self.tables.find(name) else {
            return refuse(ErrorCode::NoSuchTable, name);
        };
        if pinned.is_some_and(|pinned| pinned != record.own()) {
            return refuse(ErrorCode::StaleTable, name);
        }
        match self.fences.get(&record.table) {
            Some(&owner) if owner != requester.address.node() => {
                refuse(ErrorCode::SchemaBusy, format!("client {owner} has fenced '{name}'"))
            }
            Some(_) | None => Ok(record.clone()),
        }
    }

    /// A table gets this name: none may have it but itself and the one that it replaces, and its database is made if
    /// there is none.
    fn plan_name(
        &self,
        requester: Requester,
        own: Option<u32>,
        name: &str,
        plan: &mut Plan,
    ) -> Result<(), Refused> {
        let replaced = plan.replaced.as_ref().map(|replaced| replaced.table);
        let is_in_the_way = |present: &&TableRecord| ![own, replaced].contains(&Some(present.table));
        if let Some(present) = self.tables.find(name).filter(is_in_the_way) {
            let detail = format!("'{}' has id {}", present.definition.name, present.table);
            return refuse(ErrorCode::TableExists, detail);
        }
        let database = database_of(name);
        if self.databases.find(database).is_none() {
            self.check_room_for_database()?;
            plan.events.push(event(SchemaEventKind::CreateDatabase, requester, database));
            let database = Database { name: database.to_string(), attachment: Vec::new() };
            plan.database = Some(DatabaseStep::Put(database));
        }
        Ok(())
    }

    fn check_room_for_database(&self) -> Result<(), Refused> {
        match self.databases.len() {
            0..DATABASES_MAX => Ok(()),
            _ => refuse(ErrorCode::OutOfDatabases, format!("{DATABASES_MAX} are allowed")),
        }
    }

    fn take_id(&mut self, plan: &mut Plan) -> Result<VersionedTable, Refused> {
        match self.tables.take_id() {
            Some(taken) => {
                plan.made.push(taken);
                Ok(taken)
            }
            None => {
                for made in plan.made.drain(..) {
                    self.tables.release_id(made.table);
                }
                refuse(ErrorCode::OutOfTables, format!("MaxNoOfTables is {}", self.tables.max()))
            }
        }
    }

    /// Storage for a table with this definition and for its hidden tables.
    fn plan_storage(
        &mut self,
        view: &ClusterView,
        definition: TableDefinition,
        plan: &mut Plan,
    ) -> Result<TableRecord, Refused> {
        let own = self.take_id(plan)?;
        let partitions =
            match Partitioning::of(view, self.usual_partitions).choose(own.table, definition.partitions) {
                Ok(partitions) => partitions,
                Err(detail) => {
                    self.tables.release_id(own.table);
                    return refuse(ErrorCode::BadTableDefinition, detail);
                }
            };
        let mut record = TableRecord::new(own.table, own.version, partitions, definition);
        let unique = record.definition.indexes.iter().filter(|index| index.kind == IndexKind::Unique);
        let unique: Vec<u16> = unique.map(|index| index.id).collect();
        for index in unique {
            let VersionedTable { table, version } = self.take_id(plan)?;
            record.unique_tables.push(UniqueTable { index, table, version });
        }
        Ok(record)
    }

    fn plan_create(
        &mut self,
        view: &ClusterView,
        requester: Requester,
        definition: TableDefinition,
    ) -> Planned {
        let mut plan = Plan::default();
        self.plan_name(requester, None, &definition.name, &mut plan)?;
        let after = self.plan_storage(view, definition, &mut plan)?;
        plan.events.push(table_event(SchemaEventKind::CreateTable, requester, &after));
        plan.after = Some(after);
        Ok(plan)
    }

    fn plan_drop(&mut self, requester: Requester, name: &str) -> Planned {
        let before = self.table_for(requester, name, None)?;
        Ok(Plan {
            gone: before.all().collect(),
            events: [table_event(SchemaEventKind::DropTable, requester, &before)].into(),
            before: Some(before),
            ..Plan::default()
        })
    }

    fn plan_truncate(
        &mut self,
        view: &ClusterView,
        requester: Requester,
        name: &str,
        pinned: Option<VersionedTable>,
    ) -> Planned {
        let before = self.table_for(requester, name, pinned)?;
        let mut plan = Plan::default();
        let after = self.plan_storage(view, before.definition.clone(), &mut plan)?;
        plan.events.push(table_event(SchemaEventKind::TruncateTable, requester, &after));
        plan.gone = before.all().collect();
        (plan.before, plan.after) = (Some(before), Some(after));
        Ok(plan)
    }

    /// The copy of a fenced table gets a name, perhaps that of the fenced table.
    fn plan_rename_copy(
        &mut self,
        requester: Requester,
        name: &str,
        new_name: String,
        fenced: u32,
        must_be_fenced: bool,
    ) -> Planned {
        let before = self.table_for(requester, name, None)?;
        if must_be_fenced && self.fences.get(&fenced) != Some(&requester.address.node()) {
            return refuse(
                ErrorCode::StaleTable,
                format!("'{name}' is a copy of table {fenced}, whose write fence has ended"),
            );
        }
        let is_original = |present: &&TableRecord| present.table == fenced && fenced != before.table;
        let replaced = self.tables.find(&new_name).filter(is_original).cloned();
        let definition = TableDefinition { name: new_name, ..before.definition.clone() };
        self.plan_alter(requester, before, definition, replaced)
    }

    fn plan_alter(
        &mut self,
        requester: Requester,
        before: TableRecord,
        definition: TableDefinition,
        replaced: Option<TableRecord>,
    ) -> Planned {
        check_definition(&definition)?;
        check_same_columns(&before.definition, &definition)?;
        check_same_indexes(&before.definition, &definition)?;
        let mut plan = Plan { replaced, ..Plan::default() };
        self.plan_name(requester, Some(before.table), &definition.name, &mut plan)?;
        let mut unique_tables = Vec::new();
        for index in &definition.indexes {
            let known = before.definition.index(index.id);
            let kept = before.unique_tables.iter().find(|unique| unique.index == index.id);
            match (index.kind, known, kept) {
                (IndexKind::Unique, Some(_), Some(kept)) => unique_tables.push(*kept),
                (IndexKind::Ordered, Some(_), _) => {}
                (IndexKind::Ordered, None, _) => plan.ordered.push(index.id),
                (IndexKind::Unique, ..) => {
                    plan.must_be_empty = true;
                    let VersionedTable { table, version } = self.take_id(&mut plan)?;
                    unique_tables.push(UniqueTable { index: index.id, table, version });
                }
            }
        }
        let dropped = before.unique_tables.iter().filter(|unique| !unique_tables.contains(unique));
        plan.gone = dropped.map(|u| VersionedTable { table: u.table, version: u.version }).collect();
        plan.gone.extend(plan.replaced.iter().flat_map(TableRecord::all));
        let version = self.tables.take_version();
        let after = TableRecord { version, unique_tables, definition, ..before.clone() };
        let is_renamed = before.definition.name != after.definition.name;
        let kind = if is_renamed { SchemaEventKind::RenameTable } else { SchemaEventKind::AlterTable };
        let mut event = table_event(kind, requester, &after);
        if is_renamed {
            event.name.clone_from(&before.definition.name);
            event.new_name.clone_from(&after.definition.name);
        }
        plan.events.push(event);
        (plan.before, plan.after) = (Some(before), Some(after));
        Ok(plan)
    }

    fn plan_create_database(&mut self, requester: Requester, database: Database) -> Planned {
        check_database(&database)?;
        if self.databases.find(&database.name).is_some() {
            return refuse(ErrorCode::DatabaseExists, database.name);
        }
        self.check_room_for_database()?;
        Ok(Plan {
            events: [event(SchemaEventKind::CreateDatabase, requester, &database.name)].into(),
            database: Some(DatabaseStep::Put(database)),
            ..Plan::default()
        })
    }

    fn plan_alter_database(&mut self, requester: Requester, database: Database) -> Planned {
        check_database(&database)?;
        let Some(present) = self.databases.find(&database.name) else {
            return refuse(ErrorCode::NoSuchDatabase, database.name);
        };
        let database = Database { name: present.name.clone(), ..database };
        Ok(Plan {
            events: [event(SchemaEventKind::AlterDatabase, requester, &database.name)].into(),
            database: Some(DatabaseStep::Put(database)),
            ..Plan::default()
        })
    }

    fn plan_drop_database(&mut self, requester: Requester, name: &str) -> Planned {
        let Some(present) = self.databases.find(name) else {
            return refuse(ErrorCode::NoSuchDatabase, name);
        };
        if let Some(table) = self.tables.any_in(name) {
            return refuse(ErrorCode::DatabaseNotEmpty, format!("'{table}' is in it"));
        }
        Ok(Plan {
            events: [event(SchemaEventKind::DropDatabase, requester, &present.name)].into(),
            database: Some(DatabaseStep::Remove(name.into())),
            ..Plan::default()
        })
    }
}

fn table_event(kind: SchemaEventKind, requester: Requester, record: &TableRecord) -> SchemaEvent {
    let TableRecord { table, version, .. } = *record;
    SchemaEvent { table, version, ..event(kind, requester, &record.definition.name) }
}

/// Refuses a definition that breaks a limit or fits no frame.
pub fn check_definition(definition: &TableDefinition) -> Result<(), Refused> {
    if let Err(error) = definition.check() {
        return refuse(ErrorCode::BadTableDefinition, error.text);
    }
    match cold::length(definition) {
        0..=DEFINITION_BYTES_MAX => Ok(()),
        bytes => refuse(
            ErrorCode::BadTableDefinition,
            format!("names, indexes and attachment of {bytes} bytes; {DEFINITION_BYTES_MAX} are allowed"),
        ),
    }
}

/// What says how the rows are kept.
fn options(definition: &TableDefinition) -> (Durability, bool, u16) {
    (definition.durability, definition.read_backup, definition.partitions)
}

fn check_same_columns(before: &TableDefinition, after: &TableDefinition) -> Result<(), Refused> {
    let same_columns = before.columns.len() == after.columns.len()
        && before
            .columns
            .iter()
            .zip(&after.columns)
            .all(|(one, other)| (one.column_type, one.nullable) == (other.column_type, other.nullable));
    let what = if !same_columns {
        "types of columns, and which there are,"
    } else if before.primary_key != after.primary_key {
        "the primary key"
    } else if options(before) != options(after) {
        "the table's options"
    } else {
        return Ok(());
    };
    refuse(
        ErrorCode::NotSupportedYet,
        format!("{what} can't be changed in place: copy the rows to a new table"),
    )
}

/// An id belongs to one index: it is kept, perhaps with another name, or dropped.
fn check_same_indexes(before: &TableDefinition, after: &TableDefinition) -> Result<(), Refused> {
    for index in &after.indexes {
        if let Some(known) = before.index(index.id)
            && (&known.columns, known.kind) != (&index.columns, index.kind)
        {
            let (id, name) = (index.id, &index.name);
            let detail = format!("index {id} ('{name}') can't become another; give it a new id");
            return refuse(ErrorCode::BadTableDefinition, detail);
        }
    }
    Ok(())
}

fn check_database(database: &Database) -> Result<(), Refused> {
    if let Err(detail) = check_database_name(&database.name) {
        return refuse(ErrorCode::BadTableDefinition, detail);
    }
    match database.attachment.len() {
        0..=ATTACHMENT_BYTES_MAX => Ok(()),
        bytes => refuse(
            ErrorCode::BadTableDefinition,
            format!("an attachment of {bytes} bytes; {ATTACHMENT_BYTES_MAX} are allowed"),
        ),
    }
}
