//! Files beside the mark of a first start (`vinga.initial`) that the first start can't have made: somebody has put them
//! there. They are not initialised over.
//!
//! Until a copy of the system file is whole, an interrupted first start has made files of the log that hold nothing,
//! and the first generation of the schema file, without definitions. From then on every block of its files says whose
//! it is.

use crate::database_files::{DatabaseFiles, why_refused};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use vinga_base::NodeId;
use vinga_base::aligned::SECTOR_BYTES;
use vinga_format::Checksum;
use vinga_format::block::{is_blank, read_block};
use vinga_format::schema::{self, SchemaError};
use vinga_kernel::files::FileKind;

/// Of a schema file so much is read: the first generation is much shorter.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// The number of the first generation of the schema file.
const FIRST_GENERATION: u64 = 1;

/// A file that the first start of a node can't have made, if there is one. `owner` is the cluster and the node of the
/// system file, if a copy of that is whole.
///
/// # Errors
/// A file can't be read; the text names it.
pub fn foreign_file(
    files: &DatabaseFiles<'_>,
    owner: Option<(u64, NodeId)>,
    checksum: Checksum,
) -> Result<Option<PathBuf>, String> {
    for kind in [FileKind::Checkpoint, FileKind::Redo, FileKind::Schema] {
        for path in files.list(kind)? {
            let bytes_max = if kind == FileKind::Schema { SCHEMA_BYTES_MAX } else { SECTOR_BYTES as u64 };
            let bytes = beginning(&path, bytes_max)
                .map_err(|why| format!("{} can't be read: {}", path.display(), why_refused(&why)))?;
            let is_foreign = match (owner, kind) {
                (Some(owner), _) => is_of_another(&bytes, owner, checksum),
                (None, FileKind::Schema) => has_definitions(&bytes, checksum),
                (None, _) => !is_blank(&bytes),
            };
            if is_foreign {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

fn beginning(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a block begins the file that another node has written, or one of another cluster.
fn is_of_another(bytes: &[u8], owner: (u64, NodeId), checksum: Checksum) -> bool {
    read_block(bytes, checksum)
        .is_ok_and(|block| (block.head.origin.cluster, block.head.origin.node) != owner)
}

/// Whether a schema file has more than what a first start writes: one entry with a limit of versions. A file that was
/// torn by a power cut while that was written has nothing.
fn has_definitions(bytes: &[u8], checksum: Checksum) -> bool {
    match schema::read(bytes, checksum) {
        Ok(file) => file.generation != FIRST_GENERATION || file.entries.len() > 1,
        Err(SchemaError::Incomplete { generation, .. }) => generation != FIRST_GENERATION,
        Err(SchemaError::Missing | SchemaError::Block(_)) => false,
        Err(
            SchemaError::OtherFormat(_)
            | SchemaError::Unknown { .. }
            | SchemaError::Malformed { .. }
            | SchemaError::Damaged { .. },
        ) => true,
    }
}

/// Why the node does not start beside such a file.
pub fn refusal(mark: &Path, file: &Path) -> String {
    format!(
        "the first start of this node was not finished ({}), but {} is none of the files that it has made: move that file \
         away, or replace all files of the database in this folder by a complete copy of one; or begin anew with \
         --initial, which removes them",
        mark.display(),
        file.display()
    )
}
