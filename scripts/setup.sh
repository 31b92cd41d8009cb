#!/bin/sh
# Installs what muxpost needs beside Go, where it is missing: tmux and PostgreSQL's server programs. With the word "tests", what they use as well.
set -eu

need=
command -v tmux >/dev/null 2>&1 || need="$need tmux"
command -v ps >/dev/null 2>&1 || need="$need procps"
command -v curl >/dev/null 2>&1 || need="$need curl"
if ! command -v initdb >/dev/null 2>&1 && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && [ -z "${MUXPOST_PG_BINDIR:-}" ]; then
	need="$need postgresql"
fi
if [ "${1:-}" = tests ]; then
	command -v pgbouncer >/dev/null 2>&1 || need="$need pgbouncer"
	command -v systemd-analyze >/dev/null 2>&1 || need="$need systemd"
	# Shells that people have, and that are not like sh.
	for shell in fish tcsh zsh; do command -v $shell >/dev/null 2>&1 || need="$need $shell"; done
	# The drill's hosts are network namespaces, and tmux has a clock that can be stepped.
	command -v ip >/dev/null 2>&1 || need="$need iproute2"
	command -v iptables-restore >/dev/null 2>&1 || need="$need iptables"
	ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || need="$need libfaketime"
fi
[ -n "$need" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "setup: please install:$need (this script knows apt alone)" >&2
	exit 3
fi
run=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "setup: please install as root: apt-get install$need" >&2
		exit 3
	fi
	run=sudo
fi
echo "setup: installing$need"
$run env DEBIAN_FRONTEND=noninteractive apt-get -qq update
# shellcheck disable=SC2086
# RUNLEVEL keeps packages from starting services of their own.
$run env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends $need >/dev/null
