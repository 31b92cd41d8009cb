#!/bin/sh
# Applies a transition to a graph that is a file: apply.sh NODE start|finish|fail SEQUENCE. A transition that is in it is not applied again,
# though it may be asked for twice, even at once.
set -eu
file=${GRAPH:-graph.txt}
exec 9>>"$file.lock"
flock 9
grep -qs "^$3 " "$file" || echo "$3 $1 $2" >>"$file"
