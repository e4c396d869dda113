"""Typical operations of a Python program on a database, through PyMySQL; exits with 0 if all results are as expected.

    client.py HOST PORT DATABASE ENGINE

The database must exist; its tables 'py_account' and 'py_note' are created again.
"""

import datetime
import decimal
import sys
import threading

import pymysql
import pymysql.err


def connect(host, port, database):
    return pymysql.connect(
        host=host, port=int(port), user="root", database=database, charset="utf8mb4", autocommit=False
    )


def expect_error(number, action):
    try:
        action()
    except pymysql.err.MySQLError as error:
        assert error.args[0] == number, f"error {number} was expected, not {error.args}"
        return error.args[1]
    raise AssertionError(f"error {number} was expected")


def make_tables(connection, engine):
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS py_account, py_note")
        cursor.execute(
            "CREATE TABLE py_account (id INT NOT NULL PRIMARY KEY, owner VARCHAR(40) CHARACTER SET utf8mb4 NOT NULL,"
            f" balance DECIMAL(12,2) NOT NULL, UNIQUE KEY owner (owner)) ENGINE={engine}"
        )
        cursor.execute(
            "CREATE TABLE py_note (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, account INT, written DATETIME(6),"
            f" body TEXT CHARACTER SET utf8mb4, raw VARBINARY(100), weight DOUBLE, KEY account (account)) ENGINE={engine}"
        )


def rows_and_types(connection):
    moment = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)
    with connection.cursor() as cursor:
        accounts = [(n, f"owner {n} 😀", decimal.Decimal("100.25")) for n in range(1, 101)]
        assert cursor.executemany("INSERT INTO py_account VALUES (%s, %s, %s)", accounts) == 100
        cursor.execute(
            "INSERT INTO py_note (account, written, body, raw, weight) VALUES (%s, %s, %s, %s, %s)",
            (7, moment, "Grüße, 世界", bytes(range(100)), 2.5),
        )
        first = cursor.lastrowid
        cursor.execute("INSERT INTO py_note (account) VALUES (%s), (NULL)", (7,))
        assert cursor.lastrowid > first
        connection.commit()
        cursor.execute("SELECT account, written, body, raw, weight FROM py_note WHERE id = %s", (first,))
        assert cursor.fetchall() == ((7, moment, "Grüße, 世界", bytes(range(100)), 2.5),)
        cursor.execute("SELECT COUNT(*), COUNT(body) FROM py_note WHERE account = 7")
        assert cursor.fetchone() == (2, 1)
        cursor.execute("SELECT SUM(balance), MIN(owner) FROM py_account WHERE id BETWEEN 11 AND 20")
        assert cursor.fetchone() == (decimal.Decimal("1002.50"), "owner 11 😀")
        cursor.execute("SELECT id FROM py_account WHERE owner = %s", ("owner 42 😀",))
        assert cursor.fetchall() == ((42,),)


def errors(connection):
    with connection.cursor() as cursor:
        text = expect_error(1062, lambda: cursor.execute("INSERT INTO py_account VALUES (1, 'x', 0)"))
        assert "'1'" in text and "PRIMARY" in text, text
        text = expect_error(1062, lambda: cursor.execute("INSERT INTO py_account VALUES (1000, 'owner 5 😀', 0)"))
        assert "owner" in text, text
        connection.rollback()
        cursor.execute("SELECT COUNT(*) FROM py_account")
        assert cursor.fetchone() == (100,)


def transfer(connection, source, target, amount):
    with connection.cursor() as cursor:
        for account in sorted((source, target)):
            cursor.execute("SELECT balance FROM py_account WHERE id = %s FOR UPDATE", (account,))
            assert cursor.fetchone() is not None
        cursor.execute("UPDATE py_account SET balance = balance - %s WHERE id = %s", (amount, source))
        cursor.execute("UPDATE py_account SET balance = balance + %s WHERE id = %s", (amount, target))


def transactions(arguments):
    """Several connections move money; some moves are taken back. The sum stays."""
    problems = []

    def work(number):
        try:
            connection = connect(*arguments)
            for n in range(50):
                transfer(connection, (number * 13 + n) % 100 + 1, (number * 29 + 3 * n + 50) % 100 + 1, 1 + n % 7)
                if n % 5 == 4:
                    connection.rollback()
                else:
                    connection.commit()
            connection.close()
        except Exception as problem:  # reported by the main thread
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def savepoints(connection):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE py_account SET balance = balance + 1 WHERE id = 1")
        cursor.execute("SAVEPOINT here")
        cursor.execute("UPDATE py_account SET balance = balance + 1000 WHERE id = 1")
        cursor.execute("ROLLBACK TO here")
        cursor.execute("UPDATE py_account SET balance = balance - 1 WHERE id = 1")
    connection.commit()


def main(host, port, database, engine):
    connection = connect(host, port, database)
    make_tables(connection, engine)
    rows_and_types(connection)
    errors(connection)
    transactions((host, port, database))
    savepoints(connection)
    with connection.cursor() as cursor:
        connection.rollback()
        cursor.execute("SELECT SUM(balance) FROM py_account")
        assert cursor.fetchone() == (decimal.Decimal("10025.00"),)
        assert cursor.execute("DELETE FROM py_account WHERE id > 50") == 50
        connection.commit()
        cursor.execute("DROP TABLE py_account, py_note")
    connection.close()
    print("python client: ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
