//! The async face against a real data node, on a tiny executor that knows nothing of sockets.

use crate::support::proxy::Proxy;
use crate::support::{assert_nothing_left, run, start_node};
use futures_core::Stream;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use vinga::{Cluster, ColumnType, ErrorCode, Lock, NewTable, Record, Table, Update, Value, blocking};
use vinga_datanode::LocalNode;
use vinga_wire::SignalNumber;

/// Polls all of them until all are ready.
async fn all<F: Future + Unpin>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<(F, Option<F::Output>)> = futures.into_iter().map(|f| (f, None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = Pin::new(future).poll(context) {
                *output = Some(ready);
            }
        }
        if futures.iter().all(|(_, output)| output.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

fn definition() -> NewTable {
    NewTable::new("test.t")
        .column("id", ColumnType::Integer { bytes: 8, signed: false })
        .column("n", ColumnType::Integer { bytes: 4, signed: true })
        .primary_key(&["id"])
}

async fn start() -> (LocalNode, Cluster, Table) {
    let node = start_node();
    let cluster = Cluster::connect(node.address()).await.unwrap();
    let table = cluster.create_table(definition()).await.unwrap();
    (node, cluster, table)
}

/// The same cluster, for questions of another client.
fn observer(node: &LocalNode) -> blocking::Cluster {
    blocking::Cluster::connect(node.address()).unwrap()
}

fn row(id: u64) -> Record {
    Record::new([("id", Value::from(id)), ("n", ((id % 1000) as i32).into())])
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn everything_works_on_a_foreign_executor() {
    run(async {
        let (node, cluster, table) = start().await;
        assert_send(cluster.insert(&table, &row(1))).await.unwrap();
        assert_eq!(assert_send(cluster.get(&table, 1)).await.unwrap(), Some(row(1)));
        let mut tx = cluster.begin().unwrap();
        tx.update(&table, 1, &Update::new().add("n", 5)).unwrap();
        assert_eq!(assert_send(tx.read(&table, 1)).await.unwrap().unwrap()["n"], 6i32.into());
        assert_send(tx.commit()).await.unwrap();
        let sum = cluster
            .run(async |tx| {
                let before = tx.read(&table, 1).await?.ok_or(ErrorCode::NoSuchRow)?;
                tx.update(&table, 1, &Update::new().add("n", 1))?;
                Ok(before["n"].clone())
            })
            .await
            .unwrap();
        assert_eq!(sum, 6i32.into());
        assert_eq!(cluster.tables().await.unwrap(), ["test.t"]);
        assert_nothing_left(&observer(&node));
    });
}

#[test]
fn many_futures_travel_together() {
    run(async {
        let node = start_node();
        let network = Proxy::before(node.address());
        let cluster = Cluster::connect(network.address()).await.unwrap();
        let table = cluster.create_table(definition()).await.unwrap();
        let inserts = (0..500).map(|id| {
            Box::pin({
                let (cluster, table) = (&cluster, &table);
                async move { cluster.insert(table, &row(id)).await }
            })
        });
        assert!(all(inserts.collect()).await.iter().all(Result::is_ok));
        let gets = (0..500).map(|id| Box::pin(cluster.get(&table, id)));
        let rows = all(gets.collect()).await;
        for (id, found) in (0..).zip(rows) {
            assert_eq!(found.unwrap(), Some(row(id)));
        }
        let requests = network.frames(SignalNumber::KeyReadRequest);
        assert!(requests < 480, "500 rows were read with {requests} requests");
    });
}

#[test]
fn scans_are_streams() {
    run(async {
        let (_node, cluster, table) = start().await;
        for id in 0..300 {
            cluster.insert(&table, &row(id)).await.unwrap();
        }
        let mut scan = cluster.scan(&table).batch_rows(7).rows().unwrap();
        let mut count = 0;
        while let Some(row) = std::future::poll_fn(|cx| Pin::new(&mut scan).poll_next(cx)).await {
            row.unwrap();
            count += 1;
        }
        assert_eq!(count, 300);
        let filter = table.column("n").unwrap().less_than(10);
        let rows = assert_send(cluster.scan(&table).filter(filter).rows().unwrap().collect()).await;
        assert_eq!(rows.unwrap().len(), 10);
    });
}

#[test]
fn both_faces_share_a_cluster() {
    let node = start_node();
    let cluster = observer(&node);
    let table = cluster.create_table(definition()).unwrap();
    cluster.insert(&table, &row(1)).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..300).for_each(|_| assert!(cluster.get(&table, 1).unwrap().is_some())));
            scope.spawn(|| {
                run(async {
                    for _ in 0..300 {
                        assert!(cluster.as_async().get(&table, 1).await.unwrap().is_some());
                    }
                });
            });
        }
    });
}

/// As executors do that keep a task alive by its waker: with the last waker goes the task, and what it waits for.
struct Task(#[allow(dead_code, reason = "it is only to be dropped")] Mutex<TaskFuture>);

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_task_may_die_with_its_waker() {
    let (node, cluster, table) = run(start());
    let get = |id| {
        let (cluster, table) = (cluster.clone(), table.clone());
        async move { drop(cluster.get(&table, id).await) }
    };
    let task = |inner: TaskFuture| Waker::from(Arc::new(Task(Mutex::new(inner))));
    // One that waits for something else ...
    let mut inner = Box::pin(get(1));
    let _ = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // ... is only kept by the waker of another, which is replaced, dropped with its future, or woken.
    let mut outer = Box::pin(get(2));
    if outer.as_mut().poll(&mut Context::from_waker(&task(inner))).is_pending() {
        let mut inner = Box::pin(get(3));
        let _ = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let _ = outer.as_mut().poll(&mut Context::from_waker(&task(inner)));
    }
    drop(outer);
    let mut inner = Box::pin(get(4));
    let _ = inner.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let mut outer = Box::pin(get(5));
    let _ = outer.as_mut().poll(&mut Context::from_waker(&task(inner)));
    run(get(6));
    assert_nothing_left(&observer(&node));
}

#[test]
fn a_commit_that_waits_is_given_up() {
    run(async {
        let (node, cluster, table) = start().await;
        cluster.insert(&table, &row(1)).await.unwrap();
        let mut holder = cluster.begin().unwrap();
        holder.read_locked::<Record>(&table, 1, Lock::Exclusive).await.unwrap();
        for others in [0, 3] {
            let mut waiter = cluster.begin().unwrap();
            for id in 0..others {
                waiter.insert(&table, &row(10 + id)).unwrap();
            }
            waiter.update(&table, 1, &Update::new().set("n", 7)).unwrap();
            let mut polls = 0;
            let stop = std::future::poll_fn(|context| {
                polls += 1;
                context.waker().wake_by_ref();
                if polls > 1000 { Poll::Ready(()) } else { Poll::Pending }
            });
            let error = waiter.commit_unless(stop).await.map(|_| ()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::TransactionAborted, "not that the wait has ended");
        }
        holder.commit().await.unwrap();
        // One that has nothing to wait for may be committed just before.
        let mut ready = cluster.begin().unwrap();
        ready.insert(&table, &row(100)).unwrap();
        let is_committed = ready.commit_unless(std::future::ready(())).await.is_ok();
        let ids = observer(&node).scan(&table, |scan| scan).unwrap().count();
        assert_eq!(ids, if is_committed { 2 } else { 1 });
        drop(cluster);
        assert_nothing_left(&observer(&node));
    });
}
