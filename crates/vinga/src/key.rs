//! `vinga key`: makes the key of a cluster.

use clap::Args;
use std::io::ErrorKind;
use std::path::PathBuf;
use vinga_key::ClusterKey;
use vinga_runtime::say;

/// `vinga key`.
#[derive(Args)]
pub struct KeyArguments {
    /// The file, which must not be there yet; only its owner may read it
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes a key in a file.
///
/// # Errors
/// A text: there is such a file, or it can't be written.
pub fn run(arguments: &KeyArguments) -> Result<(), String> {
    let file = &arguments.file;
    let name = file.display();
    ClusterKey::make(file).map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => format!("{name} is there already: a key is never replaced"),
        _ => format!("cannot make {name}: {why}"),
    })?;
    say!(
        "{name} holds a new cluster key; copy it to all nodes (ClusterKeyFile={name}), and to clients, which name it before"
    );
    say!("the addresses: key={name},HOST:PORT");
    Ok(())
}
