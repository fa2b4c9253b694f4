#!/usr/bin/env bash
# One step of a round on the machine with a GPU; carry .carry (see carry.sh) and run several in one command.
#
#   device_round.sh tests [PART ...]          gpu test programs whose names hold a part; all without one
#   device_round.sh sanitize TOOL PROGRAM [FILTER]   compute-sanitizer (memcheck, racecheck, initcheck, synccheck),
#                                             of apus's own kernels alone where it can tell; ALL_KERNELS=1: of all
#   device_round.sh op [FILTER ...]           apus_bench_op
#   device_round.sh train KEY=VALUE ...       apus_bench_train
#   device_round.sh adamw [KEY=VALUE ...]     apus_bench_adamw, on the host's processors
#   device_round.sh alternate ROW ... [n=5]   apus and the peer in turn (peers_alternate.py)
#   device_round.sh compare KEY=VALUE ...     losses of apus and of transformers + PEFT (compare_losses.py; autocast=0:
#                                             the peer in fp32; masters=1: its weights in bf16, their masters in fp32)
#   device_round.sh peer KEY=VALUE ...        peers.py alone
#   device_round.sh offload_peer KEY=VALUE ...   the peer with its states on the host (peers_offload.py)
#
# A few lines are printed; under $OUT (default /tmp/round) come round.log, all output of all steps, and one file of
# JSON lines a kind of step. SECONDS_EACH limits one program (120), LINES_EACH what is shown of its failures (40).
set -uo pipefail
root=$(realpath "$(dirname "$0")/../..")
carry=$root/.carry
out=${OUT:-/tmp/round}
log=$(mktemp -d)  # of this step, joined to round.log at its end
mkdir -p "$out"
trap 'for file in "$log"/*; do [ -f "$file" ] && { echo "##### $* $file"; cat "$file"; } >>"$out/round.log"; done' EXIT
limit=${SECONDS_EACH:-120}
. "$root/tests/bench/carried.sh"

tests() {
  local failed=0 program name rc
  for program in "$bin"/apus_gpu_*; do
    name=$(basename "$program")
    [[ $name == *.sum ]] && continue
    if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qxF "$name" && ! printf '%s\n' "$@" | (while read -r part; do
         [[ $name == *$part* ]] && exit 0; done; exit 1); then
      continue
    fi
    local begin=$SECONDS
    timeout "$limit" "$program" --gtest_color=no ${GTEST_FILTER:+--gtest_filter=$GTEST_FILTER} \
      >"$log/$name.log" 2>&1
    rc=$?
    [ $rc -eq 0 ] || failed=1
    echo "== $name rc=$rc $((SECONDS - begin)) s: $(grep -E '^\[  (PASSED|FAILED)  \] [0-9]+' "$log/$name.log" | tr '\n' ' ')"
    grep -E '^\[  FAILED  \] [A-Z]' "$log/$name.log" | sort -u | head -40
    if [ $rc -ne 0 ]; then
      grep -E -A4 'Failure$|^unknown file|terminate|what\(\)|CUDA error|Segmentation' "$log/$name.log" | cut -c1-300 | head -"${LINES_EACH:-40}"
      [ $rc -ge 124 ] && tail -3 "$log/$name.log" | cut -c1-300
    fi
  done
  return $failed
}

case ${1:-} in
  tests) shift; tests "$@" ;;
  sanitize)
    tool=$2 name=$3 own=()
    for option in --kernel-name --kernel-regex; do
      [ -n "${ALL_KERNELS:-}" ] || [ ${#own[@]} -gt 0 ] && break
      grep -q -e "$option" <<<"$(compute-sanitizer --help 2>&1)" && own=("$option" kns=apus)
    done
    begin=$SECONDS
    timeout "$limit" compute-sanitizer --tool "$tool" "${own[@]}" --error-exitcode 9 "$bin/$name" \
      ${4:+--gtest_filter=$4} >"$log/$tool-$name.log" 2>&1
    echo "== $tool $name rc=$? $((SECONDS - begin)) s ${own[*]}: $(grep -E '^\[  (PASSED|FAILED)' "$log/$tool-$name.log" | head -1) $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log/$tool-$name.log" | tail -1)"
    grep -E '^=========' "$log/$tool-$name.log" | head -20
    ;;
  op) shift; timeout "$limit" "$bin/apus_bench_op" "$@" out="$out/op.jsonl" >"$log/op.log" 2>"$log/op.err"
    echo "== op rc=$?"; sed -n '/^copy /,$p' "$log/op.log"; tail -3 "$log/op.err"; grep -h '"error"' "$log/op.log" | cut -c1-400
    ;;
  train) shift; timeout "$limit" "$bin/apus_bench_train" "$@" out="$out/train.jsonl" >"$log/train.log" 2>"$log/train.err"
    echo "== train rc=$?"
    python3 "$root/tests/bench/train_lines.py" <"$log/train.log"; tail -3 "$log/train.err"
    ;;
  adamw) shift; timeout "$limit" "$bin/apus_bench_adamw" "$@" out="$out/adamw.jsonl" >"$log/adamw.log" 2>"$log/adamw.err"
    echo "== adamw rc=$?, $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), huge pages $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
    python3 -c '
import json, sys
for line in map(json.loads, sys.stdin):
    print("%9d x%-3d %-7s %-32s %6.3f ns, %6.3f a core, %6.1f GB/s, over fused %5.2f (least %5.2f), and copy %5.2f (%5.2f)" % tuple(
        line[key] for key in ("elements", "threads", "pages", "case", "ns_per_element", "ns_per_element_and_core", "gb_per_s",
                              "over_fused", "least_over_fused", "over_fused_and_copy", "least_over_fused_and_copy")))' <"$log/adamw.log"
    tail -3 "$log/adamw.err"
    ;;
  alternate) shift; peers
    python3 "$root/tests/bench/peers_alternate.py" "$@" apus="$bin/apus_bench_train" \
      peers="$carry/peers/peers.py" out="$out/alternate.jsonl" 2>"$log/alternate.err"
    grep -vE 'Warning|warn' "$log/alternate.err" | tail -3 | cut -c1-300
    ;;
  compare) shift; peers
    folder=/tmp/compare_$$
    ours=() theirs=()
    for word in "$@"; do
      case $word in autocast=* | masters=*) theirs+=("$word") ;; *) ours+=("$word") ;; esac
    done
    timeout "$limit" "$bin/apus_bench_train" "${ours[@]}" save=$folder out="$out/compare.jsonl" >"$log/compare.log" 2>&1 ||
      tail -3 "$log/compare.log" | cut -c1-600
    timeout "$limit" python3 "$root/tests/bench/compare_losses.py" $folder "$out/compare.jsonl" "${theirs[@]}" \
      2>"$log/compare.err" | tee -a "$out/compare.jsonl"
    echo "== compare rc=${PIPESTATUS[0]}"; tail -2 "$log/compare.err" | cut -c1-300
    rm -rf $folder
    ;;
  peer) shift; peers
    timeout "$limit" python3 "$carry/peers/peers.py" run "$@" 2>"$log/peer.err" | tee -a "$out/peer.jsonl"
    ;;
  offload_peer) shift; peers
    timeout "$limit" python3 "$root/tests/bench/peers_offload.py" "$@" peers="$carry/peers/peers.py" \
      2>"$log/offload_peer.err" | tee -a "$out/peer.jsonl"
    ;;
  *) sed -n '2,18p' "$0"; exit 2 ;;
esac
