//! Runs the same statements on tables of Vinga and of InnoDB: the results must be equal.

use vinga_sqlnode::{Connection, SqlError};

/// The engines, each with its own database; the names have the same length.
const ENGINES: [(&str, &str); 2] = [("VINGA", OURS), ("InnoDB", THEIRS)];
/// The database of Vinga's tables.
pub const OURS: &str = "tables_of_v";
const THEIRS: &str = "tables_of_i";

/// A session for each of the engines.
pub struct Oracle {
    sessions: [Connection; 2],
}

/// The result of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// The number of changed rows, the first generated AUTO_INCREMENT value, the number of warnings, and the rows as
    /// text.
    Good(u64, u64, u16, Vec<String>),
    /// The number, state and message of an error.
    Bad(u16, String, String),
}

impl Said {
    fn of(result: Result<vinga_sqlnode::Answer, SqlError>) -> Self {
        match result {
            Ok(answer) => {
                let rows = answer.strings().iter().map(|row| row.join(" ").replace(THEIRS, OURS)).collect();
                Said::Good(answer.affected, answer.last_insert_id, answer.warnings, rows)
            }
            Err(SqlError::Server { number, state, text }) => {
                Said::Bad(number, state, text.replace(THEIRS, OURS))
            }
            Err(SqlError::Lost(error)) => panic!("the connection is lost: {error}"),
        }
    }

    fn without_number(self) -> Self {
        match self {
            Said::Good(affected, _, warnings, rows) => Said::Good(affected, 0, warnings, rows),
            Said::Bad(..) => self,
        }
    }

    /// The number of its error; 0 if it succeeded.
    pub fn number(&self) -> u16 {
        match self {
            Said::Good(..) => 0,
            Said::Bad(number, ..) => *number,
        }
    }
}

impl Oracle {
    /// Uses two connections to a SQL node, whose databases are created again.
    pub fn new(mut connect: impl FnMut() -> Connection) -> Self {
        let sessions = ENGINES.map(|(engine, database)| {
            let mut session = connect();
            for statement in [
                format!("DROP DATABASE IF EXISTS {database}"),
                format!("CREATE DATABASE {database}"),
                format!("USE {database}"),
                format!("SET default_storage_engine = {engine}"),
            ] {
                session.query(&statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
            }
            session
        });
        Oracle { sessions }
    }

    /// Runs a statement on both; returns the results of Vinga and InnoDB.
    pub fn ask(&mut self, statement: impl AsRef<[u8]>) -> [Said; 2] {
        self.sessions.each_mut().map(|session| Said::of(session.query(statement.as_ref())))
    }

    /// Runs a prepared statement with these texts on both; the results must be equal. Returns the result.
    #[track_caller]
    pub fn same_with(&mut self, statement: &str, texts: &[&[u8]]) -> Said {
        let [ours, theirs] =
            self.sessions.each_mut().map(|session| Said::of(session.execute(statement, texts)));
        assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; {statement} with {texts:?}");
        ours
    }

    /// Runs a statement on both; the results must be equal. Returns the result.
    #[track_caller]
    pub fn same(&mut self, statement: impl AsRef<[u8]>) -> Said {
        let statement = statement.as_ref();
        let [ours, theirs] = self.ask(statement);
        assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; {}", String::from_utf8_lossy(statement));
        ours
    }

    /// Like [`Oracle::same`], but AUTO_INCREMENT values may differ, as they may after a statement that has failed.
    #[track_caller]
    pub fn same_but_numbers(&mut self, statement: impl AsRef<[u8]>) {
        let statement = statement.as_ref();
        let [ours, theirs] = self.ask(statement).map(Said::without_number);
        assert_eq!(ours, theirs, "left: Vinga, right: InnoDB; {}", String::from_utf8_lossy(statement));
    }

    /// Runs a statement that must succeed on both, with equal results.
    #[track_caller]
    pub fn good(&mut self, statement: &str) {
        let said = self.same(statement);
        assert_eq!(said.number(), 0, "{statement}: {said:?}");
    }
}
