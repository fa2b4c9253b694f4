#!/usr/bin/env bash
# Makes the quickstart's base model again from the corpus and a seed, in place; a few minutes. One thread, so that
# sums are added in one order: the same build on the same kind of CPU gives the same file.
#
#   make_base.sh [BUILD_FOLDER]    default: build/cpu-release of this clone
set -euo pipefail

toy=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$toy/../../build/cpu-release}
cmake --build "$build" --target make_base base_share
OMP_NUM_THREADS=1 "$build/examples/make_base" "$toy/base" "$toy/data/corpus.jsonl"
"$build/examples/base_share" "$toy/base" "$toy/data/preference.eval.jsonl"
