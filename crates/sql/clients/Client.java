import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Typical operations of a Java program on a database, through MariaDB's JDBC driver with prepared statements on the
 * server; the exit status is 0 if all results are as expected.
 *
 * <pre>java -cp mariadb-java-client.jar Client.java HOST PORT DATABASE ENGINE</pre>
 *
 * The database must exist; its tables java_account and java_note are created again.
 */
public class Client {
    private static String url;

    public static void main(String[] arguments) throws Exception {
        url = "jdbc:mariadb://" + arguments[0] + ":" + arguments[1] + "/" + arguments[2]
            + "?user=root&useServerPrepStmts=true&rewriteBatchedStatements=false";
        try (Connection connection = DriverManager.getConnection(url)) {
            makeTables(connection, arguments[3]);
            batches(connection);
            types(connection);
            errors(connection);
            transactions();
            savepoints(connection);
            check(single(connection, "SELECT SUM(balance) FROM java_account").equals(new BigDecimal("20000")), "sum");
            execute(connection, "DROP TABLE java_account, java_note");
        }
        System.out.println("java client: ok");
    }

    private static void makeTables(Connection connection, String engine) throws SQLException {
        execute(connection, "DROP TABLE IF EXISTS java_account, java_note");
        execute(connection, "CREATE TABLE java_account (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, owner VARCHAR(30)"
            + " NOT NULL, balance DECIMAL(20) NOT NULL, KEY balance (balance)) ENGINE=" + engine);
        execute(connection, "CREATE TABLE java_note (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, kind ENUM('a','b','c'),"
            + " flags SET('x','y','z'), bits BIT(12), day DATE, moment TIMESTAMP(3) NULL, clock TIME(6), y YEAR,"
            + " big BIGINT UNSIGNED, body BLOB) ENGINE=" + engine);
    }

    private static void batches(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_account VALUES (?, ?, ?)")) {
            for (int id = 0; id < 200; id++) {
                insert.setLong(1, id);
                insert.setString(2, "owner " + id);
                insert.setBigDecimal(3, new BigDecimal(100));
                insert.addBatch();
            }
            check(insert.executeBatch().length == 200, "batch");
        }
        connection.commit();
        try (PreparedStatement range = connection.prepareStatement(
                "SELECT id, owner FROM java_account WHERE id BETWEEN ? AND ? ORDER BY id DESC")) {
            for (int first = 0; first < 150; first += 50) {
                range.setLong(1, first);
                range.setLong(2, first + 9);
                try (ResultSet rows = range.executeQuery()) {
                    for (int id = first + 9; id >= first; id--) {
                        check(rows.next() && rows.getInt(1) == id && rows.getString(2).equals("owner " + id), "range");
                    }
                    check(!rows.next(), "end of range");
                }
            }
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void types(Connection connection) throws SQLException {
        byte[] body = "some bytes \0 with a zero".getBytes(StandardCharsets.UTF_8);
        Timestamp moment = Timestamp.valueOf("2001-02-03 04:05:06.789");
        String text = "INSERT INTO java_note (kind, flags, bits, day, moment, clock, y, big, body)"
            + " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        int id;
        try (PreparedStatement insert = connection.prepareStatement(text, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, "b");
            insert.setString(2, "x,z");
            insert.setBytes(3, new byte[] {(byte) 0x0a, (byte) 0xbc});
            insert.setString(4, "1999-12-31");
            insert.setTimestamp(5, moment);
            insert.setString(6, "-12:34:56.000007");
            insert.setInt(7, 2155);
            insert.setBigDecimal(8, new BigDecimal("18446744073709551615"));
            insert.setBytes(9, body);
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                check(keys.next(), "generated key");
                id = keys.getInt(1);
            }
        }
        try (PreparedStatement select = connection.prepareStatement(
                "SELECT kind, flags, bits + 0, day, moment, CAST(clock AS CHAR), y, big, body FROM java_note"
                + " WHERE id = ?")) {
            select.setInt(1, id);
            try (ResultSet row = select.executeQuery()) {
                check(row.next(), "the row is there");
                check(row.getString(1).equals("b") && row.getString(2).equals("x,z"), "enum and set");
                check(row.getInt(3) == 0xabc, "bits");
                check(row.getString(4).equals("1999-12-31") && row.getTimestamp(5).equals(moment), "day and moment");
                check(row.getString(6).equals("-12:34:56.000007"), "time");
                check(row.getInt(7) == 2155, "year");
                check(row.getBigDecimal(8).equals(new BigDecimal("18446744073709551615")), "big");
                check(Arrays.equals(row.getBytes(9), body), "blob");
            }
        }
        execute(connection, "INSERT INTO java_note () VALUES ()");
        check(((Number) single(connection, "SELECT COUNT(*) FROM java_note WHERE kind IS NULL AND body IS NULL"))
            .intValue() == 1, "nulls");
    }

    private static void errors(Connection connection) throws SQLException {
        try {
            execute(connection, "INSERT INTO java_account VALUES (300, 'a', 1), (7, 'b', 1)");
            check(false, "a duplicate was expected");
        } catch (SQLException error) {
            check(error.getErrorCode() == 1062 && error.getMessage().contains("PRIMARY"), "" + error);
        }
        check(((Number) single(connection, "SELECT COUNT(*) FROM java_account")).intValue() == 200,
            "a statement that fails leaves nothing");
    }

    /** Several connections move money, each in transactions. */
    private static void transactions() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Integer>> all = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            int seed = n;
            Callable<Integer> work = () -> move(seed);
            all.add(threads.submit(work));
        }
        for (Future<Integer> one : all) {
            check(one.get() == 100, "transactions");
        }
        threads.shutdown();
    }

    private static int move(int seed) throws SQLException {
        int done = 0;
        try (Connection connection = DriverManager.getConnection(url);
                PreparedStatement lock = connection.prepareStatement(
                    "SELECT balance FROM java_account WHERE id = ? FOR UPDATE");
                PreparedStatement update = connection.prepareStatement(
                    "UPDATE java_account SET balance = balance + ? WHERE id = ?")) {
            connection.setAutoCommit(false);
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            while (done < 100) {
                int[] pair = {(seed * 31 + done * 7) % 200, (seed * 17 + done * 11 + 99) % 200};
                Arrays.sort(pair);
                for (int id : pair) {
                    lock.setInt(1, id);
                    try (ResultSet row = lock.executeQuery()) {
                        check(row.next(), "account");
                    }
                }
                for (int sign = 0; sign < 2; sign++) {
                    update.setInt(1, sign == 0 ? 3 : -3);
                    update.setInt(2, pair[sign]);
                    check(update.executeUpdate() == 1, "one row");
                }
                if (done % 10 == 9) {
                    connection.rollback();
                } else {
                    connection.commit();
                }
                done++;
            }
        }
        return done;
    }

    private static void savepoints(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        execute(connection, "UPDATE java_account SET balance = balance + 5 WHERE id = 3");
        Savepoint here = connection.setSavepoint("here");
        execute(connection, "DELETE FROM java_account WHERE id < 100");
        connection.rollback(here);
        execute(connection, "UPDATE java_account SET balance = balance - 5 WHERE id = 3");
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void execute(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(text);
        }
    }

    private static Object single(Connection connection, String text) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(text)) {
            check(rows.next(), text);
            return rows.getObject(1);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("not as it should be: " + what);
        }
    }
}
