//! What belongs to a SQL node and not to the data nodes: accounts with their privileges, views, routines, triggers and
//! events, as statements that make them again.

use std::path::Path;
use vinga_format::backup::BackupStatement;
use vinga_sqlnode::{Connection, SqlError};

/// Databases of the server itself.
const OWN_DATABASES: &str = "('mysql','information_schema','performance_schema','sys')";
/// Accounts of the server itself.
const OWN_ACCOUNTS: &str = "('mariadb.sys','mysql','PUBLIC','')";

/// Reads all of it from a SQL node, in an order in which it can be made again.
///
/// # Errors
/// A text: the server can't be asked.
pub fn read(node: u16, socket: &Path) -> Result<Vec<BackupStatement>, String> {
    let failed = |error: SqlError| match error {
        SqlError::Server { number: 1045 | 1698, .. } => {
            "root has a password, so accounts and views can't be read".to_owned()
        }
        other => other.to_string(),
    };
    let mut session = Connection::open_socket(socket).map_err(failed)?;
    let mut reader = Reader { node, session: &mut session, found: Vec::new() };
    reader.read().map_err(failed)?;
    let found = reader.found;
    session.quit();
    Ok(found)
}

/// A text between single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name between backquotes.
fn name(text: &str) -> String {
    format!("`{}`", text.replace('`', "``"))
}

struct Reader<'a> {
    node: u16,
    session: &'a mut Connection,
    found: Vec<BackupStatement>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), SqlError> {
        for setting in ["NAMES utf8mb4", "SESSION sql_quote_show_create = 1", "SESSION time_zone = '+00:00'"]
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

    fn add(&mut self, what: String, database: &str, settings: String, text: String) {
        let (node, database) = (self.node, database.to_owned());
        self.found.push(BackupStatement { node, what, database, settings, text });
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
                let text = format!("CREATE ROLE IF NOT EXISTS {}", quoted(&user));
                self.add(format!("role {user}"), "", String::new(), text);
                continue;
            }
            let account = format!("{}@{}", quoted(&user), quoted(&host));
            let rows = self.session.rows(format!("SHOW CREATE USER {account}"))?;
            // Not CREATE OR REPLACE, which would take all privileges from the account that restores.
            for form in ["CREATE USER IF NOT EXISTS", "ALTER USER"] {
                let text = rows[0][0].replacen("CREATE USER", form, 1);
                self.add(format!("user {user}@{host}"), "", String::new(), text);
            }
        }
        Ok(())
    }

    fn grants(&mut self) -> Result<(), SqlError> {
        for (user, host, is_role) in self.account_names()? {
            let account =
                if is_role { quoted(&user) } else { format!("{}@{}", quoted(&user), quoted(&host)) };
            for row in self.session.rows(format!("SHOW GRANTS FOR {account}"))? {
                // Every new SQL node has it, and the server would note it once more.
                if user == "root" && row[0].starts_with("GRANT PROXY ON ''@'%'") {
                    continue;
                }
                self.add(format!("privileges of {user}@{host}"), "", String::new(), row[0].clone());
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
            // Name, SQL mode, statement, character sets.
            self.add(
                format!("{kind} {database}.{routine}"),
                database,
                settings(&shown[0][1]),
                shown[0][2].clone(),
            );
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
            let text = shown[0][1].replacen("CREATE ", "CREATE OR REPLACE ", 1);
            self.add(format!("view {database}.{view}"), database, String::new(), text);
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
            let shown =
                self.session.rows(format!("SHOW CREATE TRIGGER {}.{}", name(database), name(trigger)))?;
            self.add(
                format!("trigger {database}.{trigger}"),
                database,
                settings(&shown[0][1]),
                shown[0][2].clone(),
            );
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
            let settings = format!("{}, time_zone = {}", settings(&shown[0][1]), quoted(&shown[0][2]));
            self.add(format!("event {database}.{event}"), database, settings, shown[0][3].clone());
        }
        Ok(())
    }
}

fn settings(sql_mode: &str) -> String {
    format!("sql_mode = {}", quoted(sql_mode))
}
