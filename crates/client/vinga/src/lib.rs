//! The client of Vinga: tables, rows, transactions and scans from Rust.
//!
//! It has two faces over the same inside: [`blocking::Cluster`], whose calls return when they are done, and [`Cluster`],
//! whose calls are futures for any executor.
//!
//! ```
//! use vinga::blocking::Cluster;
//! use vinga::{ColumnType, NewTable, Update};
//!
//! vinga::row! {
//!     #[derive(Debug, PartialEq)]
//!     struct Account {
//!         id: u64,
//!         owner: String,
//!         balance: i64,
//!     }
//! }
//!
//! # let node = vinga_testnode::start();
//! # let address = node.address();
//! let cluster = Cluster::connect(&address)?; // "127.0.0.1:1186"
//! cluster.create_table(
//!     NewTable::new("bank.account")
//!         .column("id", ColumnType::Integer { bytes: 8, signed: false })
//!         .column("owner", ColumnType::VarChar { bytes_max: 100 })
//!         .column("balance", ColumnType::Integer { bytes: 8, signed: true })
//!         .primary_key(&["id"]),
//! )?;
//! let accounts = cluster.table_of::<Account>("bank.account")?;
//!
//! // Single operations: each is a transaction by itself, reads need none.
//! cluster.insert(&accounts, &Account { id: 1, owner: "Ada".into(), balance: 100 })?;
//! cluster.insert(&accounts, &Account { id: 2, owner: "Bob".into(), balance: 50 })?;
//! cluster.update(&accounts, 2, &Update::new().add("balance", 25))?;
//! let bob = cluster.get(&accounts, 2)?.expect("he was inserted");
//! assert_eq!(bob.balance, 75);
//!
//! // A transaction, run again if it met a temporary error.
//! let moved = cluster.run(|tx| {
//!     let amount = 30;
//!     let ada = tx.read_locked(&accounts, 1, vinga::Lock::Exclusive)?.expect("she was inserted");
//!     if ada.balance < amount {
//!         return Ok(false);
//!     }
//!     tx.update(&accounts, 1, &Update::new().subtract("balance", amount))?;
//!     tx.update(&accounts, 2, &Update::new().add("balance", amount))?;
//!     Ok(true)
//! })?;
//! assert!(moved);
//!
//! // A scan: the data nodes filter.
//! let rich = accounts.column("balance")?.at_least(100);
//! for account in cluster.scan(&accounts, |scan| scan.filter(rich))? {
//!     assert_eq!(account?.owner, "Bob");
//! }
//! # Ok::<(), vinga::Error>(())
//! ```
//!
//! Rows without a type of their own are [`Record`]s:
//!
//! ```
//! # use vinga::{ColumnType, NewTable};
//! # let node = vinga_testnode::start();
//! # let cluster = vinga::blocking::Cluster::connect(&node.address())?;
//! # cluster.create_table(NewTable::new("test.person")
//! #     .column("id", ColumnType::Integer { bytes: 4, signed: true })
//! #     .column("name", ColumnType::VarChar { bytes_max: 100 })
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
//! # Ok::<(), vinga::Error>(())
//! ```
//!
//! The same with futures, on whatever executor there is:
//!
//! ```
//! # use vinga::{ColumnType, NewTable};
//! # let node = vinga_testnode::start();
//! # let address = node.address();
//! # let definition = NewTable::new("test.t")
//! #     .column("id", ColumnType::Integer { bytes: 8, signed: false })
//! #     .column("n", ColumnType::Integer { bytes: 4, signed: true })
//! #     .primary_key(&["id"]);
//! use vinga::{Cluster, Update};
//!
//! # let work =
//! async {
//!     let cluster = Cluster::connect(&address).await?;
//!     let table = cluster.create_table(definition).await?;
//!     let mut tx = cluster.begin()?;
//!     for id in 0..100u64 {
//!         tx.insert(&table, &[("id", id), ("n", 0)])?;
//!     }
//!     tx.commit().await?; // one round trip for all of them
//!     cluster.run(async |tx| tx.update(&table, 7, &Update::new().add("n", 1)).map(|_| ())).await?;
//!     let rows = cluster.get_many(&table, [7u64, 8, 1000]).await?;
//!     assert_eq!(rows[0].as_ref().expect("it was inserted")["n"], 1i32.into());
//!     assert!(rows[2].is_none());
//!     let mut scan = cluster.scan(&table).limit(10).rows()?;
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
//! # Ok::<(), vinga::Error>(())
//! ```
//!
//! # What is promised
//! - A commit that returns is in the memory of all replicas of each row it changed; one that fails has changed nothing,
//!   unless its error is of class [`ErrorClass::Unknown`], which is told only when it can't be known.
//! - Reads see committed rows; inside a transaction its own changes, too.
//! - A future or transaction that is dropped leaves no lock, no open scan and no memory behind, here or at a data node.
//! - Lost connections are opened again. What was under way then ends with an error that says whether it may be
//!   [tried again](Error::is_retryable); [`Cluster::run`] does so by itself.
//! - Callers that have many operations under way at the same time, on threads or as futures, share the batches that travel;
//!   one alone is never held up.

mod batch;
pub mod blocking;
mod cluster;
mod engine;
mod pending;
mod program;
mod retry;
mod row;
mod scan;
mod spare;
mod table;
mod transaction;

pub use batch::{ReadBatch, ReadTicket, WriteBatch, WriteTicket};
pub use cluster::{Cluster, ConnectOptions, InfoRows, PORT};
pub use program::Update;
pub use row::{ReadRow, Record, RowReader, RowWriter, WriteRow};
pub use scan::{RowBatch, Scan, ScanRequest};
pub use table::{IntoDefinition, NewTable, Table};
pub use transaction::{Committed, Lock, Reading, Savepoint, Transaction};
pub use vinga_base::schema::{ColumnDefinition, ColumnType, TableDefinition};
pub use vinga_base::{ColumnId, Epoch, NodeId, OperationNumber};
pub use vinga_client_core::{Error, Result, RowBuilder, RowRef, Value, value};
pub use vinga_fragment::filter::tree as filter;
pub use vinga_wire::info::{InfoTable, InfoValue};
pub use vinga_wire::operation::OperationKind;
pub use vinga_wire::{ErrorClass, ErrorCode};
