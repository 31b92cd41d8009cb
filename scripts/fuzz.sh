#!/bin/sh
# Runs every fuzz test of the tree in turn, each for FUZZ_TIME (60s), and says what it found. What breaks one is kept by Go in testdata/fuzz beside
# it: commit it with the correction. FUZZ_ONLY chooses targets by a part of their name, such as ./core/ or FuzzReceive.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZ_TIME:-60s} only=${FUZZ_ONLY:-} targets=0 failed=
log=$(mktemp)
trap 'rm -f "$log"' EXIT
list=$(grep -rl --include='*_test.go' '^func Fuzz' . | sort | xargs grep -ho --with-filename '^func Fuzz[A-Za-z_]*' | sed 's,/[^/]*:func , ,')
total=$(echo "$list" | grep -cF -- "$only" || true)
while read -r package target; do
	case "$package/$target" in *"$only"*) ;; *) continue ;; esac
	targets=$((targets + 1))
	printf '%d of %d: %s of %s, for %s\n' $targets "$total" "$target" "$package" "$time"
	if ! go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" >"$log" 2>&1; then
		failed="$failed $package/$target"
		cat "$log"
	fi
done <<END
$list
END
echo "fuzz: targets=$targets time=$time failed=$(echo "$failed" | wc -w)$failed"
[ -z "$failed" ]
