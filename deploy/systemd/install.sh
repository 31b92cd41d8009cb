#!/bin/sh
# Installs muxpost, or another version of it, on a machine that systemd runs. Run again it changes what differs, and nothing else. Agents go on.
#
#   install.sh host [--join DISPATCHER --token-file FILE] [--listen ADDRESS]   tmuxd and its agents; - reads the invitation from standard input
#   install.sh central                                                         the dispatcher and the poller
set -eu

fail() { printf 'install.sh: %s\n' "$1" >&2; [ $# -lt 2 ] || printf '  what to do: %s\n' "$2" >&2; exit 1; }
say() { printf '%s\n' "$*"; }
usage="install.sh host [--join DISPATCHER --token-file FILE] [--listen ADDRESS], or install.sh central"

here=$(cd "$(dirname "$0")" && pwd)
role=${1:-}
case $role in host | central) shift ;; *) fail "what this machine is to be is not said" "$usage" ;; esac
join='' token='' listen=''
while [ $# -gt 0 ]; do
	[ "$role" = host ] && [ $# -ge 2 ] || fail "$1 was not expected" "$usage"
	case $1 in
	--join) join=$2 ;; --token-file) token=$2 ;; --listen) listen=$2 ;;
	*) fail "$1 was not expected" "$usage" ;;
	esac
	shift 2
done
[ -z "$join" ] || [ -n "$token" ] || fail "--join needs the invitation" "--token-file FILE, or --token-file - for standard input; muxpost hosts invite NAME makes it"
[ -n "$join" ] || [ -z "$token$listen" ] || fail "--token-file and --listen go with --join" "$usage"
[ "$token" = - ] || [ -z "$token" ] || [ -r "$token" ] || fail "the invitation cannot be read: $token"
[ "$(id -u)" = 0 ] || fail "this is not root" "run it with sudo"
[ -d /run/systemd/system ] || fail "systemd does not run this machine" "docs/configuration.md says how to start muxpost-tmuxd by hand; deploy/compose is for containers"
if [ "$role" = host ]; then
	command -v tmux >/dev/null || fail "tmux is not installed" "apt-get install tmux, or what your system has for that; 3.3 or newer, better 3.4"
	command -v git >/dev/null || say "note: git is not installed; agents need it where tmuxd.trees is set"
fi

changed=no
# put FILE TO MODE: a program that runs is not written to but replaced.
put() {
	! cmp -s "$1" "$2" || return 0
	mkdir -p "$(dirname "$2")"
	cp "$1" "$2.new"
	chmod "$3" "$2.new"
	mv -f "$2.new" "$2"
	changed=yes
}
program() { put "$here/bin/$1" "/usr/local/bin/$1" 755; }
unit() { put "$here/$1" "/etc/systemd/system/$1" 644; }
user() { put "$here/$1.sysusers" "/etc/sysusers.d/$1.conf" 644; put "$here/$1.tmpfiles" "/etc/tmpfiles.d/$1.conf" 644; name=$1; }

program muxpost
case $role in
host)
	for p in muxpost-tmuxd muxpost-exec fakeagent; do program $p; done
	for u in muxpost-tmuxd.service muxpost-agents.socket muxpost-agents@.service muxpost-agents.slice; do unit $u; done
	user muxpost-agents
	services=muxpost-tmuxd.service
	;;
central)
	for p in muxpost-dispatcher muxpost-poller; do program $p; done
	for u in muxpost-migrate.service muxpost-dispatcher.service muxpost-poller.service muxpost-certificate.service muxpost-certificate.timer; do unit $u; done
	user muxpost
	services="muxpost-dispatcher.service muxpost-poller.service"
	;;
esac
systemd-sysusers "/etc/sysusers.d/$name.conf"
systemd-tmpfiles --create "/etc/tmpfiles.d/$name.conf"
systemctl daemon-reload
data=/var/lib/$name
say "$(/usr/local/bin/muxpost version | head -n 1) is installed"

if [ -n "$join" ]; then
	if [ -e "$data/muxpost.yaml" ] && ls "$data"/certificates/host-*/cert.pem >/dev/null 2>&1; then
		say "this machine joined before; runuser -u $name -- muxpost --data-dir $data hosts join $join --token-file - <FILE does it again"
	else
		[ "$token" = - ] || exec <"$token"
		runuser -u $name -- /usr/local/bin/muxpost --data-dir $data hosts join "$join" --token-file - ${listen:+--listen "$listen"}
	fi
fi
if [ ! -e "$data/muxpost.yaml" ]; then
	case $role in
	host) say "next: $0 host --join DISPATCHER --token-file FILE, with an invitation that muxpost hosts invite NAME makes where the dispatcher is" ;;
	central) say "next: write $data/muxpost.yaml and /etc/muxpost/credentials/database-url, as $here/README.md shows, and run this again" ;;
	esac
	exit 0
fi
case $role in
host) systemctl -q enable --now muxpost-agents.socket ;;
central) systemctl -q enable --now muxpost-certificate.timer ;;
esac
systemctl -q enable $services
if [ $changed = yes ]; then systemctl restart $services; else systemctl start $services; fi ||
	fail "a service does not start" "journalctl -u ${services%% *} -n 20 says why; run this again afterwards"
say "running: $services"
