#!/usr/bin/env bash
# Cuts a container off, as a network does that loses everything: nobody is told, and addresses and names stay. For root, beside the engine.
#
#   partition.sh cut CONTAINER     drops what comes in and what goes out, except to itself
#   partition.sh heal CONTAINER
set -euo pipefail
pid=$(docker inspect -f '{{.State.Pid}}' "$2")
filter() { nsenter -t "$pid" -n iptables -w "$@"; }
case $1 in
cut) for chain in INPUT OUTPUT; do filter -A $chain -i lo -j ACCEPT 2>/dev/null || filter -A $chain -o lo -j ACCEPT; filter -A $chain -j DROP; done ;;
heal) filter -F ;;
*) echo "usage: partition.sh cut|heal CONTAINER" >&2; exit 2 ;;
esac
