#!/bin/sh
# Makes what the stack's parties know one another by, in volumes, and prints none of it: the database's password with the URL that holds it,
# and an authority with a certificate for each party (docs/configuration.md says what is in one). What is there stays; a certificate that
# has less than 30 of its 90 days left is made anew, and read again by itself.
set -eu
umask 077
cd /run/muxpost

if [ ! -s database/url ]; then
	password=$(openssl rand -hex 24)
	printf %s "$password" >database/password
	printf 'postgres://muxpost:%s@postgres:5432/muxpost?sslmode=disable\n' "$password" >database/url.new
	chmod 440 database/password # the database's own user is in our group
	mv database/url.new database/url
	echo "made the database's password"
fi

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

if [ ! -s ca/ca.pem ]; then
	key ca/ca.key
	openssl req -x509 -new -key ca/ca.key -days 3650 -subj '/CN=muxpost authority' -addext 'keyUsage=critical,keyCertSign' -out ca/ca.new
	mv ca/ca.new ca/ca.pem
	echo "made the authority"
fi

# issue DIR NAME
issue() {
	openssl x509 -checkend 2592000 -noout -in "$1/cert.pem" >/dev/null 2>&1 && return
	work=$(mktemp -d)
	key "$work/key.pem"
	printf 'subjectAltName=URI:spiffe://muxpost/%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=critical,digitalSignature\n' "$2" >"$work/ext"
	openssl req -new -key "$work/key.pem" -subj "/CN=${2##*/}" -out "$work/csr"
	openssl x509 -req -in "$work/csr" -CA ca/ca.pem -CAkey ca/ca.key -days 90 -extfile "$work/ext" -out "$work/cert.pem" 2>/dev/null
	cp "$work/key.pem" "$work/cert.pem" ca/ca.pem "$1/"
	rm -r "$work"
	echo "issued $2"
}
issue dispatcher service/dispatcher
issue host-a host/host-a
issue host-b host/host-b
issue operator operator/compose
