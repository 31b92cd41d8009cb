#!/bin/sh
# Makes what the stack's parties know one another by, in volumes, and prints none of it: the database's password with the URL that holds it,
# and an authority with a certificate for each party. What is there stays; a certificate with a third of its time left or less is made anew,
# and read again by itself.
set -eu
umask 077
cd /run/muxpost

if [ ! -s database/url ]; then
	password=$(od -An -tx1 -N24 /dev/urandom | tr -d ' \n')
	printf %s "$password" >database/password.new
	chmod 440 database/password.new # the database's own user is in our group
	mv -f database/password.new database/password
	printf 'postgres://muxpost:%s@postgres:5432/muxpost?sslmode=disable\n' "$password" >database/url.new
	mv database/url.new database/url
	echo "made the database's password"
fi

ca() { muxpost --data-dir /run/muxpost ca "$@"; }

if ! ca show >/dev/null 2>&1; then
	ca init >/dev/null
	echo "made the authority"
fi

# issue KIND NAME VOLUME
issue() {
	if [ ! -s "$3/cert.pem" ] || ! ca show | grep -q "^$1/$2 *valid "; then
		ca issue "$1" "$2" --expires 90d --out "/run/muxpost/$3" >/dev/null
		echo "issued $1/$2"
	fi
}
issue service dispatcher dispatcher
issue service poller poller
issue host host-a host-a
issue host host-b host-b
issue operator compose operator
