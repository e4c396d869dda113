//! `DataMemory`: one region, shared by all data managers of the node. Beyond it there are pages that only a restart may
//! use (`vinga_base::page_pool`): address space, as long as it does not need them.

use std::sync::Arc;
use vinga_base::page_pool::{PAGE_BYTES, PagePool, PageRegion, restart_pages};
use vinga_config::configuration::Configuration;
use vinga_config::parameters::Parameter;
use vinga_runtime::memory::{MappedRegion, SharedPages};

/// The node's `DataMemory`: a mapped region and the list of its free pages, which all data managers share.
pub struct DataMemory {
    region: Arc<dyn PageRegion>,
    supply: SharedPages,
}

impl DataMemory {
    /// Maps it, and locks it in memory if the configuration asks for that and the system allows it. Only a node that
    /// restores rows at its start may need pages beyond it.
    ///
    /// # Errors
    /// A text that says what the system refused.
    pub fn map(configuration: &Configuration, restores: bool) -> Result<Self, String> {
        let bytes = configuration.parameters.integer(Parameter::DataMemory);
        let pages = u32::try_from(bytes / PAGE_BYTES as u64)
            .map_err(|_| format!("DataMemory: {bytes} bytes are more than {} pages of 32K", u32::MAX))?;
        let lock = configuration.parameters.integer(Parameter::LockPagesInMemory);
        let not_mapped = |error| format!("DataMemory: {bytes} bytes could not be mapped: {error}");
        let beyond = if restores { restart_pages(pages) } else { 0 };
        let (region, beyond) = match MappedRegion::new(pages + beyond) {
            Ok(region) => (region, beyond),
            // Address space is limited (ulimit -v), or must be backed by memory (vm.overcommit_memory).
            Err(why) => {
                let region = MappedRegion::new(pages).map_err(not_mapped)?;
                log::warn!(
                    target: "memory",
                    "there is no address space beyond DataMemory ({why}): a restart that needs more memory for a moment \
                     is refused"
                );
                (region, 0)
            }
        };
        if lock > 0 {
            region.touch(pages).map_err(not_mapped)?;
        }
        let locked = match lock {
            0 => Ok(()),
            1 => region.lock(pages),
            _ => vinga_runtime::memory::lock_all(),
        };
        if let Err(why) = locked {
            log::warn!(target: "memory", "LockPagesInMemory: {why}");
        }
        let (region, supply) = (Arc::new(region), SharedPages::new(pages, beyond));
        if lock == 0 {
            supply.touch_ahead(&region);
        }
        Ok(DataMemory { region, supply })
    }

    /// The pool of one data manager.
    pub fn pool(&self) -> PagePool {
        PagePool::new(self.region.clone(), Box::new(self.supply.clone()))
    }
}
