#!/usr/bin/env bash
# A Docker engine and compose for the test of the stack, on a Debian machine that may have neither, and reach no registry of images.
#
#   engine.sh start   installs what is missing, starts an engine if none answers, and fetches compose v2 and buildx where they are missing
#   engine.sh stop    stops the engine that start started, and no other
#
# CI machines start no services by themselves, so the engine is a process of ours. It is left running between tests.
set -euo pipefail
run=${MUXPOST_ENGINE_DIR:-/run/muxpost-engine}

answers() { docker version -f '{{.Server.Version}}' >/dev/null 2>&1; }

install() {
	command -v dockerd >/dev/null && command -v mmdebstrap >/dev/null && return
	echo "engine: installing docker.io and mmdebstrap"
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends docker.io mmdebstrap >/dev/null
}

start() {
	answers && return
	install
	mkdir -p "$run"
	# An engine that turns forwarding on itself also forbids it to everything else on the machine.
	sysctl -qw net.ipv4.ip_forward=1
	setsid dockerd >"$run/log" 2>&1 </dev/null &
	echo $! >"$run/pid"
	for _ in $(seq 300); do answers && return; sleep 0.1; done
	tail -20 "$run/log" >&2
	exit 1
}

# plugins gets compose v2 and buildx from the next release of Debian, whose packages are checked as ever, and installs nothing of it.
plugins() {
	docker compose version >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1 && return
	install
	local dir into=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins
	dir=$(mktemp -d)
	mkdir -p "$dir"/{lists/partial,cache,pkg,empty} "$into"
	sed 's/bookworm/trixie/g' /etc/apt/sources.list.d/debian.sources >"$dir/trixie.sources"
	cat >"$dir/apt.conf" <<-EOF
		Dir::Etc::sourcelist "$dir/trixie.sources";
		Dir::Etc::sourceparts "$dir/empty";
		Dir::State::lists "$dir/lists";
		Dir::Cache "$dir/cache";
		APT::Sandbox::User "root";
	EOF
	echo "engine: fetching compose and buildx"
	(
		cd "$dir/pkg"
		export APT_CONFIG=$dir/apt.conf
		apt-get -qq update
		apt-get -qq download docker-compose/trixie docker-buildx/trixie
		for deb in *.deb; do dpkg-deb -x "$deb" "$dir/out"; done
	)
	find "$dir/out" -path '*cli-plugins/*' -type f -exec install -m 755 -t "$into" {} +
	rm -r "$dir"
	docker compose version
}

case ${1:-} in
start) start && plugins ;;
stop) if [ -f "$run/pid" ]; then kill -TERM "$(cat "$run/pid")" 2>/dev/null || true; rm -r "$run"; fi ;;
*) echo "usage: engine.sh start|stop" >&2; exit 2 ;;
esac
