#!/usr/bin/env bash
# step_model_test.sh: the full search of step.pml. The protocol as it is must hold, every broken
# variant must give a counterexample.
set -euo pipefail
model=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/step.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# search NAME WANTED FLAG...: WANTED is holds or fails.
search() {
  local name=$1 wanted=$2 found began=$SECONDS
  shift 2
  mkdir -p "$work/$name"
  (cd "$work/$name" && spin -a "$@" "$model" >spin.log &&
    gcc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m200000 >pan.log) ||
    { cat "$work/$name"/*.log; echo "NOT OK $name: no search"; exit 1; }
  if grep -qE 'search depth too small|out of memory|Search not completed' "$work/$name/pan.log" &&
    grep -qE 'errors: 0' "$work/$name/pan.log"; then
    echo "NOT OK $name: the search is not complete"
    exit 1
  fi
  found=$(grep -qE 'errors: 0' "$work/$name/pan.log" && echo holds || echo fails)
  # A variant fails by its property, not by a model that got stuck.
  if [[ $found == fails ]] && ! grep -q 'assertion violated' "$work/$name/pan.log"; then
    cat "$work/$name/pan.log"
    echo "NOT OK $name: failed, but not by an assertion"
    exit 1
  fi
  echo "$([[ $found == "$wanted" ]] && echo ok || echo NOT OK) $name: $found," \
    "$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' "$work/$name/pan.log" | head -n 1) states," \
    "$((SECONDS - began)) s"
  [[ $found == "$wanted" ]]
}

search closing holds
search closing-5-operations holds -DOPS=5
search closing-3-steps holds -DOPS=2 -DSTEPS=3
search closing-without-mirror holds -DNO_MIRROR
search no-close fails -DNO_CLOSE
search closes-anyway fails -DCLOSES_ANYWAY -DNO_MIRROR
search keeps-epoch fails -DKEEPS_EPOCH
