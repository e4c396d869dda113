//! What a power cut leaves of a folder.
//!
//! What the disk promises is less than any file system does (the model is that of ALICE, OSDI 2014):
//!
//! - Written data is there for certain when a flush of its file has returned that began after the write had returned.
//!   Until then each 512 bytes of each write are there or not.
//! - The size of a file is what was flushed, or what any write or growth since has made it; a growth may be done in
//!   part.
//! - A name that was made, changed or removed is so for certain when a flush of its folder has returned that began
//!   after the call had returned; before that it is so or not, whatever became of calls before it. A rename is done
//!   or not, at once. A file whose folder is gone is gone.

use super::trace::{Bytes, Call, Event};
use crate::tools::image::Image;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// What the disk writes as a whole.
const ATOM: usize = 512;
/// Which of the calls that may be undone are.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Nothing,
    All,
    /// Of what was written the newest only.
    Newest,
    /// Some calls, in any order, some of the writes in part.
    Some,
    /// Any part of any write.
    Anything,
}

/// A change of a file that is not on the disk for certain.
#[derive(Clone)]
struct Change {
    /// The event that began it.
    begun: usize,
    offset: u64,
    /// `None`: the file gets this size.
    bytes: Option<Bytes>,
}

/// A file, whatever its names are.
#[derive(Clone, Default)]
struct Inode {
    flushed: Vec<u8>,
    changes: Vec<Change>,
}

/// A change of names that is not on the disk for certain.
#[derive(Clone)]
struct Naming {
    begun: usize,
    has_returned: bool,
    what: NewName,
    /// Folders that are to be flushed.
    folders: BTreeSet<String>,
}

#[derive(Clone)]
enum NewName {
    Folder(String),
    File(String, usize),
    Other { from: String, to: String },
    None(String),
}

/// Names on the disk.
#[derive(Clone, Default)]
struct Names {
    folders: BTreeSet<String>,
    files: BTreeMap<String, usize>,
}

/// The disk after some of the events.
pub struct Disk {
    inodes: Vec<Inode>,
    /// For certain.
    names: Names,
    /// As they are while the power is on.
    seen: BTreeMap<String, usize>,
    namings: Vec<Naming>,
    /// For each flush that has not returned the changes, or changes of names, that it makes certain.
    flushes: BTreeMap<usize, BTreeSet<usize>>,
}

impl Disk {
    /// A disk that has this for certain, and then sees these events.
    pub fn after(image: &Image, events: &[Event]) -> Self {
        let mut disk = Disk {
            inodes: Vec::new(),
            names: Names { folders: image.folders.clone(), files: BTreeMap::new() },
            seen: BTreeMap::new(),
            namings: Vec::new(),
            flushes: BTreeMap::new(),
        };
        for (number, (name, bytes)) in image.files.iter().enumerate() {
            disk.inodes.push(Inode { flushed: bytes.clone(), changes: Vec::new() });
            disk.names.files.insert(name.clone(), number);
        }
        disk.seen.clone_from(&disk.names.files);
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Begin(call) => disk.begin(at, call),
                Event::End { of, is_done } => {
                    let Event::Begin(call) = &events[*of] else { panic!("event {of} is a call") };
                    disk.end(*of, call, *is_done);
                }
            }
        }
        disk
    }

    fn file(&mut self, name: &str) -> &mut Inode {
        let number = *self.seen.get(name).unwrap_or_else(|| panic!("{name} is there"));
        &mut self.inodes[number]
    }

    fn begin(&mut self, at: usize, call: &Call) {
        let change = |offset, bytes| Change { begun: at, offset, bytes };
        match call {
            Call::Write { file, offset, bytes } => {
                self.file(file).changes.push(change(*offset, Some(bytes.clone())));
            }
            Call::Grow { file, bytes } => self.file(file).changes.push(change(*bytes, None)),
            Call::Flush(file) => {
                // Calls on a file are made one after the other: those before have returned.
                let changes = self.file(file).changes.iter().map(|change| change.begun).collect();
                self.flushes.insert(at, changes);
            }
            Call::FlushFolder(folder) => {
                let covered =
                    self.namings.iter().filter(|one| one.has_returned && one.folders.contains(folder));
                let covered = covered.map(|naming| naming.begun).collect();
                self.flushes.insert(at, covered);
            }
            Call::MakeFolder(folder) => self.name(at, NewName::Folder(folder.clone())),
            Call::Create(file) => {
                self.inodes.push(Inode::default());
                let number = self.inodes.len() - 1;
                self.seen.insert(file.clone(), number);
                self.name(at, NewName::File(file.clone(), number));
            }
            Call::Rename { from, to } => {
                if let Some(number) = self.seen.remove(from) {
                    self.seen.insert(to.clone(), number);
                    self.name(at, NewName::Other { from: from.clone(), to: to.clone() });
                }
            }
            Call::Remove(file) => {
                if self.seen.remove(file).is_some() {
                    self.name(at, NewName::None(file.clone()));
                }
            }
            Call::Elsewhere => {}
        }
    }

    fn name(&mut self, at: usize, what: NewName) {
        let folders = what.names().into_iter().map(|name| folder_of(name).to_owned()).collect();
        self.namings.push(Naming { begun: at, has_returned: false, what, folders });
    }

    fn end(&mut self, of: usize, call: &Call, is_done: bool) {
        assert!(is_done || matches!(call, Call::Remove(_)), "no call fails here: {call:?}");
        match call {
            Call::Flush(file) => {
                let covered = self.flushes.remove(&of).expect("it has begun");
                let inode = self.file(file);
                for change in std::mem::take(&mut inode.changes) {
                    if covered.contains(&change.begun) {
                        change.apply(&mut inode.flushed, |_| true);
                    } else {
                        inode.changes.push(change);
                    }
                }
            }
            Call::FlushFolder(folder) => {
                let covered = self.flushes.remove(&of).expect("it has begun");
                for mut naming in std::mem::take(&mut self.namings) {
                    if covered.contains(&naming.begun) {
                        naming.folders.remove(folder);
                    }
                    match naming.folders.is_empty() {
                        true => self.names.apply(&naming.what),
                        false => self.namings.push(naming),
                    }
                }
            }
            _ => {
                for naming in self.namings.iter_mut().filter(|naming| naming.begun == of) {
                    naming.has_returned = true;
                }
            }
        }
    }

    /// What the next start finds if the power fails now.
    pub fn cut(&self, random: &mut Rng) -> Image {
        let kinds = [Kept::Nothing, Kept::All, Kept::Newest, Kept::Some, Kept::Anything];
        let (data, naming) = (kinds[random.usize(..5)], kinds[random.usize(..5)]);
        let mut names = self.names.clone();
        let some = random.usize(..=self.namings.len());
        for (at, one) in self.namings.iter().enumerate() {
            let is_kept = match naming {
                Kept::Nothing => false,
                Kept::All => true,
                Kept::Newest => at + 1 == self.namings.len(),
                Kept::Some => at < some,
                Kept::Anything => random.bool(),
            };
            if is_kept {
                names.apply(&one.what);
            }
        }
        let newest =
            self.inodes.iter().flat_map(|inode| inode.changes.last()).map(|change| change.begun).max();
        let mut image = Image { folders: names.folders, files: BTreeMap::new() };
        for (name, number) in names.files {
            if folder_of(&name).is_empty() || image.folders.contains(folder_of(&name)) {
                let bytes = self.inodes[number].cut(data, newest, random);
                image.files.insert(name, bytes);
            }
        }
        image
    }
}

impl NewName {
    fn names(&self) -> Vec<&str> {
        match self {
            NewName::Folder(name) | NewName::File(name, _) | NewName::None(name) => vec![name],
            NewName::Other { from, to } => vec![from, to],
        }
    }
}

impl Names {
    fn apply(&mut self, what: &NewName) {
        match what {
            NewName::Folder(name) => _ = self.folders.insert(name.clone()),
            NewName::File(name, number) => _ = self.files.insert(name.clone(), *number),
            // What was to be renamed may not have got its first name.
            NewName::Other { from, to } => {
                if let Some(number) = self.files.remove(from) {
                    self.files.insert(to.clone(), number);
                }
            }
            NewName::None(name) => _ = self.files.remove(name),
        }
    }
}

impl Inode {
    fn cut(&self, kept: Kept, newest: Option<usize>, random: &mut Rng) -> Vec<u8> {
        let mut bytes = self.flushed.clone();
        let mut changes: Vec<&Change> = self.changes.iter().collect();
        match kept {
            Kept::Nothing => changes.clear(),
            Kept::All | Kept::Anything => {}
            Kept::Newest => changes.retain(|change| Some(change.begun) == newest),
            Kept::Some => {
                changes.retain(|_| random.bool());
                random.shuffle(&mut changes);
            }
        }
        for change in changes {
            let is_torn = match kept {
                Kept::Anything => true,
                Kept::Some => random.u8(..4) == 0,
                Kept::Nothing | Kept::All | Kept::Newest => false,
            };
            if is_torn && change.bytes.is_none() {
                let part = random.usize(..=change.offset as usize);
                bytes.resize(bytes.len().max(part), 0);
            } else {
                change.apply(&mut bytes, |_| !is_torn || random.bool());
            }
        }
        bytes
    }
}

impl Change {
    /// Carries it out, as far as `is_kept` says of each 512 bytes.
    fn apply(&self, file: &mut Vec<u8>, mut is_kept: impl FnMut(usize) -> bool) {
        let offset = self.offset as usize;
        let Some(bytes) = &self.bytes else {
            if is_kept(0) {
                file.resize(file.len().max(offset), 0);
            }
            return;
        };
        for at in (0..bytes.len()).step_by(ATOM) {
            let end = (at + ATOM).min(bytes.len());
            if is_kept(at) {
                file.resize(file.len().max(offset + end), 0);
                bytes.copy(at, &mut file[offset + at..offset + end]);
            }
        }
    }
}

/// The folder that a name is in: the node's own is the empty one.
fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}
