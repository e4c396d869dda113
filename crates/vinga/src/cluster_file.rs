//! The configuration file of a cluster of several data nodes on this machine: `config.ini` in the cluster's folder.
//!
//! `vinga up` writes it when it makes such a cluster, and keeps it from then on: users may change parameters in it.
//! Beside it is the cluster's key, `cluster.key`, also of a cluster of one data node.

use crate::data;
use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vinga_config::file::ConfigFile;
use vinga_key::ClusterKey;
use vinga_runtime::complain;

/// The port of the first data node, unless another one is named or it is in use.
const PORT: u16 = 2202;

/// The port of the first management node, unless it is in use: that of NDB's.
const MANAGEMENT_PORT: u16 = 1186;

/// Where any ports are taken from: below those that the system gives to connections which somebody opens (32768 and
/// more), so that they are still free when the nodes begin to listen.
const ANY_PORTS: Range<u16> = 10_000..32_000;

/// Ports that are tried, at most.
const ANY_TRIES: usize = 10_000;

/// Where the nodes of a cluster on one machine listen.
pub const HOST: &str = "127.0.0.1";

/// The file of the key of a cluster on this machine, by an absolute path; makes it if there is none. The cluster's
/// folder is there.
///
/// # Errors
/// A text: the file can't be made, or the folder's name is none for addresses.
pub fn cluster_key(cluster: &Path) -> Result<PathBuf, String> {
    let folder =
        cluster.canonicalize().map_err(|error| format!("cannot find {}: {error}", cluster.display()))?;
    if let Some(bad) = folder.to_string_lossy().chars().find(|character| ",#;\"\n".contains(*character)) {
        return Err(format!(
            "{}: the path of a cluster's folder may not have {bad:?}, as it stands in addresses and in config.ini, where \
             that has a meaning: take another folder",
            folder.display()
        ));
    }
    let file = cluster.join("cluster.key");
    let made = match ClusterKey::make(&file) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    };
    let place = made.and_then(|()| file.canonicalize());
    place.map_err(|error| format!("cannot make the cluster's key, {}: {error}", file.display()))
}

/// The cluster's file.
pub struct ClusterFile {
    path: PathBuf,
}

/// Size of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Data nodes.
    pub data_nodes: u8,
    /// Copies of the data.
    pub replicas: u8,
    /// Management nodes.
    pub management_nodes: u8,
}

impl Size {
    /// Whether the replicas divide the data nodes.
    ///
    /// # Errors
    /// A text that says what is allowed.
    pub fn check(self) -> Result<(), String> {
        let Size { data_nodes, replicas, management_nodes } = self;
        if management_nodes > 0 && data_nodes == 1 {
            return Err(
                "--management-nodes: they decide between data nodes, and there is one data node".to_owned()
            );
        }
        if data_nodes.is_multiple_of(replicas) {
            return Ok(());
        }
        let allowed: Vec<String> = (1..=4u8)
            .filter(|&replicas| data_nodes.is_multiple_of(replicas))
            .map(|replicas| replicas.to_string())
            .collect();
        let nodes =
            if data_nodes == 1 { "one data node".to_owned() } else { format!("{data_nodes} data nodes") };
        Err(format!(
            "--replicas {replicas}: each copy of the data is on another data node, and {nodes} can't be divided into groups \
             of {replicas}; with --data-nodes {data_nodes} allowed: {}",
            allowed.join(", ")
        ))
    }
}

impl ClusterFile {
    /// That of a cluster's folder.
    pub fn of(cluster: &Path) -> Self {
        ClusterFile { path: cluster.join("config.ini") }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; `None` if there is none, or nothing in it yet.
    ///
    /// # Errors
    /// A text: it can't be read.
    pub fn read(&self) -> Result<Option<ConfigFile>, String> {
        match fs::metadata(&self.path) {
            Ok(found) if found.len() > 0 => data::read_file(&self.path).map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failure("read", &error)),
        }
    }

    /// Waits until no other `vinga up` starts data nodes of this cluster; the next one waits until this is dropped.
    /// Makes the folder and an empty file, if they are not there.
    ///
    /// # Errors
    /// A text: the file can't be made, or not be locked.
    pub fn lock(&self) -> Result<LockedFile<'_>, String> {
        loop {
            let made = self.path.parent().map_or(Ok(()), fs::create_dir_all);
            let opened = made.and_then(|()| {
                File::options().create(true).truncate(false).read(true).append(true).open(&self.path)
            });
            let file = opened.map_err(|error| self.not_opened(&error))?;
            let locked = match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    complain!("waiting until another command is done with {}", self.path.display());
                    file.lock()
                }
                Err(TryLockError::Error(error)) => Err(error),
                Ok(()) => Ok(()),
            };
            locked.map_err(|error| self.failure("lock", &error))?;
            // The one that had the lock may have removed the file.
            if self.is_at_path(&file).map_err(|error| self.failure("look at", &error))? {
                return Ok(LockedFile { file, of: self });
            }
        }
    }

    /// Whether this open file is the one that has the path.
    fn is_at_path(&self, file: &File) -> io::Result<bool> {
        let own = file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Why the file can't be opened to be locked.
    fn not_opened(&self, error: &io::Error) -> String {
        match fs::metadata(&self.path) {
            Ok(found) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                "the configuration file {} is there, and can't be written by this user: it belongs to user {} (by number), as \
                 whom this command has to be run; its nodes then run as that user, too",
                self.path.display(),
                found.uid()
            ),
            _ => self.failure("make", error),
        }
    }

    fn failure(&self, what: &str, error: &io::Error) -> String {
        format!("cannot {what} the configuration file {}: {error}", self.path.display())
    }
}

/// The file while data nodes are started.
pub struct LockedFile<'a> {
    file: File,
    of: &'a ClusterFile,
}

impl LockedFile<'_> {
    /// Describes a new cluster: nodes numbered from 1, each with a port of its own. If `port` is given data nodes have
    /// that one and those behind it, or all nodes any free ones if it is 0; else the first free ones from 2202 on.
    /// Management nodes have free ones from 1186 on. All of them have the cluster's key, which is made.
    ///
    /// # Errors
    /// A text: there are no such ports, or the file or that of the key can't be written.
    pub fn describe(&mut self, size: Size, port: Option<u16>, memory_bytes: u64) -> Result<(), String> {
        let ports = ports(size, port)?;
        let key = cluster_key(self.of.path.parent().unwrap_or(Path::new(".")))?;
        let text = text(size, &ports, memory_bytes, &key);
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| self.of.failure("write", &error))
    }

    /// Adds text at its end; all of it, or none.
    ///
    /// # Errors
    /// A text: it can't be written.
    pub fn append(&mut self, added: &str) -> Result<(), String> {
        let before = self.file.metadata().map_err(|error| self.of.failure("look at", &error))?.len();
        let written = self.file.write_all(added.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            let _ = self.file.set_len(before);
            self.of.failure("write", &error)
        })
    }

    /// Removes the file, as nothing of what it has described was ever started; returns the text about that, and whether
    /// it could be removed.
    pub fn withdraw(&self, why: String) -> String {
        match fs::remove_file(&self.of.path) {
            Ok(()) => why,
            Err(error) => format!("{why}\n{}", self.of.failure("remove", &error)),
        }
    }
}

/// A port for each data node, then for each management node.
fn ports(size: Size, first: Option<u16>) -> Result<Vec<u16>, String> {
    let (data, management) = (usize::from(size.data_nodes), usize::from(size.management_nodes));
    if first == Some(0) {
        return data_ports(data + management, first);
    }
    let mut ports = data_ports(data, first)?;
    let others = (MANAGEMENT_PORT..=u16::MAX).filter(|port| !ports.contains(port) && is_free(*port));
    let others: Vec<u16> = others.take(management).collect();
    if others.len() < management {
        return Err(format!("there are no {management} free ports above {MANAGEMENT_PORT}"));
    }
    ports.extend(others);
    Ok(ports)
}

fn is_free(port: u16) -> bool {
    listen(port).is_some()
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((HOST, port)).ok()
}

/// Free ports for so many data nodes that are added to a cluster on this machine whose nodes have these: behind them,
/// if there are any.
///
/// # Errors
/// A text: there are no such ports.
pub fn more_ports(count: usize, taken: &[u16]) -> Result<Vec<u16>, String> {
    let first = taken.iter().max().map_or(PORT, |last| last.saturating_add(1)).max(PORT);
    let all = (first..=u16::MAX).chain(PORT..first);
    let ports: Vec<u16> = all.filter(|port| !taken.contains(port) && is_free(*port)).take(count).collect();
    if ports.len() < count {
        return Err(format!("there are no {count} free ports above {PORT}"));
    }
    Ok(ports)
}

/// A port for each of so many nodes.
fn data_ports(count: usize, first: Option<u16>) -> Result<Vec<u16>, String> {
    match first {
        Some(0) => {
            // All are kept until the last one is chosen.
            let tries = std::iter::repeat_with(|| fastrand::u16(ANY_PORTS)).take(ANY_TRIES);
            let held: Vec<(u16, TcpListener)> =
                tries.filter_map(|port| Some((port, listen(port)?))).take(count).collect();
            if held.len() < count {
                return Err(format!("cannot find {count} free ports"));
            }
            Ok(held.into_iter().map(|(port, _)| port).collect())
        }
        Some(first) => {
            let ports: Vec<u16> = (first..=u16::MAX).take(count).collect();
            if ports.len() < count {
                return Err("data nodes take ports one behind the other, and there are none behind 65535: --port names a \
                            lower one"
                    .to_owned());
            }
            match ports.iter().find(|&&port| !is_free(port)) {
                Some(taken) => {
                    Err(format!("port {taken} of {HOST} is in use: --port names another first one"))
                }
                None => Ok(ports),
            }
        }
        None => more_ports(count, &[]),
    }
}

fn text(size: Size, ports: &[u16], memory_bytes: u64, key: &Path) -> String {
    let Size { data_nodes, replicas, .. } = size;
    let key = key.display();
    let mut text = format!(
        "# The nodes of this cluster. Written by 'vinga up', which keeps it from now on: parameters may be changed here\n\
         # and added (docs/configuration.md); they hold when nodes are started.\n\
         [ndbd default]\n\
         NoOfReplicas={replicas}\n\
         HostName={HOST}\n\
         # Whoever connects by TCP proves this key: key={key} before the addresses.\n\
         ClusterKeyFile={key}\n\
         # Several data nodes keep nothing on disk in this version.\n\
         Diskless=yes\n"
    );
    // By default a node takes up to a quarter of the machine's memory.
    if data_nodes > 2 {
        let share = ((memory_bytes >> 20) / 2 / u64::from(data_nodes)).max(16);
        let _ = writeln!(text, "# All of them together: half of the machine's memory.\nDataMemory={share}M");
    }
    for (node, port) in (1..).zip(ports) {
        let _ = if node <= data_nodes {
            write!(text, "\n[ndbd]\nNodeId={node}\nServerPort={port}\n")
        } else {
            write!(
                text,
                "\n# Decides which data nodes go on when they lose each other.\n[ndb_mgmd]\nNodeId={node}\n\
                 HostName={HOST}\nPortNumber={port}\nClusterKeyFile={key}\n"
            )
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_config::configuration::Configuration;
    use vinga_config::parameters::Parameter;
    use vinga_datanode::this_machine;

    #[test]
    fn what_is_written_is_a_good_configuration() {
        let place = tempfile::tempdir().expect("a folder");
        let file = ClusterFile::of(&place.path().join("cluster"));
        assert!(file.read().expect("it may be missing").is_none());
        let size = Size { data_nodes: 4, replicas: 2, management_nodes: 1 };
        {
            let mut locked = file.lock().expect("it can be made");
            assert!(file.read().expect("it is empty").is_none());
            locked.describe(size, Some(0), 16 << 30).expect("there are free ports");
        }
        let read = file.read().expect("it can be read").expect("it is there");
        assert_eq!(read.data_node_ids(), [1, 2, 3, 4]);
        assert_eq!(read.management_node_ids(), [5]);
        let flags = [("NodeId", "3")];
        let configuration = Configuration::new(Some(&read), &flags, &this_machine()).expect("it is good");
        assert_eq!(configuration.warnings, Vec::<String>::new());
        assert_eq!(configuration.parameters.integer(Parameter::DataMemory), 2 << 30);
        let key = configuration.parameters.text(Parameter::ClusterKeyFile).expect("it has a key");
        assert!(key.starts_with('/') && ClusterKey::read(Path::new(key)).is_ok(), "{key}");
        let nodes = &configuration.data_nodes;
        assert_eq!((nodes.all().len(), nodes.replicas(), nodes.groups()), (4, 2, 2));
        let mut ports: Vec<u16> = nodes.all().iter().map(|node| node.port).collect();
        ports.extend(configuration.management_nodes.iter().map(|node| node.port));
        ports.sort_unstable();
        ports.dedup();
        assert!(ports.len() == 5 && !ports.contains(&0), "{ports:?}");
    }

    /// One that waits for the lock of the file has opened the one that is removed.
    #[test]
    fn a_file_that_is_withdrawn_is_gone_and_may_be_made_again() {
        let place = tempfile::tempdir().expect("a folder");
        let file = ClusterFile::of(place.path());
        let first = file.lock().expect("it can be made");
        let waiting = File::open(file.path()).expect("it is there");
        assert_eq!(first.withdraw("why".to_owned()), "why");
        assert!(!file.path().exists() && !file.is_at_path(&waiting).expect("it can be looked at"));
        let second = file.lock().expect("it can be made again");
        let is_there = |one| file.is_at_path(one).expect("it can be looked at");
        assert!(is_there(&second.file) && !is_there(&waiting));
    }

    #[test]
    fn ports_are_free_ones() {
        let taken = TcpListener::bind((HOST, 0)).expect("there is a free port");
        let port = taken.local_addr().expect("it is bound").port();
        let size = |data_nodes, management_nodes| Size { data_nodes, replicas: 1, management_nodes };
        let why = ports(size(2, 0), Some(port)).expect_err("it is in use");
        assert!(why.contains(&format!("port {port} of 127.0.0.1 is in use")), "{why}");
        assert!(ports(size(3, 0), Some(65_534)).expect_err("there are two").contains("lower one"));
        let first = ports(size(3, 1), None).expect("there are free ports");
        assert!(first[0] >= PORT && first[..3].is_sorted() && first[3] >= MANAGEMENT_PORT, "{first:?}");
        assert!(first.len() == 4 && !first[..3].contains(&first[3]), "{first:?}");
    }

    #[test]
    fn replicas_divide_data_nodes() {
        let size = |data_nodes, replicas| Size { data_nodes, replicas, management_nodes: 0 };
        assert_eq!(size(6, 3).check(), Ok(()));
        let why = size(6, 4).check().expect_err("no");
        assert!(why.contains("6 data nodes") && why.ends_with("allowed: 1, 2, 3"), "{why}");
        let why = size(1, 2).check().expect_err("no");
        assert!(why.contains("one data node") && why.ends_with("allowed: 1"), "{why}");
    }
}
