#!/bin/sh
# Measures this tree and another commit in turns, and compares them with benchstat: bench-compare.sh BASE [TURNS]. Both are measured by their own
# `make bench`, whose lines "ratio NAME key=value ..." become Go's benchmark format. Changes that are not committed are measured too.
set -eu
cd "$(dirname "$0")/.."
base=${1:?name the commit to compare with, such as BASE=HEAD~1} turns=${2:-3}
commit=$(git rev-parse --verify "$base^{commit}")
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT INT TERM
git worktree add --detach "$dir/base" "$commit" >/dev/null 2>&1

# What says how much there was (sessions, items) becomes a part of the name, and what was measured a value with a unit.
to_benchmark() {
	awk '$1 == "ratio" {
		name = "Benchmark" $2; values = ""
		for (i = 3; i <= NF; i++) {
			if (split($i, kv, "=") != 2) continue
			k = kv[1]; v = kv[2]
			if (k ~ /^(baseline|bare)_/) continue
			if (k ~ /_us$/)            { sub(/_us$/, "", k); values = values sprintf(" %.0f ns/%s", v * 1000, k) }
			else if (k ~ /_ms$/)       { sub(/_ms$/, "", k); values = values sprintf(" %.0f ns/%s", v * 1000000, k) }
			else if (k ~ /per_s$|\/s$/) { sub(/^per_s$/, "events/s", k); values = values " " v " " k }
			else if (k ~ /^ratio/)     values = values " " v " " k
			else name = name "/" k "=" v
		}
		print name, 1, values
	}'
}

for turn in $(seq "$turns"); do
	for side in base this; do
		echo "turn $turn of $turns: $side" >&2
		if [ $side = base ]; then tree=$dir/base; else tree=.; fi
		make -C "$tree" --no-print-directory bench >"$dir/out" || { cat "$dir/out"; exit 1; }
		to_benchmark <"$dir/out" >>"$dir/$side.txt"
	done
done
[ -s "$dir/base.txt" ] || { echo "make bench of $base prints no line that begins with \"ratio\": choose a later commit" >&2; exit 1; }
mkdir -p tmp
cp "$dir/base.txt" tmp/bench-base.txt
cp "$dir/this.txt" tmp/bench-this.txt
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da base="$dir/base.txt" this="$dir/this.txt"
echo "the figures are in tmp/bench-base.txt and tmp/bench-this.txt"
