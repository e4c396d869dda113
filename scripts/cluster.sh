#!/usr/bin/env bash
# A cluster of two data nodes with two replicas and two SQL nodes on this machine; one data node is killed while SQL
# clients work and comes back, and what they see is shown. The cluster goes on running, and is stopped by
# 'vinga down --folder FOLDER'.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

vinga=${VINGA:-target/release/vinga}
folder=${FOLDER:-vinga-cluster-2}
writers=4

"$vinga" up --folder "$folder" --data-nodes 2 --replicas 2 --sql-nodes 2 || exit 1
sql() { target/mariadb/bin/mariadb --no-defaults --user=root --socket="$folder/sql-$1/sql.sock" --batch --skip-column-names; }

sql 1 <<'SQL' || exit 1
CREATE DATABASE IF NOT EXISTS cluster_demo;
CREATE OR REPLACE TABLE cluster_demo.counters (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=VINGA;
INSERT INTO cluster_demo.counters SELECT seq, 0 FROM cluster_demo.seq_1_to_4;
SQL

# Each writer is one session that counts, half of them at each SQL node; it says how many statements failed.
count() {
    local statements=4000
    (for ((i = 0; i < statements; i++)); do echo "UPDATE cluster_demo.counters SET n = n + 1 WHERE id = $1;"; done) |
        target/mariadb/bin/mariadb --no-defaults --user=root --socket="$folder/sql-$(($1 % 2 + 1))/sql.sock" \
            --force 2>&1 >/dev/null | grep -c ERROR
}
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
begun=$(date +%s%N)
for ((writer = 1; writer <= writers; writer++)); do count "$writer" >"$results/$writer" & done
sleep 0.5
victim=$(head -1 "$folder/node-1/vinga.pid")
echo
echo "data node 1 (process $victim) is killed while $writers SQL sessions update rows"
kill -9 "$victim"
wait
echo "all sessions have ended after $((($(date +%s%N) - begun) / 1000000)) ms"
echo "rows, with what the sessions have counted (4000 statements each):"
sql 1 <<<"SELECT id, n FROM cluster_demo.counters ORDER BY id"
echo "statements that failed, by session: $(cat "$results"/[0-9] | tr '\n' ' ')"
echo "(a statement that was under way at the dead node may fail with an unknown outcome; it is counted or not)"
echo
echo "the data node that was killed is started again, and joins the other one:"
for ((tries = 0; tries < 120; tries++)); do
    "$vinga" status --folder "$folder" >"$results/status" && break
    sleep 0.5
done
cat "$results/status"
grep -E "restarts:|Restart" "$folder/node-1/vinga.log"
echo "what the other data node has logged:"
grep -E "given up|view|president|leads" "$folder/node-2/vinga.log"
echo
echo "'$vinga down --folder $folder' stops everything"
