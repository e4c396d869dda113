//! Pages generated from the description of the command line: completion for shells, manual pages.

use clap::CommandFactory;
use std::path::Path;
use vinga_runtime::{console, say};

/// Prints the completion script of a shell.
pub fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Arguments::command(), "vinga", &mut script);
    console::print(format_args!("{}", String::from_utf8_lossy(&script)));
}

/// Writes a manual page for each command.
///
/// # Errors
/// A text that says what failed.
pub fn manual(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot write manual pages into {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(crate::Arguments::command(), folder).map_err(failed)?;
    say!("the manual pages are in {0}: man {0}/vinga.1", folder.display());
    Ok(())
}
