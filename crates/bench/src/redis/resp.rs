//! The part of Redis' protocol that GET, SET and INFO need: a request is an array of bulk strings, an answer to SET is
//! `+OK`, one to GET or INFO a bulk string (`$LENGTH`, then the bytes) or `$-1`. Every line ends in CR LF.

use crate::failure::{Context, Failure, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

/// SETs that are sent together when keys are loaded.
const LOAD_PIPELINE: u64 = 500;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on which one request is under way at a time.
pub(super) struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects to a server on this machine and checks that it answers.
    pub fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context(|| "cannot connect to redis".into())?;
        stream.set_nodelay(true).context(|| "cannot set a socket up".into())?;
        stream.set_read_timeout(Some(PATIENCE)).context(|| "cannot set a socket up".into())?;
        let mut connection = Connection { stream, request: Vec::new(), answer: vec![0; 64 * 1024] };
        write_request(&mut connection.request, &[b"PING"]);
        connection.send()?;
        match connection.receive(b"+PONG\r\n".len())? {
            b"+PONG\r\n" => Ok(connection),
            _ => Err(Failure::new("redis does not answer a PING")),
        }
    }

    /// Sets all keys that `redis-benchmark -r` draws.
    pub fn load(&mut self, keys: u64, bytes: usize) -> Result<()> {
        let value = vec![b'x'; bytes];
        for first in (0..keys).step_by(LOAD_PIPELINE as usize) {
            let chunk = first..(first + LOAD_PIPELINE).min(keys);
            let wanted = b"+OK\r\n".repeat((chunk.end - chunk.start) as usize);
            for number in chunk {
                write_request(&mut self.request, &[b"SET", key(number).as_bytes(), &value]);
            }
            self.send()?;
            if self.receive(wanted.len())? != wanted {
                return Err(Failure::new("redis has refused a SET"));
            }
        }
        Ok(())
    }

    /// Writes a snapshot of all keys.
    pub fn save(&mut self) -> Result<()> {
        write_request(&mut self.request, &[b"SAVE"]);
        self.send()?;
        match self.receive(b"+OK\r\n".len())? {
            b"+OK\r\n" => Ok(()),
            other => {
                Err(Failure::new(format!("redis has answered a SAVE by {}", String::from_utf8_lossy(other))))
            }
        }
    }

    /// How many keys there are.
    pub fn keys(&mut self) -> Result<u64> {
        write_request(&mut self.request, &[b"DBSIZE"]);
        self.send()?;
        let mut held = 0;
        while !self.answer[..held].ends_with(b"\r\n") {
            held += self.receive_some(held)?;
        }
        let text = String::from_utf8_lossy(&self.answer[..held]);
        let number = text.trim().strip_prefix(':').and_then(|number| number.parse().ok());
        number.ok_or_else(|| Failure::new(format!("redis has answered a DBSIZE by {}", text.trim())))
    }

    /// Gets a key; returns the length of its value.
    pub fn get(&mut self, number: u64) -> Result<Option<usize>> {
        write_request(&mut self.request, &[b"GET", key(number).as_bytes()]);
        Ok(self.receive_bulk()?.map(|value| value.len()))
    }

    /// What the server says of itself in this section: lines `NAME:VALUE`.
    pub fn info(&mut self, section: &str) -> Result<String> {
        write_request(&mut self.request, &[b"INFO", section.as_bytes()]);
        match self.receive_bulk()? {
            Some(text) => Ok(String::from_utf8_lossy(&self.answer[text]).into_owned()),
            None => Err(Failure::new(format!("redis says nothing in the section {section} of INFO"))),
        }
    }

    /// Sends the request; returns where the bulk string is that answers it.
    fn receive_bulk(&mut self) -> Result<Option<Range<usize>>> {
        self.send()?;
        let mut held = 0;
        loop {
            held += self.receive_some(held)?;
            match parse_bulk(&self.answer[..held])? {
                Bulk::Unfinished => {}
                Bulk::Missing => return Ok(None),
                Bulk::Value(place) => return Ok(Some(place)),
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.request).context(|| "cannot send to redis".into());
        self.request.clear();
        sent
    }

    fn receive(&mut self, bytes: usize) -> Result<&[u8]> {
        let mut held = 0;
        while held < bytes {
            held += self.receive_some(held)?;
        }
        Ok(&self.answer[..held])
    }

    fn receive_some(&mut self, held: usize) -> Result<usize> {
        match self.stream.read(&mut self.answer[held..]).context(|| "cannot receive from redis".into())? {
            0 => Err(Failure::new("redis has closed the connection, or its answer is too long")),
            bytes => Ok(bytes),
        }
    }
}

/// A key as `redis-benchmark` writes it.
fn key(number: u64) -> String {
    format!("key:{number:012}")
}

fn write_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[derive(Debug, PartialEq)]
enum Bulk {
    Unfinished,
    Missing,
    /// Where its bytes are.
    Value(Range<usize>),
}

fn parse_bulk(answer: &[u8]) -> Result<Bulk> {
    let Some(end) = answer.windows(2).position(|pair| pair == b"\r\n") else { return Ok(Bulk::Unfinished) };
    let line = String::from_utf8_lossy(&answer[..end]);
    let length = line.strip_prefix('$').and_then(|length| length.parse::<i64>().ok());
    match length.ok_or_else(|| Failure::new(format!("redis has answered by {line}, no string")))? {
        -1 => Ok(Bulk::Missing),
        length => {
            let length = usize::try_from(length).context(|| "redis has sent a length below 0".into())?;
            let place = end + 2..end + 2 + length;
            Ok(if answer.len() < place.end + 2 { Bulk::Unfinished } else { Bulk::Value(place) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let mut out = Vec::new();
        write_request(&mut out, &[b"GET", key(42).as_bytes()]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n");
    }

    #[test]
    fn answers() {
        assert_eq!(parse_bulk(b"$3\r\nabc\r\n").unwrap(), Bulk::Value(4..7));
        assert_eq!(parse_bulk(b"$0\r\n\r\n").unwrap(), Bulk::Value(4..4));
        assert_eq!(parse_bulk(b"$-1\r\n").unwrap(), Bulk::Missing);
        for part in [&b""[..], b"$3", b"$3\r", b"$3\r\nab", b"$3\r\nabc\r"] {
            assert_eq!(parse_bulk(part).unwrap(), Bulk::Unfinished);
        }
        for wrong in [&b"-ERR no\r\n"[..], b"$x\r\n", b"$-7\r\n"] {
            assert!(parse_bulk(wrong).is_err());
        }
    }
}
