#!/usr/bin/env bash
# Collects what a machine with a GPU needs to run tests and benchmarks built here: stripped and packed programs
# (.carry/bin/NAME.gz) and the shared libraries of text processing (.carry/lib), in the checkout but out of git.
# Beside them belong .carry/wheels and .carry/peers/peers.py, where the peer is to run.
#
#   tests/bench/carry.sh BUILD [PROGRAM ...]     default: every apus_gpu_*, apus_bench_op, apus_bench_train
set -euo pipefail
build=$(realpath "${1:?usage: carry.sh BUILD [PROGRAM ...]}")
shift
root=$(realpath "$(dirname "$0")/../..")
mkdir -p "$root/.carry/bin" "$root/.carry/lib"
if [ $# -eq 0 ]; then
  set -- $(cd "$build" && ls tests/apus_gpu_* bench/apus_bench_op bench/apus_bench_train 2>/dev/null || true)
fi
for program in "$@"; do
  path=$build/$program
  for folder in tests bench bin; do
    [ -f "$path" ] || path=$build/$folder/$program
  done
  target=$root/.carry/bin/$(basename "$program")
  if [ ! -e "$target.gz" ] || [ "$path" -nt "$target.gz" ]; then
    strip -o "$target" "$path" && gzip -9 -n -f "$target"
  fi
  # Libraries of the system that the other machine may lack; libtorch and CUDA are there.
  ldd "$path" | awk '/lib(utf8proc|pcre2-8|zstd|z|fmt)\.so/ {print $3}' | while read -r library; do
    cp -Lu "$library" "$root/.carry/lib/"
  done
done
kib=$(du -sk "$root/.carry" | cut -f1)
tracked=$(cd "$root" && git ls-files -z -co --exclude-standard | du -ck --files0-from=- 2>/dev/null | tail -1 | cut -f1)
echo ".carry $((kib / 1024)) MiB + working tree $((tracked / 1024)) MiB"
ls -la "$root/.carry/bin"
if [ $((kib + tracked)) -gt $((62 * 1024)) ]; then
  echo "more than 62 MiB: name fewer programs, and remove those in .carry/bin that are not needed" >&2
  exit 1
fi
