//! Which versions of the protocol two nodes speak.
//!
//! Each greeting begins with [`MAGIC`](crate::handshake::MAGIC) and a [`Protocol`]: the version of the build, and the
//! oldest one with which it can talk. Two nodes may talk if neither is too old for the other one; the older one need
//! not know the newer one for that. So the nodes of a cluster are replaced by those of the next build one after the
//! other (`docs/operations.md`).
//!
//! **What a new version may change.** A build that has [`PROTOCOL_OLDEST`] below [`PROTOCOL_VERSION`] understands both.
//! What it sends to an older node is of that one's version: to a client or from one that of its greeting; among data
//! nodes that of the view, the lowest of its members ([`ClusterView::protocol`](crate::view::ClusterView::protocol)).
//! So nothing new is said before the last older member has gone, and one that comes back is a member before it is sent
//! anything. Where a build can't do that, `PROTOCOL_OLDEST` is raised: nodes of the build before are refused then, and
//! the cluster has to begin anew. There is one version so far: nothing asks yet in which one to send.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU32, Ordering};
use serde::{Deserialize, Serialize};

/// The version of the protocol that this build speaks.
pub const PROTOCOL_VERSION: u16 = 29;

/// The oldest version that it speaks, too.
pub const PROTOCOL_OLDEST: u16 = 29;

/// The versions that a node speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Protocol {
    /// The newest one: that of its build.
    pub version: u16,
    /// The oldest one.
    pub oldest: u16,
}

/// What [`Protocol::pretend`] was given, or 0.
static PRETENDED: AtomicU32 = AtomicU32::new(0);

impl Protocol {
    /// Those of this build.
    pub fn own() -> Self {
        match PRETENDED.load(Ordering::Relaxed) {
            0 => Protocol { version: PROTOCOL_VERSION, oldest: PROTOCOL_OLDEST },
            pretended => Protocol { version: (pretended >> 16) as u16, oldest: pretended as u16 },
        }
    }

    /// Has this process say that it speaks others, before it does anything else: tests have nodes of another build by
    /// that.
    pub fn pretend(self) {
        PRETENDED.store(u32::from(self.version) << 16 | u32::from(self.oldest), Ordering::Relaxed);
    }

    /// The version in which this node and another one talk: that of the older one.
    ///
    /// # Errors
    /// There is none; a text with the versions of both, this one's first.
    pub fn common(self, other: Protocol) -> Result<u16, String> {
        let version = self.version.min(other.version);
        if version >= self.oldest.max(other.oldest) {
            return Ok(version);
        }
        Err(format!("{} here, {} at the other side", self.describe(), other.describe()))
    }

    fn describe(self) -> String {
        let Protocol { version, oldest } = self;
        if version <= oldest {
            format!("version {version}")
        } else {
            format!("versions {oldest} to {version}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_versions_talk_in_the_older_one() {
        let of = |version, oldest| Protocol { version, oldest };
        assert_eq!(of(8, 7).common(of(8, 8)), Ok(8));
        assert_eq!(of(8, 7).common(of(7, 6)), Ok(7));
        assert_eq!(of(7, 6).common(of(8, 7)), Ok(7));
        let why = of(7, 6).common(of(9, 8)).expect_err("they have none in common");
        assert_eq!(why, "versions 6 to 7 here, versions 8 to 9 at the other side");
        let why = of(8, 8).common(of(7, 7)).expect_err("they have none in common");
        assert_eq!(why, "version 8 here, version 7 at the other side");
    }
}
