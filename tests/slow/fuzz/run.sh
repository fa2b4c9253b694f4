#!/usr/bin/env bash
# Sets up what is missing, builds the fuzz targets (preset cpu-fuzz) and runs each from its committed corpus; from
# any folder. Fails if one finds a crash, a leak, undefined behaviour, or an input that takes too long or too much
# memory. What is found lies in build/cpu-fuzz/found/.
#
#   tests/slow/fuzz/run.sh [SECONDS [TARGET...]]
#
# SECONDS  for each target; 600 if not given. 0: only the inputs of the corpora.
# TARGET   fuzz_tokenizer_json and the like; all if not given
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
here=$top/tests/slow/fuzz
build=$top/build/cpu-fuzz
found=$build/found

seconds=${1:-600}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: tests/slow/fuzz/run.sh [SECONDS [TARGET...]]" >&2 && exit 2; }
shift $(($# > 0 ? 1 : 0))

install_clang() {
  local as_root=()
  [ -e /usr/lib/llvm-14/lib/clang ] && command -v clang++-14 >/dev/null &&
    compgen -G '/usr/lib/llvm-14/lib/clang/*/lib/linux/libclang_rt.fuzzer-*' >/dev/null && return
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
    install --no-install-recommends -y clang-14 libclang-rt-14-dev >/dev/null
}

cd "$top"
cmake/bootstrap.sh
install_clang
cmake --preset cpu-fuzz
cmake --build "$build" --target apus_fuzz

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(cd "$here" && basename -s .cpp fuzz_*.cpp))

# fuzz TARGET: from the committed inputs, and from what earlier runs here have added to them.
fuzz() {
  local target=$1 grown=$build/corpus/$1 options
  options=(-rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -artifact_prefix="$found/$target-")
  mkdir -p "$grown" "$found"
  [ ! -e "$here/$target.dict" ] || options+=(-dict="$here/$target.dict")
  if [ "$seconds" = 0 ]; then
    "$build/fuzz/$target" "${options[@]}" -runs=0 "$here/corpus/$target"
  else
    "$build/fuzz/$target" "${options[@]}" -max_len=16384 -max_total_time="$seconds" "$grown" "$here/corpus/$target"
  fi
}

failed=()
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0:detect_stack_use_after_return=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
for target in "${targets[@]}"; do
  echo "fuzz: $target, $seconds s"
  if ! fuzz "$target" >"$build/$target.log" 2>&1; then
    failed+=("$target")
    tail -n 60 "$build/$target.log"
  fi
  grep -hE '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$build/$target.log" || true
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz: found something in ${failed[*]}; the inputs lie in $found" >&2
  exit 1
fi
echo "fuzz: nothing found in ${targets[*]}"
