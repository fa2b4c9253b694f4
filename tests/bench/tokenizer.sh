#!/usr/bin/env bash
# Measures the tokenizer beside Hugging Face tokenizers and tiktoken, on 20 MB of mixed text and Qwen2.5's
# vocabulary, in one run; fails unless every id equals. Takes about five minutes, most of them the peer's.
#
# usage: tests/bench/tokenizer.sh [WORK_FOLDER]      (default: build/bench, which git ignores)
# Environment: APUS_BENCH_PROGRAM, a built apus_bench_tokenizer to use; APUS_BENCH_MB, megabytes of text (20).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/bench
mkdir -p "${1:-$root/build/bench}"
work=$(cd "${1:-$root/build/bench}" && pwd)
megabytes=${APUS_BENCH_MB:-20}

program=${APUS_BENCH_PROGRAM:-}
if [[ -z $program ]]; then
  cmake -S "$root" -B "$work/apus" -G Ninja -DAPUS_BENCH=ON -DAPUS_TESTS=OFF -DAPUS_EXAMPLES=OFF -DAPUS_CUDA=OFF \
    > "$work/configure.log"
  cmake --build "$work/apus" --target apus_bench_tokenizer > "$work/build.log"
  program=$work/apus/bench/apus_bench_tokenizer
fi

python=$work/venv/bin/python
[[ -x $python ]] || python3 -m venv "$work/venv"
"$python" -m pip install -q --disable-pip-version-check -r "$here/peer_pins.txt"
text=$work/text-$megabytes.bin
if [[ ! -s $text ]]; then
  "$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary django -d "$work/packages" \
    -r "$here/text_pins.txt"
  "$python" "$here/mixed_text.py" "$work"/packages/[Dd]jango-*.tar.gz "$work"/packages/pretix-*.whl "$megabytes" "$text" \
    > "$work/text-$megabytes.log"
fi
xz -dc "$root/tests/data/cases/tokenizer/qwen2.5/tokenizer.json.xz" > "$work/tokenizer.json"

apus() {
  "$program" "$work/tokenizer.json" "$text" "$1" "$root/tests/data/cases/chat_template/templates/qwen25.jinja"
}
peer() {  # NAME
  "$python" "$here/tokenizer_peer.py" "$work/tokenizer.json" "$text" "$work/ids.bin" "$work/$1.json"
}
apus - > "$work/apus_before.json"
TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 peer peer
TOKENIZERS_PARALLELISM=true RAYON_NUM_THREADS=2 peer peer_two
failed=0
apus "$work/ids.bin" > "$work/apus.json" || failed=1
"$python" "$here/tokenizer_report.py" "$work" "$text" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
exit $failed
