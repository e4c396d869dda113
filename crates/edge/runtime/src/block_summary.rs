//! The most recent summary of the state of a thread's blocks, for crash reports.
//!
//! Blocks can't be queried when something has gone wrong: they may be what is broken. So each thread writes a few lines
//! about them about once a second into a place that any thread may read at any moment, also inside a handler for a
//! fatal signal. There are two such places, used in turn, so that the one that was finished last stays unchanged for a
//! second. All bytes are in atomic words, written and read without order: at worst a reader that takes longer than that
//! sees some of the old text and some of the new.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a text, at most; longer ones are cut.
const BYTES_MAX: usize = 4096;

const WORD: usize = size_of::<u64>();

/// The newest texts about a thread's blocks.
pub(crate) struct BlockSummary {
    /// Which text is the newest.
    newest: AtomicU32,
    texts: [Text; 2],
}

struct Text {
    words: [AtomicU64; BYTES_MAX / WORD],
    length: AtomicUsize,
    /// The turn of the thread in which it was written.
    turn: AtomicU64,
}

impl Text {
    const fn empty() -> Self {
        Text {
            words: [const { AtomicU64::new(0) }; BYTES_MAX / WORD],
            length: AtomicUsize::new(0),
            turn: AtomicU64::new(0),
        }
    }
}

impl BlockSummary {
    /// No text yet.
    pub const fn new() -> Self {
        BlockSummary { newest: AtomicU32::new(0), texts: [const { Text::empty() }; 2] }
    }

    /// For the thread itself: what `write` writes is the newest text, as of this turn. Allocates nothing.
    pub fn update(&self, turn: u64, write: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) {
        let place = self.newest.load(Ordering::Relaxed) ^ 1;
        let text = &self.texts[place as usize];
        let mut writer = Writer { words: &text.words, length: 0, word: 0 };
        // It fails only when there is no room for more.
        let _ = write(&mut writer);
        text.length.store(writer.length, Ordering::Relaxed);
        text.turn.store(turn, Ordering::Relaxed);
        self.newest.store(place, Ordering::Release);
    }

    /// Drops the texts: the place will be used by another thread.
    pub fn clear(&self) {
        for text in &self.texts {
            text.length.store(0, Ordering::Relaxed);
        }
    }

    /// Writes the newest text, each line indented; nothing if there is none.
    pub fn tell(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let text = &self.texts[self.newest.load(Ordering::Acquire) as usize];
        let mut bytes = [0; BYTES_MAX];
        for (bytes, word) in bytes.chunks_exact_mut(WORD).zip(&text.words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let bytes = &bytes[..text.length.load(Ordering::Relaxed).min(BYTES_MAX)];
        if bytes.is_empty() {
            return Ok(());
        }
        writeln!(out, "  its blocks, as of turn {}:", text.turn.load(Ordering::Relaxed))?;
        for piece in bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(piece).unwrap_or("(a line that was being written)");
            writeln!(out, "    {line}")?;
        }
        Ok(())
    }
}

/// Writes bytes into words.
struct Writer<'a> {
    words: &'a [AtomicU64],
    length: usize,
    /// The word that is being filled.
    word: u64,
}

impl fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            let place = self.words.get(self.length / WORD).ok_or(fmt::Error)?;
            let shift = self.length % WORD * 8;
            if shift == 0 {
                self.word = 0;
            }
            self.word |= u64::from(byte) << shift;
            place.store(self.word, Ordering::Relaxed);
            self.length += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(summary: &BlockSummary) -> String {
        let mut text = String::new();
        summary.tell(&mut text).unwrap();
        text
    }

    #[test]
    fn the_newest_text_is_shown() {
        let summary = BlockSummary::new();
        assert_eq!(reported(&summary), "");
        summary.update(5, |out| out.write_str("first: 1 of 2\nsecond: é\n"));
        assert_eq!(reported(&summary), "  its blocks, as of turn 5:\n    first: 1 of 2\n    second: é\n");
        summary.update(9, |out| out.write_str("x"));
        assert_eq!(reported(&summary), "  its blocks, as of turn 9:\n    x\n");
        summary.update(10, |out| out.write_str(&"y".repeat(BYTES_MAX + 1)));
        assert_eq!(reported(&summary).matches('y').count(), BYTES_MAX);
        summary.clear();
        assert_eq!(reported(&summary), "");
    }
}
