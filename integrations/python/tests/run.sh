#!/bin/sh
# Runs a command when venv.sh has made the environment in WORK. Usage: run.sh WORK COMMAND...
work=$1
shift
if [ ! -d "$work/package" ]; then
    echo "skipped: $work/venv has not the package (see what python.venv said)"
    exit 77
fi
cd "$work" && exec "$@"
