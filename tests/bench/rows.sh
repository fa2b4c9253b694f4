#!/usr/bin/env bash
# Prepares 1,000,000 generated rows with Qwen2.5's tokenizer and two workers, then takes them from the cache in a second
# process; for SFT and for DPO. Fails unless memory (RssAnon) stays below 1 GiB and the second process has its rows
# within 5 s. Takes some minutes and 4 GB of disk.
#
# usage: tests/bench/rows.sh [WORK_FOLDER]      (default: build/bench, which git ignores)
# Environment: APUS_BENCH_PROGRAM, a built apus_bench_rows to use; APUS_BENCH_ROWS, rows of each kind (1000000).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:-$root/build/bench}"
work=$(cd "${1:-$root/build/bench}" && pwd)
rows=${APUS_BENCH_ROWS:-1000000}

program=${APUS_BENCH_PROGRAM:-}
if [[ -z $program ]]; then
  cmake -S "$root" -B "$work/apus" -G Ninja -DAPUS_BENCH=ON -DAPUS_TESTS=OFF -DAPUS_EXAMPLES=OFF -DAPUS_CUDA=OFF \
    > "$work/configure.log"
  cmake --build "$work/apus" --target apus_bench_rows > "$work/build.log"
  program=$work/apus/bench/apus_bench_rows
fi

tokenizer=$work/rows-tokenizer
mkdir -p "$tokenizer"
xz -dc "$root/tests/data/cases/tokenizer/qwen2.5/tokenizer.json.xz" > "$tokenizer/tokenizer.json"
cp "$root/tests/data/cases/chat_template/templates/qwen25.jinja" "$tokenizer/chat_template.jinja"
echo '{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}' > "$tokenizer/tokenizer_config.json"

failed=0
for kind in sft dpo; do
  file=$work/rows-$kind-$rows.jsonl
  cache=$work/rows-cache-$kind
  rm -rf "$cache"
  [[ -s $file ]] || "$program" generate "$kind" "$rows" "$file"
  "$program" prepare "$kind" "$tokenizer" "$file" "$cache" 2 | tee "$work/rows-$kind-first.json"
  "$program" prepare "$kind" "$tokenizer" "$file" "$cache" 2 | tee "$work/rows-$kind-second.json"
  python3 - "$work/rows-$kind-first.json" "$work/rows-$kind-second.json" "$rows" <<'CHECK' || failed=1
import json, sys
first, second = (json.load(open(path)) for path in sys.argv[1:3])
faults = []
if first["rows"] != int(sys.argv[3]) or second["rows"] != first["rows"]: faults.append("rows are missing")
if first["fingerprint"] != second["fingerprint"]: faults.append("the fingerprints differ")
if first["from_cache"] or not second["from_cache"]: faults.append("the second process did not use the cache")
if max(first["peak_rss_anon_mib"], second["peak_rss_anon_mib"]) >= 1024: faults.append("memory reached 1 GiB")
if second["seconds"] >= 5: faults.append("resuming took 5 s or more")
print("\n".join(f"{first['kind']}: {fault}" for fault in faults) or f"{first['kind']}: as it must be")
sys.exit(bool(faults))
CHECK
done
exit $failed
