//! Which of the two schema files counts.

use crate::block::BlockError;
use crate::checksum::Checksum;
use crate::schema::{SchemaError, SchemaExtent, SchemaFile, read};
use core::fmt;

/// Why neither of the two schema files can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChooseError {
    /// There are no files.
    Missing,
    /// A file that may be the newer one can't be used, and not because it was cut short.
    Damaged {
        /// Which file.
        file: usize,
        /// What is wrong with it.
        error: SchemaError,
    },
    /// Both files are of the same generation.
    SameGeneration(u64),
    /// The newest file holds less than was on the disk.
    Behind {
        /// What the file holds.
        found: SchemaExtent,
        /// What was on the disk.
        known: SchemaExtent,
        /// What is in the place of the next block.
        remains: Option<BlockError>,
    },
}

/// Chooses between the two schema files: the newer generation that is whole. Also returns which file it is in. An empty
/// slice is a file that does not exist. `known` is what was surely on the disk: a damaged block at the end of a file
/// can't be distinguished from a torn write otherwise.
///
/// # Errors
/// See [`ChooseError`].
pub fn choose<'a>(
    files: [&'a [u8]; 2],
    known: SchemaExtent,
    checksum: Checksum,
) -> Result<(usize, SchemaFile<'a>), ChooseError> {
    let read = files.map(|bytes| read(bytes, checksum));
    for (file, result) in read.iter().enumerate() {
        match result {
            Ok(_) | Err(SchemaError::Missing | SchemaError::Incomplete { .. }) => {}
            // A rewriting that was cut short in its first block: the generation before is still there.
            Err(SchemaError::Block(error)) if read[1 - file].is_ok() && !error.is_of_writer() => {}
            Err(error) => return Err(ChooseError::Damaged { file, error: *error }),
        }
    }
    let (number, file) = match read {
        [Ok(first), Ok(second)] if first.generation == second.generation => {
            return Err(ChooseError::SameGeneration(first.generation));
        }
        [Ok(first), Ok(second)] if first.generation > second.generation => (0, first),
        [_, Ok(second)] => (1, second),
        [Ok(first), Err(_)] => (0, first),
        [Err(SchemaError::Missing), Err(SchemaError::Missing)] => return Err(ChooseError::Missing),
        [Err(error), Err(SchemaError::Missing)] => return Err(ChooseError::Damaged { file: 0, error }),
        [Err(_), Err(error)] => return Err(ChooseError::Damaged { file: 1, error }),
    };
    let found = file.extent();
    if (found.generation, found.blocks) < (known.generation, known.blocks) {
        return Err(ChooseError::Behind { found, known, remains: file.remains });
    }
    Ok((number, file))
}

impl ChooseError {
    /// Whether a newer program has written what can't be read: nothing is damaged.
    pub fn is_of_newer_program(&self) -> bool {
        match self {
            ChooseError::Damaged {
                error: SchemaError::Block(error) | SchemaError::Unknown { error, .. },
                ..
            }
            | ChooseError::Behind { remains: Some(error), .. } => {
                matches!(error, BlockError::UnknownVersion { .. })
            }
            _ => false,
        }
    }
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChooseError::Missing => f.write_str("there is no schema file"),
            ChooseError::Damaged { file, error } => {
                write!(f, "schema file {file} can't be used: at offset {}: {error}", error.offset())
            }
            ChooseError::SameGeneration(generation) => {
                write!(f, "both schema files are of generation {generation}")
            }
            ChooseError::Behind { found, known, remains } => {
                write!(
                    f,
                    "the definitions end at block {} of generation {}, but block {} of generation {} was on the disk",
                    found.blocks.saturating_sub(1),
                    found.generation,
                    known.blocks.saturating_sub(1),
                    known.generation
                )?;
                remains.map_or(Ok(()), |error| write!(f, ": {error}"))
            }
        }
    }
}

impl core::error::Error for ChooseError {}
