//! The client of Vinga: tables, rows, transactions and scans from Rust.
//!
//! It has two faces over the same inside: [`blocking::Cluster`], whose calls return when they are done, and
//! [`Cluster`], whose calls are futures for any executor.
//!
//! # Rows with a type
//! ```
//! use vinga::blocking::Cluster;
//! use vinga::{ColumnType, Lock, ReadRow, TableRow, Update, WriteRow};
//!
//! #[derive(Debug, PartialEq, WriteRow, ReadRow, TableRow)]
//! #[vinga(table = "bank.account")]
//! struct Account {
//!     #[vinga(key)]
//!     id: u64,
//!     #[vinga(column_type = ColumnType::varchar(100))]
//!     owner: String,
//!     balance: i64,
//! }
//!
//! # let node = vinga_datanode::LocalNode::start()?;
//! # vinga_testnode::connect_to!(node.address(),
//! let cluster = Cluster::connect("127.0.0.1:2202")?;
//! # );
//! // The table, which is created if it is not there.
//! let accounts = cluster.open_table::<Account>()?;
//!
//! // Single operations: each is a transaction by itself, reads need none.
//! cluster.insert(&accounts, &Account { id: 1, owner: "Ada".into(), balance: 100 })?;
//! cluster.insert(&accounts, &Account { id: 2, owner: "Bob".into(), balance: 50 })?;
//! let bob = cluster.get(&accounts, 2)?.expect("he was inserted");
//! assert_eq!(bob.balance, 50);
//! assert_eq!(cluster.get(&accounts, 3)?, None);
//!
//! // An update is a small program that runs where the row is: nothing is read before it, and it may have conditions.
//! cluster.update(&accounts, 2, &Update::new().add("balance", 25))?;
//! let withdrawal = Update::new().when("balance", ">=", 1000)?.subtract("balance", 1000);
//! let error = cluster.update(&accounts, 2, &withdrawal).unwrap_err();
//! assert_eq!(error.code(), vinga::ErrorCode::ConditionFailed);
//!
//! // An upsert: adds the row or replaces it.
//! cluster.write(&accounts, &Account { id: 3, owner: "Cleo".into(), balance: 7 })?;
//! cluster.write(&accounts, &Account { id: 3, owner: "Cleo".into(), balance: 8 })?;
//!
//! // Many rows in one round trip, in the order of the keys.
//! let some = cluster.get_many(&accounts, [3, 2, 99])?;
//! assert_eq!(some[0].as_ref().map(|account| account.balance), Some(8));
//! assert_eq!(some[1].as_ref().map(|account| account.balance), Some(75));
//! assert!(some[2].is_none());
//!
//! // Many rows in one transaction, all or none; and those that a scan finds.
//! cluster.insert_many(&accounts, (100..200).map(|id| Account { id, owner: "Zoe".into(), balance: 0 }))?;
//! let no_money = accounts.column("balance")?.equal(0);
//! assert_eq!(cluster.delete_matching(&accounts, |scan| scan.filter(no_money.clone()))?, 100);
//!
//! // A transaction, run again if it met a temporary error; `try_run` does so for work with an error type of its own.
//! let moved = cluster.run(|tx| {
//!     let amount = 30;
//!     let ada = tx.read_locked(&accounts, 1, Lock::Exclusive)?.expect("she was inserted");
//!     if ada.balance < amount {
//!         return Ok(false);
//!     }
//!     tx.update(&accounts, 1, &Update::new().subtract("balance", amount))?;
//!     tx.update(&accounts, 2, &Update::new().add("balance", amount))?;
//!     Ok(true)
//! })?;
//! assert!(moved);
//!
//! // A scan: the data nodes filter, and rows arrive while it goes on.
//! let rich = accounts.column("balance")?.at_least(100);
//! for account in cluster.scan(&accounts, |scan| scan.filter(rich))? {
//!     assert_eq!(account?.owner, "Bob");
//! }
//!
//! cluster.delete(&accounts, 3)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`TableRow`] says what the attributes mean. A struct for a table that is there, and perhaps was made by SQL, needs
//! only [`WriteRow`] or [`ReadRow`], and is opened with [`blocking::Cluster::table_of`].
//!
//! # Rows by the names of their columns
//! Rows without a type of their own are [`Record`]s:
//!
//! ```
//! # use vinga::{ColumnType, NewTable};
//! # let node = vinga_datanode::LocalNode::start()?;
//! # let cluster = vinga::blocking::Cluster::connect(node.address())?;
//! # cluster.create_table(NewTable::new("test.person")
//! #     .column("id", ColumnType::I32)
//! #     .column("name", ColumnType::varchar(100))
//! #     .nullable_column("born", ColumnType::Date)
//! #     .primary_key(&["id"]))?;
//! use vinga::{Record, Value};
//!
//! let people = cluster.table("test.person")?;
//! cluster.insert(&people, &Record::new([("id", Value::from(1)), ("name", "Ada".into())]))?;
//! let ada = cluster.get(&people, 1)?.expect("she was inserted");
//! assert_eq!(ada["name"], "Ada".into());
//! assert!(ada["born"].is_null());
//! assert_eq!(ada.to_string(), "id=1 name=Ada born=NULL");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Indexes
//! An ordered index gives rows in the order of its columns, from ranges; a unique index finds at most one row:
//!
//! ```
//! # use vinga::{ColumnType, NewTable};
//! # let node = vinga_datanode::LocalNode::start()?;
//! # let cluster = vinga::blocking::Cluster::connect(node.address())?;
//! use vinga::{Lock, Update};
//!
//! vinga::row! {
//!     #[derive(Debug)]
//!     struct Order {
//!         id: u64,
//!         customer: u32,
//!         day: u32,
//!         number: String,
//!         state: u8,
//!     }
//! }
//!
//! cluster.create_table(
//!     NewTable::new("shop.order")
//!         .column("id", ColumnType::U64)
//!         .column("customer", ColumnType::U32)
//!         .column("day", ColumnType::U32)
//!         .column("number", ColumnType::varchar(20))
//!         .column("state", ColumnType::U8)
//!         .primary_key(&["id"])
//!         .ordered_index("by_customer", &["customer", "day"])
//!         .unique_index("number", &["number"]),
//! )?;
//! let orders = cluster.table_of::<Order>("shop.order")?;
//! for id in 0..100 {
//!     let (customer, day) = (id as u32 % 7, id as u32);
//!     cluster.insert(&orders, &Order { id, customer, day, number: format!("A{id}"), state: 0 })?;
//! }
//!
//! // The two newest orders of customer 3.
//! let newest = cluster.scan(&orders, |scan| {
//!     scan.index("by_customer").prefix(3u32).descending().in_order().limit(2)
//! })?;
//! let days: Vec<u32> = newest.map(|order| Ok(order?.day)).collect::<vinga::Result<_>>()?;
//! assert_eq!(days, [94, 87]);
//!
//! // All of some days, in no particular order.
//! let some = cluster.scan(&orders, |scan| scan.index("by_customer").between((3u32, 20u32), (3u32, 40u32)))?;
//! assert_eq!(some.count(), 3);
//!
//! // By a unique value, and many at once.
//! let order = cluster.get_by(&orders, "number", "A42")?.expect("it was inserted");
//! assert_eq!(order.id, 42);
//! assert!(cluster.get_many_by(&orders, "number", ["A1", "A1000"])?[1].is_none());
//!
//! // A scan that locks its rows, so that they are as they were read when they are changed.
//! cluster.run(|tx| {
//!     let mut open = tx.scan_locked(&orders, Lock::Exclusive, |scan| scan.index("by_customer").prefix(5u32))?;
//!     while let Some(order) = open.next(tx)? {
//!         tx.update(&orders, order.id, &Update::new().set("state", order.state + 1))?;
//!     }
//!     Ok(())
//! })?;
//!
//! // How many rows a range has, for whoever chooses between ways to them.
//! let range = orders.index_range("by_customer", std::ops::Bound::Included(&3u32), std::ops::Bound::Unbounded)?;
//! let known = cluster.index_statistics(&orders, "by_customer", &[range])?;
//! assert!(known.rows[0] > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Transactions step by step
//! Operations are defined, then executed together in one round trip. A transaction can go back to a place that it has
//! remembered; locks that it got since stay.
//!
//! ```
//! # use vinga::{ColumnType, NewTable, Record, Value};
//! # let node = vinga_datanode::LocalNode::start()?;
//! # let cluster = vinga::blocking::Cluster::connect(node.address())?;
//! # let stock = cluster.create_table(NewTable::new("shop.stock")
//! #     .column("item", ColumnType::varchar(30))
//! #     .column("pieces", ColumnType::I32)
//! #     .primary_key(&["item"]))?;
//! # for item in ["nail", "screw"] {
//! #     cluster.insert(&stock, &Record::new([("item", Value::from(item)), ("pieces", 10.into())]))?;
//! # }
//! use vinga::{Lock, Update};
//!
//! let mut tx = cluster.begin()?;
//! let nails = tx.define_read(&stock, "nail", Lock::Exclusive)?;
//! let screws = tx.define_read(&stock, "screw", Lock::Exclusive)?;
//! tx.execute()?; // both rows in one round trip
//! assert_eq!(tx.row(&nails)?.expect("there are nails")["pieces"], 10.into());
//! assert!(tx.row(&screws)?.is_some());
//!
//! tx.update(&stock, "nail", &Update::new().subtract("pieces", 4))?;
//! let before_screws = tx.savepoint();
//! tx.update(&stock, "screw", &Update::new().subtract("pieces", 4))?;
//! tx.roll_back_to(before_screws)?; // only nails after all
//! tx.commit()?;
//!
//! assert_eq!(cluster.get(&stock, "nail")?.expect("there are some left")["pieces"], 6.into());
//! assert_eq!(cluster.get(&stock, "screw")?.expect("nobody took any")["pieces"], 10.into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rows that others have locked
//! A lock is waited for as long as the data nodes' `TransactionDeadlockDetectionTimeout` says, unless somebody says how
//! long: the transaction ([`Transaction::set_lock_wait`]), or a single read by its lock. A queue whose rows are taken
//! by many:
//!
//! ```
//! # use vinga::{ColumnType, NewTable, Record, Value};
//! # let node = vinga_datanode::LocalNode::start()?;
//! # let cluster = vinga::blocking::Cluster::connect(node.address())?;
//! # let jobs = cluster.create_table(NewTable::new("shop.job")
//! #     .column("id", ColumnType::I32)
//! #     .column("tries", ColumnType::I32)
//! #     .primary_key(&["id"]).ordered_index("by_id", &["id"]))?;
//! # for id in 0..10 {
//! #     cluster.insert(&jobs, &Record::new([("id", Value::from(id)), ("tries", 0.into())]))?;
//! # }
//! use std::time::Duration;
//! use vinga::{ErrorCode, Found, Lock, Update};
//!
//! // Each takes the first that nobody has.
//! let mut one = cluster.begin()?;
//! let mut other = cluster.begin()?;
//! for (id, tx) in [(0, &mut one), (1, &mut other)] {
//!     let mut first = tx.scan_locked(&jobs, Lock::Exclusive.skip_locked(), |scan| {
//!         scan.index("by_id").from(0).in_order().limit(1)
//!     })?;
//!     assert_eq!(first.next(tx)?.expect("some are free")["id"], id.into());
//! }
//!
//! // Not at all, or not for long. Unless the transaction is lenient such an error rolls it back.
//! other.set_lenient(true);
//! let error = other.read_locked(&jobs, 0, Lock::Shared.no_wait()).unwrap_err();
//! assert_eq!(error.code(), ErrorCode::RowLocked);
//! let error = other.read_locked(&jobs, 0, Lock::Shared.within(Duration::from_millis(10))).unwrap_err();
//! assert_eq!(error.code(), ErrorCode::LockTimeout);
//!
//! // The lock if it is free, else the committed version; and what is not wanted is let go of with the next request.
//! one.update(&jobs, 0, &Update::new().add("tries", 1))?;
//! one.execute()?;
//! for id in [0, 5] {
//!     match other.find(&jobs, id, Lock::Exclusive.else_committed())? {
//!         Found::Row { operation: Some(operation), .. } => other.unlock(operation)?,
//!         Found::NotLocked { committed: Some(job) } => assert_eq!(job["tries"], 0.into()),
//!         found => panic!("{found:?}"),
//!     }
//! }
//! # one.commit()?;
//! # other.commit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Futures
//! The same with futures, on whatever executor there is:
//!
//! ```
//! use vinga::{Cluster, ColumnType, NewTable, Update};
//!
//! # let node = vinga_datanode::LocalNode::start()?;
//! # let work =
//! async {
//! #   vinga_testnode::connect_to!(node.address(),
//!     let cluster = Cluster::connect("127.0.0.1:2202").await?;
//! #   );
//!     let table = cluster
//!         .create_table(
//!             NewTable::new("test.t")
//!                 .column("id", ColumnType::U64)
//!                 .column("n", ColumnType::I32)
//!                 .primary_key(&["id"]),
//!         )
//!         .await?;
//!     let mut tx = cluster.begin()?;
//!     for id in 0..100u64 {
//!         tx.insert(&table, &[("id", id), ("n", 0)])?;
//!     }
//!     tx.commit().await?; // one round trip for all of them
//!     cluster
//!         .run(async |tx| {
//!             let row = tx.read(&table, 7).await?.ok_or(vinga::ErrorCode::NoSuchRow)?;
//!             let update = if row["n"] == 0.into() { Update::new().set("n", 1) } else { Update::new().add("n", 5) };
//!             tx.update(&table, 7, &update).map(|_| ())
//!         })
//!         .await?;
//!     let rows = cluster.get_many(&table, [7u64, 8, 1000]).await?;
//!     assert_eq!(rows[0].as_ref().expect("it was inserted")["n"], 1.into());
//!     assert!(rows[2].is_none());
//!     let mut scan = cluster.scan(&table).limit(10).rows()?; // a stream
//!     while let Some(row) = scan.next().await {
//!         println!("{}", row?);
//!     }
//!     Ok::<(), vinga::Error>(())
//! }
//! # ;
//! # let mut work = std::pin::pin!(work);
//! # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! # let result = loop {
//! #     if let std::task::Poll::Ready(result) = work.as_mut().poll(&mut context) { break result }
//! #     std::thread::sleep(std::time::Duration::from_micros(50));
//! # };
//! # use std::future::Future;
//! # result?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//! - A commit that returns is in the memory of all replicas of each row it changed; one that fails has changed nothing,
//!   unless its error is of class [`ErrorClass::Unknown`], which is returned only when it can't be known.
//! - Reads see committed rows; inside a transaction its own changes, too.
//! - A future or transaction that is dropped leaves no lock, no open scan and no memory behind, here or at a data node.
//!   What it was about to do is undone, or was not begun. There is one exception: a commit (or a single insert, update,
//!   write or delete) that has been polled may have left already. Dropping it gives up the answer, not the commit: the
//!   data nodes decide it, all of it or nothing, as if the caller had waited, and only whoever reads the rows learns
//!   how.
//! - When the last clone of a cluster is dropped, with all that was made from it, the data nodes are notified; the
//!   client's node id is free at once. What was under way then is rolled back, but for commits as above.
//! - Lost connections are opened again. What was under way then ends with an error that says whether it may be
//!   [tried again](Error::is_retryable); [`Cluster::run`] does so by itself.
//! - Callers that have many operations under way at the same time, on threads or as futures, share the batches that
//!   travel; one alone is never held up.

mod addresses;
mod backup;
mod batch;
pub mod blocking;
mod cluster;
mod data_nodes;
mod engine;
mod event_loop;
mod information;
mod lock;
mod locking_scan;
mod new_table;
mod node_groups;
mod pending;
mod program;
mod range;
mod retry;
mod row;
mod row_name;
mod scan;
mod schema;
mod spare;
mod statistics;
mod table;
mod transaction;
mod unique;

pub use backup::{PartitionBackup, PieceTicket};
pub use batch::{ReadBatch, ReadTicket, WriteBatch, WriteTicket};
pub use cluster::{Cluster, ConnectOptions, ListedTable, PORT};
pub use data_nodes::DataNode;
pub use information::{InfoRows, Unanswered};
pub use lock::{Found, Lock, LockRequest, LockWait};
pub use locking_scan::{LockedRows, LockingScan};
pub use new_table::{IntoDefinition, NewTable};
pub use node_groups::{NoRoom, NodeGroup, Reorganization};
pub use program::Update;
pub use row::{ReadRow, Record, RowReader, RowWriter, TableRow, WriteRow};
pub use scan::{RowBatch, RowCount, Scan, ScanRequest};
pub use schema::{Fence, NewsId, SchemaEvents, SchemaLock, SchemaNews};
pub use statistics::IndexStatistics;
pub use table::Table;
pub use transaction::{Committed, Reading, Savepoint, Transaction, TransactionName};
pub use vinga_base::order_key::{Direction, KeyRange, OrderColumn, OrderKey};
pub use vinga_base::schema::{
    ColumnDefinition, ColumnType, Durability, IndexDefinition, IndexKind, TableDefinition,
};
pub use vinga_base::{
    ColumnId, Epoch, LiveParameter, LiveUnit, NodeId, OperationNumber, TableId, TableVersion,
};
pub use vinga_client_core::backup_steps;
pub use vinga_client_core::{
    BackupBatch, EndpointState, Error, KeyWriter, Result, RowBuilder, RowRef, Table as TableLayout, Value,
    sql_rules, value,
};
pub use vinga_derive::{ReadRow, TableRow, WriteRow};
pub use vinga_program::filter::tree as filter;
pub use vinga_wire::info::{InfoTable, InfoValue};
pub use vinga_wire::operation::OperationKind;
pub use vinga_wire::schema::{Database, SchemaEvent, SchemaEventKind};
pub use vinga_wire::shutdown::ShutdownTerms;
pub use vinga_wire::{ErrorClass, ErrorCode};
