//! A small SQL client, for tests, benchmarks and to check whether a server answers.
//!
//! It implements the part of MySQL's protocol that these need: log in without password, run a statement, read its
//! answer as text, notice errors with their numbers. Applications use any driver of MySQL or MariaDB instead.
//!
//! A packet is a length (3 bytes, little-endian), a number (1 byte, counted from 0 in each command), and its payload;
//! one of 2²⁴ - 1 bytes is continued by the next. The server sends a greeting; the client answers with its capabilities
//! and its name; the server sends OK (0x00), an error (0xff), or a request for another way to log in (0xfe), which
//! accounts without password answer with an empty packet. A statement is 0x03 and its text. The answer is OK, an error,
//! or a number of columns, a packet for each, an end mark (0xfe), a packet for each row, an end mark.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Capabilities that the client has: long passwords, database in the log-in, protocol 4.1, transactions, the log-in's
/// form since 4.1, names of ways to log in.
const CAPABILITIES: u32 = 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x0008_0000;

/// utf8mb4_general_ci.
const CHARACTER_SET: u8 = 45;

/// The longest payload of one packet.
const PAYLOAD_MAX: usize = (1 << 24) - 1;

/// Longer answers are taken for a broken protocol.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// How long the server may be silent: longer than any statement of a test may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Both kinds of sockets.
trait Stream: Read + Write + Send + fmt::Debug {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

/// A log-in method that no account has: the server asks for another.
const NO_PLUGIN: &str = "vinga_liveness_check";

/// Waits until a server answers at this Unix socket, or reports that it has no room for another session. Does not log
/// in.
///
/// The server logs a warning about clients that leave without a name, and about names that it does not let in. So this
/// client sends its name, and leaves when it is asked how it wants to log in.
///
/// # Errors
/// The server is silent for this long, or does not listen.
pub(crate) fn await_answer(path: &Path, patience: Duration) -> io::Result<()> {
    let stream: Box<dyn Stream> = Box::new(UnixStream::connect(path)?);
    stream.set_patience(patience)?;
    let mut connection = Connection::on(stream);
    let greeting = connection.receive()?;
    // Anything but a greeting is an error: no room. The server is alive all the same.
    if greeting.first() != Some(&0xff) {
        connection.send_name(NO_PLUGIN)?;
        connection.receive()?;
    }
    Ok(())
}

/// A session on a SQL node, as `root`.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    /// The next packet's number within its command.
    sequence: u8,
    session: u32,
    server: String,
}

/// The result of a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Names of the columns; none if the statement gives no rows.
    pub columns: Vec<String>,
    /// Rows of values as text; `None` is NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
    /// Rows that were changed.
    pub affected: u64,
    /// The first number that AUTO_INCREMENT has given; 0 if none.
    pub last_insert_id: u64,
    /// How many warnings there were.
    pub warnings: u16,
}

/// Why a statement or a log-in has failed.
#[derive(Debug)]
pub enum SqlError {
    /// The server reports an error.
    Server {
        /// MariaDB's number, 1062 for a duplicate key.
        number: u16,
        /// SQLSTATE.
        state: String,
        /// The error's text.
        text: String,
    },
    /// The connection is lost, or was never made.
    Lost(io::Error),
}

impl SqlError {
    /// MariaDB's number; `None` if the connection was lost.
    pub fn number(&self) -> Option<u16> {
        match self {
            SqlError::Server { number, .. } => Some(*number),
            SqlError::Lost(_) => None,
        }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlError::Server { number, state, text } => write!(f, "error {number} ({state}): {text}"),
            SqlError::Lost(error) => write!(f, "the connection is lost: {error}"),
        }
    }
}

impl std::error::Error for SqlError {}

impl From<io::Error> for SqlError {
    fn from(error: io::Error) -> Self {
        SqlError::Lost(error)
    }
}

impl Answer {
    /// The rows as strings, NULL as `NULL`, invalid UTF-8 replaced: easy to compare.
    pub fn strings(&self) -> Vec<Vec<String>> {
        let text = |value: &Option<Vec<u8>>| match value {
            None => "NULL".to_owned(),
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        self.rows.iter().map(|row| row.iter().map(text).collect()).collect()
    }
}

impl Connection {
    /// Connects over a Unix socket.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn open_socket(path: &Path) -> Result<Self, SqlError> {
        Self::open(Box::new(UnixStream::connect(path)?))
    }

    /// Connects over TCP.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub fn open_tcp(address: impl ToSocketAddrs) -> Result<Self, SqlError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::open(Box::new(stream))
    }

    fn open(stream: Box<dyn Stream>) -> Result<Self, SqlError> {
        stream.set_patience(PATIENCE)?;
        let mut connection = Self::on(stream);
        let greeting = connection.receive()?;
        let mut greeting = Reader::of(&greeting)?;
        greeting.byte()?;
        connection.server = String::from_utf8_lossy(greeting.until_zero()?).into_owned();
        connection.session = greeting.integer(4)? as u32;
        connection.log_in()?;
        Ok(connection)
    }

    fn on(stream: Box<dyn Stream>) -> Self {
        Connection { stream: BufReader::new(stream), sequence: 0, session: 0, server: String::new() }
    }

    /// Ends the session. The server logs a line about one that is dropped without this.
    pub fn quit(mut self) {
        self.sequence = 0;
        // The server does not answer that; if it has ended, there is no session to end.
        let _ = self.send(&[0x01]);
    }

    /// Sends the user's name and log-in method to the server.
    fn send_name(&mut self, plugin: &str) -> io::Result<()> {
        let mut answer = Vec::new();
        answer.extend_from_slice(&CAPABILITIES.to_le_bytes());
        answer.extend_from_slice(&(PAYLOAD_MAX as u32).to_le_bytes());
        answer.push(CHARACTER_SET);
        answer.extend_from_slice(&[0; 23]);
        answer.extend_from_slice(b"root\0");
        // No password, no database.
        answer.extend_from_slice(format!("\0\0{plugin}\0").as_bytes());
        self.send(&answer)
    }

    fn log_in(&mut self) -> Result<(), SqlError> {
        self.send_name("mysql_native_password")?;
        let reply = self.receive()?;
        let reply = match reply.first() {
            Some(0xfe) => {
                self.send(&[])?;
                self.receive()?
            }
            _ => reply,
        };
        Reader::of(&reply).map(|_| ())
    }

    /// The session's number, as KILL takes it.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The server's version, from its greeting.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How long the server may take over a statement before the connection counts as lost.
    ///
    /// # Errors
    /// The operating system's; a time of zero is an error, too.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_patience(patience)
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// The server's error, or the connection is lost.
    pub fn query(&mut self, statement: impl AsRef<[u8]>) -> Result<Answer, SqlError> {
        self.sequence = 0;
        self.send(&[b"\x03", statement.as_ref()].concat())?;
        let head = self.receive()?;
        let mut reader = Reader::of(&head)?;
        let mut answer = Answer::default();
        if head.first() == Some(&0) {
            reader.byte()?;
            (answer.affected, answer.last_insert_id) = (reader.length()?, reader.length()?);
            let _status = reader.integer(2)?;
            answer.warnings = reader.integer(2)? as u16;
            return Ok(answer);
        }
        let columns = reader.length()?;
        for _ in 0..columns {
            let column = self.receive()?;
            let mut reader = Reader::of(&column)?;
            // Catalogue, database, table's alias, table; then the column's own alias.
            for _ in 0..4 {
                reader.counted()?;
            }
            answer.columns.push(String::from_utf8_lossy(reader.counted()?).into_owned());
        }
        self.receive()?;
        loop {
            let packet = self.receive()?;
            let mut reader = Reader::of(&packet)?;
            // A row may begin with this byte, too, but is longer then.
            if packet.first() == Some(&0xfe) && packet.len() < 9 {
                reader.byte()?;
                answer.warnings = reader.integer(2)? as u16;
                return Ok(answer);
            }
            let row = (0..columns).map(|_| reader.value()).collect::<Result<_, _>>()?;
            answer.rows.push(row);
        }
    }

    /// Prepares a statement that gives no rows, runs it once with these texts, unchanged, in place of its question
    /// marks, and drops it.
    ///
    /// # Errors
    /// The server's error, or the connection is lost.
    pub fn execute(&mut self, statement: impl AsRef<[u8]>, texts: &[&[u8]]) -> Result<Answer, SqlError> {
        self.sequence = 0;
        self.send(&[b"\x16", statement.as_ref()].concat())?;
        let head = self.receive()?;
        let mut reader = Reader::of(&head)?;
        reader.byte()?;
        let number = reader.integer(4)? as u32;
        let (columns, parameters) = (reader.integer(2)?, reader.integer(2)?);
        if columns != 0 || parameters != texts.len() as u64 {
            return Err(nonsense("a statement of another kind").into());
        }
        // The parameters' descriptions, and their end.
        for _ in 0..=parameters {
            self.receive()?;
        }
        let mut payload = [&[0x17], &number.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat();
        // No NULLs; new types follow: strings.
        payload.extend(vec![0; texts.len().div_ceil(8)]);
        payload.push(1);
        payload.extend(texts.iter().flat_map(|_| [0xfd, 0]));
        for text in texts {
            payload.push(0xfd);
            payload.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
            payload.extend_from_slice(text);
        }
        self.sequence = 0;
        self.send(&payload)?;
        let head = self.receive()?;
        let said = Reader::of(&head).and_then(|mut reader| {
            reader.byte()?;
            let (affected, last_insert_id) = (reader.length()?, reader.length()?);
            let _status = reader.integer(2)?;
            let warnings = reader.integer(2)? as u16;
            Ok(Answer { affected, last_insert_id, warnings, ..Answer::default() })
        });
        self.sequence = 0;
        // The server does not answer that.
        self.send(&[&[0x19], &number.to_le_bytes()[..]].concat())?;
        said
    }

    /// The rows of a statement as strings: [`Connection::query`] and [`Answer::strings`].
    ///
    /// # Errors
    /// As of [`Connection::query`].
    pub fn rows(&mut self, statement: impl AsRef<[u8]>) -> Result<Vec<Vec<String>>, SqlError> {
        self.query(statement).map(|answer| answer.strings())
    }

    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 4);
        let mut rest = payload;
        loop {
            let (now, later) = rest.split_at(rest.len().min(PAYLOAD_MAX));
            bytes.extend_from_slice(&(now.len() as u32).to_le_bytes()[..3]);
            bytes.push(self.sequence);
            bytes.extend_from_slice(now);
            self.sequence = self.sequence.wrapping_add(1);
            if now.len() < PAYLOAD_MAX {
                break;
            }
            rest = later;
        }
        self.stream.get_mut().write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut payload = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
            self.sequence = head[3].wrapping_add(1);
            if payload.len() + length > ANSWER_BYTES_MAX {
                return Err(nonsense("a longer answer than can be"));
            }
            let begin = payload.len();
            payload.resize(begin + length, 0);
            self.stream.read_exact(&mut payload[begin..])?;
            if length < PAYLOAD_MAX {
                return Ok(payload);
            }
        }
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sends {what}"))
}

/// Reads a packet's payload.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of a packet's payload; an error packet is returned as an error.
    fn of(payload: &'a [u8]) -> Result<Self, SqlError> {
        let mut reader = Reader { rest: payload };
        if payload.first() != Some(&0xff) {
            return Ok(reader);
        }
        reader.byte()?;
        let number = reader.integer(2)? as u16;
        let text = String::from_utf8_lossy(reader.rest);
        // Errors before the log-in have no state.
        let (state, text) = match text.strip_prefix('#') {
            Some(marked) if marked.is_char_boundary(5) => marked.split_at(5),
            _ => ("HY000", &*text),
        };
        Err(SqlError::Server { number, state: state.to_owned(), text: text.to_owned() })
    }

    fn take(&mut self, bytes: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(bytes).ok_or_else(|| nonsense("a packet that ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian integer of this many bytes.
    fn integer(&mut self, bytes: usize) -> io::Result<u64> {
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(whole))
    }

    fn until_zero(&mut self) -> io::Result<&'a [u8]> {
        let length =
            self.rest.iter().position(|&byte| byte == 0).ok_or_else(|| nonsense("text without an end"))?;
        let text = self.take(length)?;
        self.byte()?;
        Ok(text)
    }

    /// An integer that begins with its length or is less than 251.
    fn length(&mut self) -> io::Result<u64> {
        match self.byte()? {
            0xfc => self.integer(2),
            0xfd => self.integer(3),
            0xfe => self.integer(8),
            // NULL, or a request for a file: neither may stand here.
            0xfb | 0xff => Err(nonsense("what is no number")),
            small => Ok(u64::from(small)),
        }
    }

    fn counted(&mut self) -> io::Result<&'a [u8]> {
        let length = self.length()?;
        self.take(usize::try_from(length).map_err(|_| nonsense("a length that cannot be"))?)
    }

    /// A value of a row.
    fn value(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.rest.first() == Some(&0xfb) {
            self.byte()?;
            return Ok(None);
        }
        Ok(Some(self.counted()?.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(payload: &[u8]) -> SqlError {
        Reader::of(payload).err().expect("an error packet")
    }

    #[test]
    fn errors_with_and_without_state() {
        let duplicate = error_of(b"\xff\x26\x04#23000Duplicate entry");
        assert_eq!(duplicate.to_string(), "error 1062 (23000): Duplicate entry");
        let early = error_of(b"\xff\x10\x04Too many connections");
        assert_eq!(early.to_string(), "error 1040 (HY000): Too many connections");
        assert_eq!(error_of(b"\xff\x10\x04#1").number(), Some(1040));
        assert!(matches!(error_of(b"\xff\x10"), SqlError::Lost(_)));
    }

    #[test]
    fn numbers_and_values() {
        let mut reader = Reader { rest: b"\x05\xfc\x01\x02\xfd\x01\x00\x01\xfb\x02ab\x03ab" };
        assert_eq!(reader.length().unwrap(), 5);
        assert_eq!(reader.length().unwrap(), 0x201);
        assert_eq!(reader.length().unwrap(), 0x10001);
        assert_eq!(reader.value().unwrap(), None);
        assert_eq!(reader.value().unwrap().as_deref(), Some(&b"ab"[..]));
        assert!(reader.value().is_err());
        assert!(Reader { rest: b"\xff" }.length().is_err());
        assert!(Reader { rest: b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff" }.counted().is_err());
    }
}
