#!/bin/sh
# As the official entrypoint does, as far as the stack needs it: a cluster at the first start, its user with the password of a file, and
# a server that others reach by that password.
set -eu
[ "$1" = postgres ] || exec "$@"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	[ -s "$POSTGRES_PASSWORD_FILE" ] || { echo "no password in $POSTGRES_PASSWORD_FILE" >&2; exit 1; }
	mkdir -p "$PGDATA"
	chmod 700 "$PGDATA"
	initdb --no-sync -U "${POSTGRES_USER:-postgres}" --auth-local=trust --auth-host=scram-sha-256 --pwfile="$POSTGRES_PASSWORD_FILE"
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	pg_ctl start -w -o "-c listen_addresses=''"
	[ "${POSTGRES_DB:-postgres}" = postgres ] || createdb -U "${POSTGRES_USER:-postgres}" "$POSTGRES_DB"
	pg_ctl stop -w -m fast
fi
shift
exec postgres -c listen_addresses='*' "$@"
