//! What belongs to a SQL node and not to the data nodes: accounts with their privileges, views, routines, triggers and
//! events, as statements that make them again.

use crate::sql_nodes;
use vinga_format::backup::BackupStatement;
use vinga_sqlnode::{Connection, Running, SqlError};

/// Databases of the server itself.
const OWN_DATABASES: &str = "('mysql','information_schema','performance_schema','sys')";
/// Accounts of the server itself.
const OWN_ACCOUNTS: &str = "('mariadb.sys','mysql')";
/// The role that everybody has. It comes into being with the first privilege that is granted to it.
const PUBLIC: &str = "PUBLIC";
/// Statements are read and made again under this mode, unless they have one of their own: names stand between
/// backquotes then, texts between single quotes, with escapes.
const PLAIN_MODE: &str = "sql_mode = ''";

/// Reads all of it from a SQL node, in an order in which it can be made again.
///
/// # Errors
/// A text: the server can't be asked.
pub fn read(node: u16, running: &Running) -> Result<Vec<BackupStatement>, String> {
    let mut session = sql_nodes::log_in(node, running)?;
    let mut reader = Reader { node, session: &mut session, found: Vec::new() };
    reader.read().map_err(|error| {
        format!(
            "SQL node {node}: what belongs to it can't be read: {error}; --no-sql leaves out what belongs to SQL nodes"
        )
    })?;
    let found = reader.found;
    session.quit();
    Ok(found)
}

/// A text between single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name between backquotes.
pub fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "``"))
}

struct Reader<'a> {
    node: u16,
    session: &'a mut Connection,
    found: Vec<BackupStatement>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), SqlError> {
        let plain = format!("SESSION {PLAIN_MODE}");
        for setting in
            ["NAMES utf8mb4", &plain, "SESSION sql_quote_show_create = 1", "SESSION time_zone = '+00:00'"]
        {
            self.session.query(format!("SET {setting}"))?;
        }
        self.accounts()?;
        for (what, kind) in [("FUNCTION", "function"), ("PROCEDURE", "procedure")] {
            self.routines(what, kind)?;
        }
        self.views()?;
        self.triggers()?;
        self.events()?;
        self.grants()
    }

    /// A statement about accounts.
    fn add_account(&mut self, what: String, text: String) {
        let settings = PLAIN_MODE.to_owned();
        self.found.push(BackupStatement {
            node: self.node,
            what,
            settings,
            text,
            ..BackupStatement::default()
        });
    }

    /// A statement that belongs to a database, with settings of the session for it. `kept` is what the server shows
    /// behind the statement: character set, collation of the session, collation of the database (a view has none).
    fn add(&mut self, what: String, database: &str, mut settings: String, text: String, kept: &[String]) {
        let field = |at: usize| kept.get(at).cloned().unwrap_or_default();
        settings.push_str(&format!(", collation_connection = {}", quoted(&field(1))));
        let (node, database) = (self.node, database.to_owned());
        let (character_set, collation) = (field(0), field(2));
        self.found.push(BackupStatement { node, what, database, settings, text, character_set, collation });
    }

    /// Users and roles: `user`, `host`, whether it is a role.
    fn account_names(&mut self) -> Result<Vec<(String, String, bool)>, SqlError> {
        let rows = self.session.rows(format!(
            "SELECT user, host, is_role FROM mysql.user WHERE user NOT IN {OWN_ACCOUNTS} \
             ORDER BY is_role = 'N', user, host"
        ))?;
        Ok(rows.into_iter().map(|row| (row[0].clone(), row[1].clone(), row[2] == "Y")).collect())
    }

    fn accounts(&mut self) -> Result<(), SqlError> {
        for (user, host, is_role) in self.account_names()? {
            if is_role {
                if user != PUBLIC {
                    let text = format!("CREATE ROLE IF NOT EXISTS {}", quoted(&user));
                    self.add_account(format!("role {user}"), text);
                }
                continue;
            }
            let account = format!("{}@{}", quoted(&user), quoted(&host));
            let rows = self.session.rows(format!("SHOW CREATE USER {account}"))?;
            // Not CREATE OR REPLACE, which would take all privileges from the account that restores.
            for form in ["CREATE USER IF NOT EXISTS", "ALTER USER"] {
                let text = rows[0][0].replacen("CREATE USER", form, 1);
                self.add_account(format!("user {user}@{host}"), text);
            }
        }
        Ok(())
    }

    fn grants(&mut self) -> Result<(), SqlError> {
        for (user, host, is_role) in self.account_names()? {
            let account = match is_role {
                true if user == PUBLIC => user.clone(),
                true => quoted(&user),
                false => format!("{}@{}", quoted(&user), quoted(&host)),
            };
            for row in self.session.rows(format!("SHOW GRANTS FOR {account}"))? {
                // Every new SQL node has it, and the server would note it once more.
                if user == "root" && row[0].starts_with("GRANT PROXY ON ''@'%'") {
                    continue;
                }
                let what = if is_role { user.clone() } else { format!("{user}@{host}") };
                self.add_account(format!("privileges of {what}"), row[0].clone());
            }
        }
        Ok(())
    }

    fn routines(&mut self, what: &str, kind: &str) -> Result<(), SqlError> {
        let listed = self.session.rows(format!(
            "SELECT routine_schema, routine_name FROM information_schema.routines WHERE routine_type = '{what}' AND \
             routine_schema NOT IN {OWN_DATABASES} ORDER BY 1, 2"
        ))?;
        for row in listed {
            let (database, routine) = (&row[0], &row[1]);
            let shown =
                self.session.rows(format!("SHOW CREATE {what} {}.{}", name(database), name(routine)))?;
            // Name, SQL mode, statement, character set and collations.
            let shown = &shown[0];
            let what = format!("{kind} {database}.{routine}");
            self.add(what, database, settings(&shown[1]), replacing(&shown[2]), &shown[3..]);
        }
        Ok(())
    }

    /// A view may use others: those that are used by none that is left come first.
    fn views(&mut self) -> Result<(), SqlError> {
        let listed = self.session.rows(format!(
            "SELECT table_schema, table_name FROM information_schema.views WHERE table_schema NOT IN {OWN_DATABASES} \
             ORDER BY 1, 2"
        ))?;
        for row in listed {
            let (database, view) = (&row[0], &row[1]);
            let shown = self.session.rows(format!("SHOW CREATE VIEW {}.{}", name(database), name(view)))?;
            let what = format!("view {database}.{view}");
            self.add(what, database, PLAIN_MODE.to_owned(), replacing(&shown[0][1]), &shown[0][2..]);
        }
        Ok(())
    }

    fn triggers(&mut self) -> Result<(), SqlError> {
        let listed = self.session.rows(format!(
            "SELECT trigger_schema, trigger_name FROM information_schema.triggers WHERE trigger_schema NOT IN \
             {OWN_DATABASES} ORDER BY trigger_schema, event_object_table, event_manipulation, action_timing, action_order"
        ))?;
        for row in listed {
            let (database, trigger) = (&row[0], &row[1]);
            let place = format!("{}.{}", name(database), name(trigger));
            let shown = self.session.rows(format!("SHOW CREATE TRIGGER {place}"))?;
            // As of a routine, and behind it when it was made.
            let shown = &shown[0];
            let what = format!("trigger {database}.{trigger}");
            // The statement is shown as it was written, perhaps with IF NOT EXISTS, which excludes OR REPLACE.
            let removal = format!("DROP TRIGGER IF EXISTS {place}");
            self.add(what.clone(), database, settings(&shown[1]), removal, &shown[3..6]);
            self.add(what, database, settings(&shown[1]), shown[2].clone(), &shown[3..6]);
        }
        Ok(())
    }

    fn events(&mut self) -> Result<(), SqlError> {
        let listed = self.session.rows(format!(
            "SELECT event_schema, event_name FROM information_schema.events WHERE event_schema NOT IN {OWN_DATABASES} \
             ORDER BY 1, 2"
        ))?;
        for row in listed {
            let (database, event) = (&row[0], &row[1]);
            let shown = self.session.rows(format!("SHOW CREATE EVENT {}.{}", name(database), name(event)))?;
            // Name, SQL mode, time zone, statement, character set and collations.
            let shown = &shown[0];
            let settings = format!("{}, time_zone = {}", settings(&shown[1]), quoted(&shown[2]));
            let what = format!("event {database}.{event}");
            self.add(what, database, settings, replacing(&shown[3]), &shown[4..]);
        }
        Ok(())
    }
}

/// The statement that makes it anew where it is there already: SQL nodes keep what they store themselves when the data
/// nodes begin anew.
fn replacing(statement: &str) -> String {
    statement.replacen("CREATE ", "CREATE OR REPLACE ", 1)
}

fn settings(sql_mode: &str) -> String {
    format!("sql_mode = {}", quoted(sql_mode))
}
