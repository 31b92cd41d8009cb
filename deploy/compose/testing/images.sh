#!/usr/bin/env bash
# Stand-ins for the public images of the stack, where no registry can be reached: made from Debian's packages, under a name of their own so
# that nobody takes them for the real ones. Never push them: they hold this machine's certificate authorities.
#
#   images.sh [base] [postgres] [golang]   makes those that are missing
set -euo pipefail
cd "$(dirname "$0")"
base=standin/debian:13.1-slim

have() { docker image inspect "$1" >/dev/null 2>&1; }

make_base() {
	have "$base" && return
	local rules
	rules=$(mktemp)
	# What Debian's image does too: packages are not kept.
	cat >"$rules" <<-'EOF'
		DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
		Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
		Acquire::Languages "none";
	EOF
	TMPDIR=/dev/shm mmdebstrap --quiet --variant=minbase --include=ca-certificates --dpkgopt=force-unsafe-io \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--aptopt='Acquire::Languages "none"' \
		--customize-hook="upload $rules /etc/apt/apt.conf.d/docker-clean" \
		--customize-hook='upload /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt' \
		--customize-hook='rm -rf "$1"/var/cache/apt/*.bin "$1"/var/lib/apt/lists/*' \
		trixie - | docker import -c 'CMD ["bash"]' -c 'LABEL stand-in=true' - "$base" >/dev/null
	rm "$rules"
}

for image in "${@:-base}"; do
	case $image in
	base) make_base ;;
	postgres) make_base; have standin/postgres:17.6 || docker build -q -t standin/postgres:17.6 --build-arg BASE_IMAGE="$base" postgres ;;
	golang)
		make_base
		have standin/golang:1.26.8-trixie || docker build -q -t standin/golang:1.26.8-trixie -f - "$(go env GOROOT)" <<-EOF
			FROM $base
			LABEL stand-in=true
			COPY . /usr/local/go
			ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOPATH=/go GOTOOLCHAIN=local
		EOF
		;;
	*) echo "images.sh: there is no stand-in for $image" >&2; exit 2 ;;
	esac
done
