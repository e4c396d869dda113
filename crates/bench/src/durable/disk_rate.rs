//! How fast the disk takes what a node writes of checkpoints, without a node.
//!
//! One file, as the rows of a table lie with one data manager on a small machine; as many blocks on their way as a
//! checkpoint has, each of the same size; past the system's cache, into room that was allocated before; a flush at the
//! end.

use crate::failure::{Context, Result};
use crate::keys::mix;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Instant;
use vinga_base::aligned::AlignedBuffer;

/// Bytes of a write: those of a checkpoint's block.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks that are on their way to the disk at a time.
const TOGETHER: u64 = 4;

/// Writes about so many bytes into a file, which is removed afterwards; returns bytes a second.
///
/// # Errors
/// The system's.
pub fn measure(path: &Path, bytes: u64) -> Result<f64> {
    let blocks = (bytes / BLOCK_BYTES as u64).max(TOGETHER);
    let file = open(path, blocks)?;
    let begun = Instant::now();
    let ends: Vec<io::Result<()>> = thread::scope(|scope| {
        let file = &file;
        let threads: Vec<_> =
            (0..TOGETHER).map(|first| scope.spawn(move || write(file, first, blocks))).collect();
        threads.into_iter().map(|thread| thread.join().expect("writers do not panic")).collect()
    });
    let flushed = file.sync_data();
    let seconds = begun.elapsed().as_secs_f64();
    fs::remove_file(path).context(|| format!("cannot remove {}", path.display()))?;
    let written = ends.into_iter().chain([flushed]).collect::<io::Result<()>>();
    written.context(|| format!("cannot write {}", path.display()))?;
    Ok((blocks * BLOCK_BYTES as u64) as f64 / seconds)
}

/// A new file with room for so many blocks; past the cache if the file system can do that, as in a node.
fn open(path: &Path, blocks: u64) -> Result<File> {
    let open = |flags: OFlags| {
        let flags = i32::try_from(flags.bits()).expect("flags are few");
        OpenOptions::new().create(true).truncate(true).write(true).custom_flags(flags).open(path)
    };
    let file = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty()));
    let file = file.context(|| format!("cannot write {}", path.display()))?;
    fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK_BYTES as u64)
        .context(|| format!("there is no room for {}", path.display()))?;
    Ok(file)
}

/// Writes every fourth block.
fn write(file: &File, first: u64, blocks: u64) -> io::Result<()> {
    // Not zeros, in case that something below compresses.
    let bytes: Vec<u8> = (0..BLOCK_BYTES).map(|at| (mix(at as u64) & 0xff) as u8).collect();
    let block = AlignedBuffer::copy_of(&bytes);
    for number in (first..blocks).step_by(TOGETHER as usize) {
        file.write_all_at(&block, number * BLOCK_BYTES as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_and_removed() {
        let path = std::env::temp_dir().join(format!("vinga-bench-disk-{}", std::process::id()));
        assert!(measure(&path, 8 << 20).unwrap() > 0.0);
        assert!(!path.exists());
        assert!(measure(Path::new("/no-such-folder/file"), 1).is_err());
    }
}
