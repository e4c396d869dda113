//! News of schema changes.
//!
//! Each that is given gets a number, by which it is confirmed later.

use crate::border::Out;
use crate::call::calls;
use crate::cluster::Cluster;
use crate::connection::Waiting;
use crate::failure::{Failure, Misuse, Outcome, c_text};
use crate::handle::{Handle, Kind};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::time::Duration;
use vinga::{NewsId, SchemaEventKind, SchemaNews};

/// An events handle's object.
pub struct SchemaEvents {
    inner: vinga::SchemaEvents,
    /// News that were given and not confirmed, by their numbers.
    open: VecDeque<(u64, NewsId)>,
    given: u64,
    /// Of the news that were given last.
    name: CString,
    new_name: CString,
}

impl Kind for SchemaEvents {
    const NUMBER: u8 = 14;
}

/// `vinga_schema_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CSchemaEvent {
    /// `VINGA_SCHEMA_*`.
    pub kind: c_int,
    /// The client that has asked for the change.
    pub by: c_uint,
    /// Names it to confirm it.
    pub number: u64,
    /// Which incarnation of the cluster it is, if everything may have changed.
    pub incarnation: u64,
    /// The table's version.
    pub version: u64,
    /// The table's id.
    pub table: u32,
    /// Name before the change.
    pub name: *const c_char,
    /// Name after a rename.
    pub new_name: *const c_char,
}

/// The numbers of kinds of news (`VINGA_SCHEMA_*`).
#[expect(missing_docs, reason = "vinga.h says it")]
pub mod news {
    use std::ffi::c_int;

    pub const NOTHING: c_int = 0;
    pub const EVERYTHING: c_int = 1;
    pub const CREATE_TABLE: c_int = 2;
    pub const DROP_TABLE: c_int = 3;
    pub const RENAME_TABLE: c_int = 4;
    pub const TRUNCATE_TABLE: c_int = 5;
    pub const ALTER_TABLE: c_int = 6;
    pub const CREATE_DATABASE: c_int = 7;
    pub const ALTER_DATABASE: c_int = 8;
    pub const DROP_DATABASE: c_int = 9;
}

fn kind_number(kind: SchemaEventKind) -> c_int {
    match kind {
        SchemaEventKind::CreateTable => news::CREATE_TABLE,
        SchemaEventKind::DropTable => news::DROP_TABLE,
        SchemaEventKind::RenameTable => news::RENAME_TABLE,
        SchemaEventKind::TruncateTable => news::TRUNCATE_TABLE,
        SchemaEventKind::AlterTable => news::ALTER_TABLE,
        SchemaEventKind::CreateDatabase => news::CREATE_DATABASE,
        SchemaEventKind::AlterDatabase => news::ALTER_DATABASE,
        SchemaEventKind::DropDatabase => news::DROP_DATABASE,
    }
}

/// No news.
const NOTHING: CSchemaEvent = CSchemaEvent {
    kind: news::NOTHING,
    by: 0,
    number: 0,
    incarnation: 0,
    version: 0,
    table: 0,
    name: c"".as_ptr(),
    new_name: c"".as_ptr(),
};

impl SchemaEvents {
    /// Gives news away; they have to be confirmed.
    fn give(&mut self, (id, news): (NewsId, SchemaNews)) -> CSchemaEvent {
        self.given += 1;
        self.open.push_back((self.given, id));
        let number = self.given;
        match news {
            SchemaNews::Everything { incarnation } => {
                CSchemaEvent { kind: news::EVERYTHING, number, incarnation, ..NOTHING }
            }
            SchemaNews::Changed(event) => {
                (self.name, self.new_name) = (c_text(&event.name), c_text(&event.new_name));
                CSchemaEvent {
                    kind: kind_number(event.kind),
                    by: event.by.into(),
                    number,
                    incarnation: 0,
                    version: event.version,
                    table: event.table,
                    name: self.name.as_ptr(),
                    new_name: self.new_name.as_ptr(),
                }
            }
        }
    }

    /// These news, and all that were given before them, have been acted on.
    fn confirm(&mut self, number: u64) -> Outcome {
        if number == 0 || number > self.given {
            let detail = format!("news {number}; {} were given, counted from 1", self.given);
            return Err(Failure::misuse(Misuse::BadIndex, &detail));
        }
        let mut newest = None;
        while let Some(&(open, id)) = self.open.front()
            && open <= number
        {
            newest = Some(id);
            self.open.pop_front();
        }
        if let Some(id) = newest {
            self.inner.confirm(id);
        }
        Ok(())
    }
}

fn next(
    waiting: &Waiting<'_>,
    events: &mut SchemaEvents,
    wait_ms: c_int,
    event: Out<CSchemaEvent>,
) -> Outcome {
    let event = event.required()?;
    let connection = waiting.connection()?;
    let news = match u64::try_from(wait_ms) {
        Ok(wait) => waiting.wait(&connection, events.inner.next_within(Duration::from_millis(wait)))?,
        // Below 0: for ever.
        Err(_) => Some(waiting.wait(&connection, events.inner.next())?),
    };
    event.put(news.map_or(NOTHING, |news| events.give(news)));
    Ok(())
}

/// The next news, if they are there. Whether they are.
fn next_at_once(events: &mut SchemaEvents, event: Out<CSchemaEvent>) -> Outcome<bool> {
    let event = event.required()?;
    let Some(news) = events.inner.try_next() else { return Ok(false) };
    event.put(events.give(news));
    Ok(true)
}

calls! {
    fn vinga_schema_events_next, vinga_schema_events_next_start, vinga_schema_events_next_cont
        (events: SchemaEvents, wait_ms: c_int, event: Out<CSchemaEvent>)
        = next, at_once |events: &mut SchemaEvents| next_at_once(events, event);
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_schema_events_new(
    cluster: Handle<Cluster>,
    events: Out<Handle<SchemaEvents>>,
) -> c_int {
    cluster.with(|_, common| {
        let events = events.required()?;
        let connection = common.connection()?;
        let inner = connection.cluster.schema_events()?;
        let (name, new_name) = (CString::default(), CString::default());
        let new = SchemaEvents { inner, open: VecDeque::new(), given: 0, name, new_name };
        events.put(Handle::create(Some(connection), new));
        Ok(())
    })
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_schema_events_confirm(events: Handle<SchemaEvents>, number: u64) -> c_int {
    events.with(|events, _| events.confirm(number))
}

/// See `vinga.h`.
#[unsafe(no_mangle)]
pub extern "C" fn vinga_schema_events_close(events: Handle<SchemaEvents>) -> c_int {
    events.close()
}
