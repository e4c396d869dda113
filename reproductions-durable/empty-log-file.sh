#!/usr/bin/env bash
# empty-log-file.sh VINGA: a start with more files of the log is killed between the making of a file and its allocation.
set -eu
vinga=$1 place=$(mktemp -d)
run() { timeout "$1" prlimit --as=8000000000 "$vinga" data --port 0 --folder "$place/n" --set DataMemory=64M \
    --set FragmentLogFileSize=4M --set NoOfFragmentLogFiles="$2" 2>>"$place/log" || echo "exit code $?"; }
run 3 4                                  # ends in order, by SIGTERM
: > "$place/n/redo/000-00000004.redo"    # what open(O_CREAT) leaves before fallocate
run 3 5                                  # before: "0 bytes: it is cut off", then a crash (70); now it starts
grep -h "cut off\|crashed\|is ready" "$place/log"
