//! For tests of clients: a data node that does what its script says, and a word in documented examples.
//!
//! [`ScriptedNode`] speaks the whole protocol of an API node and stores rows in a map: the node without the world. A
//! test decides when which of its answers arrive, and when it breaks. It knows no locks and no time-outs; what needs
//! those is tested against a real data node. [`ScriptedCluster`] is several of them behind sockets of this machine.

mod cluster;
mod scripted_node;
mod store;

pub use cluster::ScriptedCluster;
pub use scripted_node::{Layout, ScriptedNode};

/// In a documented example: connects to the data node at this address instead of the one that is shown.
///
/// ```
/// # struct Cluster; impl Cluster { fn connect(address: &str) -> Result<String, ()> { Ok(address.into()) } }
/// # vinga_testnode::connect_to!("127.0.0.1:49152",
/// let cluster = Cluster::connect("127.0.0.1:2202")?;
/// # );
/// # assert_eq!(cluster, "127.0.0.1:49152");
/// # Ok::<(), ()>(())
/// ```
#[macro_export]
macro_rules! connect_to {
    ($address:expr, let $name:ident = $cluster:ident::connect($shown:literal) $($rest:tt)*) => {
        let $name = $cluster::connect({
            let _: &str = $shown;
            $address
        }) $($rest)*
    };
}
