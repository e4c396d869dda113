#!/usr/bin/env bash
# Measures the costs of the access paths between which the optimizer of a SQL node chooses: scans of a table, ranges,
# single keys. Its argument is the socket of a SQL node, 'scripts/access-costs.sh vinga-cluster/sql-1/sql.sock', with
# 200 MB of DataMemory; it makes a database access_costs and drops it. Each query is run nine times, and the fastest run
# counts. docs/performance.md has the figures.
set -eu -o pipefail
cd "$(dirname "$0")/.."
socket=${1:?the socket of a SQL node}
client() { "${CARGO_TARGET_DIR:-target}/mariadb/bin/mariadb" --no-defaults --user=root --socket="$socket" -N "$@"; }

client <<'SQL'
CREATE OR REPLACE DATABASE access_costs;
USE access_costs;
CREATE TABLE narrow (id INT PRIMARY KEY, k INT, c VARCHAR(20), d VARCHAR(20), KEY (k)) ENGINE=VINGA;
CREATE TABLE wide (id INT PRIMARY KEY, k INT, c VARCHAR(200), d VARCHAR(200), KEY (k)) ENGINE=VINGA;
INSERT INTO narrow SELECT seq, seq * 7919 % 100000, CONCAT('x', seq), 'y' FROM seq_1_to_100000;
INSERT INTO wide SELECT seq, seq * 7919 % 100000, REPEAT('x', 150), REPEAT('y', 150) FROM seq_1_to_100000;
SQL
trap 'client -e "DROP DATABASE access_costs"' EXIT

# The fastest of nine, in microseconds.
measure() {
    local what=$1 query=$2 fastest
    fastest=$(for _ in 1 2 3 4 5 6 7 8 9; do
        echo "SET @began = SYSDATE(6); $query INTO @found; SELECT TIMESTAMPDIFF(MICROSECOND, @began, SYSDATE(6));"
    done | client access_costs | sort -n | head -1)
    printf '%8s us  %s\n' "$fastest" "$what"
}

for table in narrow wide; do
    rows="SELECT COUNT(c) + COUNT(d) FROM $table"
    measure "$table: all 100,000 rows" "$rows USE INDEX ()"
    for count in 100 1000 10000 50000 100000; do
        measure "$table: scan, of which the data nodes send $count rows" "$rows USE INDEX () WHERE k < $count"
        measure "$table: range of $count rows" "$rows FORCE INDEX (k) WHERE k < $count"
        measure "$table: range of $count rows, of which the key is enough" "SELECT COUNT(k) FROM $table FORCE INDEX (k) WHERE k < $count"
    done
    list=$(seq -s , 1 97 96903)
    measure "$table: 1,000 keys" "$rows FORCE INDEX (PRIMARY) WHERE id IN ($list)"
    measure "$table: 1,000 ranges" "$rows FORCE INDEX (k) WHERE k IN ($list)"
    measure "$table: one key" "$rows WHERE id = 77"
done
