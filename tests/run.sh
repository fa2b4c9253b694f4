#!/usr/bin/env bash
# Sets up what is missing, builds (preset cpu-release) and runs the tests; from any folder.
#
#   tests/run.sh [--label L]... [--slow]
#
# --label L  only the tests with the label L: unit, distributed, parity, gpu, fault, package, layering, slow
# --slow     also the tests labelled slow, which are otherwise left out
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build/cpu-release
log=$build/tests/output.txt

labels=()
slow=no
while [ $# -gt 0 ]; do
  case $1 in
    --label) labels+=("${2:?--label wants a name}") && shift 2 ;;
    --slow) slow=yes && shift ;;
    *) echo "unknown argument $1 (tests/run.sh [--label L]... [--slow])" >&2 && exit 2 ;;
  esac
done

selection=()
if [ ${#labels[@]} -gt 0 ]; then
  selection+=(-L "^($(IFS='|' && echo "${labels[*]}"))\$")
  [[ " ${labels[*]} " != *' slow '* ]] || slow=yes
fi
[ $slow = yes ] || selection+=(-LE '^slow$')

cd "$top"
cmake/bootstrap.sh
cmake --preset cpu-release
cmake --build "$build"

# The structure of the tree, where the tool that measures it lies beside the clone.
house=0
if [ -x ../shared/tools/house-check ]; then
  ../shared/tools/house-check . || house=$?
fi

# Every test that ran says so last, whatever the tests print.
tests=0
mkdir -p "$(dirname "$log")"
OMP_NUM_THREADS=1 ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" \
  "${selection[@]}" --output-log "$log" || tests=$?
grep -h '^skipped: ' "$build/Testing/Temporary/LastTest.log" || true
[ $house = 0 ] || echo "tests/run.sh: house-check says that the tree falls short (exit $house), see above" >&2
grep -hE '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" || true
[ $tests = 0 ] && [ $house = 0 ]
