//! Bytes that were read from a connection and not handled yet.
//!
//! Bytes are read into a buffer that all connections of a thread share, so that it stays in the cache, and frames are
//! handled there. Only what is left at its end is copied into the connection's own memory: the beginning of a frame,
//! which the next read completes; or whole frames, when the connection is *held back* because its answers have piled
//! up. So no byte is copied more than twice, also when a large frame arrives in single bytes.

use vinga_wire::Frame;
use vinga_wire::frame::{FRAME_BYTES_MAX, HEADER_BYTES};

/// Bytes of the beginning of a frame for which there is room from the start.
const HELD_BYTES: usize = 4 * 1024;

/// Bytes of a connection that were read and not handled yet.
pub(crate) struct Input {
    held: Vec<u8>,
    is_held_back: bool,
}

impl Input {
    /// Of a connection of which `early` was read already.
    pub fn new(early: &[u8]) -> Self {
        let mut input = Input { held: Vec::with_capacity(HELD_BYTES), is_held_back: false };
        input.keep(early);
        input
    }

    /// Whether frames wait here that could be handled.
    pub fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        self.is_held_back = begins_with_frame(&self.held);
    }

    /// Hands on the bytes that were just read: `handle` gets runs of bytes, returns how many it took (whole frames) and
    /// may stop early. Nothing is held back before the call.
    pub fn take_in<E>(
        &mut self,
        mut run: &[u8],
        handle: &mut impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if !self.held.is_empty() {
            run = self.complete(run);
            self.is_held_back = begins_with_frame(&self.held);
            self.release(handle)?;
            if !self.held.is_empty() {
                self.keep(run);
                return Ok(());
            }
        }
        let handled = handle(run)?;
        self.keep(&run[handled..]);
        Ok(())
    }

    /// Hands on what was held back.
    pub fn release<E>(&mut self, handle: &mut impl FnMut(&[u8]) -> Result<usize, E>) -> Result<(), E> {
        if !self.is_held_back {
            return Ok(());
        }
        let handled = handle(&self.held)?;
        self.held.drain(..handled);
        self.is_held_back = begins_with_frame(&self.held);
        if self.held.is_empty() {
            self.held.shrink_to(FRAME_BYTES_MAX);
        }
        Ok(())
    }

    /// Completes the frame that was begun with bytes from the front of `run`; returns the rest of `run`.
    fn complete<'r>(&mut self, mut run: &'r [u8]) -> &'r [u8] {
        while !run.is_empty() && !begins_with_frame(&self.held) {
            let whole = match self.held.first_chunk::<4>() {
                Some(length) if self.held.len() >= HEADER_BYTES => u32::from_le_bytes(*length) as usize,
                _ => HEADER_BYTES,
            };
            let (rest, behind) = run.split_at(run.len().min(whole - self.held.len()));
            self.held.reserve(whole - self.held.len());
            self.held.extend_from_slice(rest);
            run = behind;
        }
        run
    }
}

/// Whether the bytes begin with a whole frame, or can never become one: either way `handle` must see them.
fn begins_with_frame(bytes: &[u8]) -> bool {
    !matches!(Frame::first(bytes), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(body: usize, mark: u8) -> Vec<u8> {
        let mut bytes = vec![mark; HEADER_BYTES + body * 4];
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Takes whole frames until `allowed` is used up, as a held-back connection does.
    fn handle_into<'a>(
        out: &'a mut Vec<u8>,
        allowed: &'a mut usize,
    ) -> impl FnMut(&[u8]) -> Result<usize, &'static str> + 'a {
        |run| {
            let mut handled = 0;
            while let Some(frame) = Frame::first(&run[handled..]).map_err(|_| "no frame")? {
                if *allowed == 0 {
                    break;
                }
                *allowed -= 1;
                out.extend_from_slice(&run[handled..handled + frame.length()]);
                handled += frame.length();
            }
            Ok(handled)
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            bodies in proptest::collection::vec(0usize..60, 1..40),
            cuts in proptest::collection::vec(1usize..200, 1..40),
            allowances in proptest::collection::vec(0usize..5, 1..40),
        ) {
            let sent: Vec<u8> = bodies.iter().zip(0..).flat_map(|(&body, mark)| frame(body, mark)).collect();
            let (mut input, mut out) = (Input::new(b""), Vec::new());
            let (mut rest, mut cuts, mut allowances) = (&sent[..], cuts.iter().cycle(), allowances.iter().cycle());
            let mut rounds = 0;
            while !rest.is_empty() || input.is_held_back() {
                rounds += 1;
                let mut allowed = *allowances.next().unwrap() + rounds / 200;
                input.release(&mut handle_into(&mut out, &mut allowed)).unwrap();
                if !input.is_held_back() {
                    let (run, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                    rest = behind;
                    input.take_in(run, &mut handle_into(&mut out, &mut allowed)).unwrap();
                }
            }
            prop_assert_eq!(out, sent);
            prop_assert!(input.held.is_empty());
        }

        #[test]
        fn garbage_is_handed_on_and_refused(bytes in proptest::collection::vec(any::<u8>(), 40..80), cut in 1usize..30) {
            let (mut input, mut out, mut allowed) = (Input::new(b""), Vec::new(), 1000);
            let mut handle = handle_into(&mut out, &mut allowed);
            let refused = input.take_in(&bytes[..cut], &mut handle).is_err()
                || input.take_in(&bytes[cut..], &mut handle).is_err();
            let length = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
            let possible = (HEADER_BYTES..=FRAME_BYTES_MAX).contains(&length) && length.is_multiple_of(4);
            prop_assert!(refused || possible);
        }
    }
}
