#!/usr/bin/env bash
# The measured runs on two and four GPUs of one host: what docs/benchmarks/multi_gpu.md says. Carry .carry (carry.sh with
# apus_bench_comm, apus_bench_train, apus, apus_gpu_comm and apus_gpu_parallel, and the peers' files beside).
#
#   multi_gpu.sh collectives      every operation against PyTorch's NCCL in turn, then a stopped rank
#   multi_gpu.sh train [ROW ...]  rows dpo-7b dpo-14b full-zero2 full-zero3 full-fsdp peer; all without one
#   multi_gpu.sh soak             1,000 steps of a small model under Zero3
#   multi_gpu.sh seed [RUN ...]   model, zero2, zero3, fsdp, one (GPU), resume; all without one
#   multi_gpu.sh gpu_tests        the programs of tests/gpu that need several GPUs
#   multi_gpu.sh all              all of these
#   multi_gpu.sh one              what one GPU can show of them: the same programs, small, in a world of one over NCCL
#   multi_gpu.sh dry [STEP ...]   the same steps, tiny, over Gloo on the CPU: BUILD=folder of a CPU build, PYTHON=python3
#
# RANKS (default: the GPUs that are here), CAP_GIB (38), STEPS (30 of the seed job), N (alternations, 3), WORK (/tmp/multi),
# SECONDS_EACH (570) limit a program. Under $OUT (default /tmp/round) come round.log and a file of JSON lines a step.
set -uo pipefail
here=$(realpath "$(dirname "$0")")
root=$(realpath "$here/../..")
carry=$root/.carry
out=${OUT:-/tmp/round}
work=${WORK:-/tmp/multi}
limit=${SECONDS_EACH:-570}
python=${PYTHON:-python3}
log=$(mktemp -d)
mkdir -p "$out" "$work"
trap 'for file in "$log"/*; do [ -f "$file" ] && { echo "##### $* $file"; cat "$file"; } >>"$out/round.log"; done' EXIT
failed=0
fail() {
  failed=1
  echo "FAILED: $*"
  cat "$log"/*.err 2>/dev/null | grep -v Warning | tail -2 | cut -c1-300
}

dry=
if [ "${1:-}" = dry ]; then
  dry=1
  shift
  bin=${BUILD:?dry needs BUILD=folder of a CPU build with apus_bench_comm, apus_bench_train and apus_program}/bench
  apus=$BUILD/bin/apus
  ranks=${RANKS:-2}
  export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=
  peers=${PEERS:-}
else
  # NVLink multicast stays off: a program that uses it can put the host's GPUs out of service.
  export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
  . "$here/carried.sh"
  apus=$bin/apus
  ranks=${RANKS:-$(nvidia-smi -L | wc -l)}
  peers=$carry/peers/peers.py
fi

collectives() {
  local words="ranks=$ranks"
  if [ -n "$dry" ]; then words+=" device=cpu from=64K to=256K iterations=3 repeat=1"; fi
  timeout "$limit" $python "$here/comm_alternate.py" apus="$bin/apus_bench_comm" n="${N:-3}" budget=$((limit - 60)) \
    out="$out/collectives.jsonl" $words 2>"$log/collectives.err" || fail collectives
  echo "== a stopped rank"
  words="abort=1 ranks=$ranks timeout=15"
  if [ -n "$dry" ]; then words="abort=1 ranks=3 timeout=4 device=cpu"; fi
  timeout 120 "$bin/apus_bench_comm" $words out="$out/abort.jsonl" 2>"$log/abort.err" || fail "a stopped rank"
}

# ROW WORDS: one GPU, all, one GPU again, and one GPU on the same global batch for its losses.
row() {
  local name=$1
  shift
  local steps="warm=3" short="warm=2 steps=4 min_s=0"
  if [ -n "$dry" ]; then
    steps="size=tiny S=64 device=cpu dtype=fp32 min_s=0 warm=2 steps=3"
    short="size=tiny S=64 device=cpu dtype=fp32 min_s=0 warm=2 steps=3"
  fi
  local accumulation=1 one="row=$name $* $steps"
  timeout "$limit" "$bin/apus_bench_train" $one -- $one ranks=$ranks -- $one -- \
    row=$name "$@" $short accumulation=$((accumulation * ranks)) out="$out/train.jsonl" >"$log/train-$name.log" 2>&1 ||
    { fail "train $name"; tail -3 "$log/train-$name.log" | cut -c1-600; }
}

train() {
  local wanted=" $* "
  is_wanted() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }
  is_wanted dpo-7b && row dpo-7b kind=dpo size=7b policy=zero2
  is_wanted dpo-14b && row dpo-14b kind=dpo size=14b policy=zero2
  for policy in zero2 zero3 fsdp; do
    is_wanted full-$policy && row full-$policy kind=full size=7b policy=$policy B=2 recompute=block
  done
  if is_wanted peer && [ -n "$peers" ]; then
    local words="size=7b B=2 S=4096 ranks=$ranks"
    if [ -n "$dry" ]; then
      words="size=tiny B=2 S=64 ranks=$ranks liger=0 attn=sdpa warm=2 steps=2"
    else
      peers
    fi
    timeout "$limit" $python "$here/peers_fsdp.py" $words peers="$peers" out="$out/fsdp_peer.jsonl" >"$log/fsdp_peer.log" 2>&1 ||
      { fail peer; tail -3 "$log/fsdp_peer.log" | cut -c1-600; }
  fi
}

soak() {
  local words="kind=full size=0.5b layers=4 B=2 S=512 steps=1000"
  if [ -n "$dry" ]; then words="kind=full size=tiny B=2 S=64 device=cpu dtype=fp32 steps=80"; fi
  timeout "$limit" "$bin/apus_bench_train" $words policy=zero3 ranks=$ranks warm=2 min_s=0 samples=20 gather=1 \
    out="$out/soak.jsonl" >"$log/soak.log" 2>&1 || { fail soak; tail -3 "$log/soak.log" | cut -c1-600; }
}

seed_run() {
  $python "$here/seed_job.py" "$@" apus="$apus" model="$work/model" data="$work/data.jsonl" work="$work" out="$out/seed.jsonl" $common \
    2>>"$log/seed.err" || fail "seed $*"
}

seed() {
  local wanted=" $* " size=14b length=4096 rows=$((480 * ranks)) steps=${STEPS:-30} cap=${CAP_GIB:-38} begin=$SECONDS
  common=
  if [ -n "$dry" ]; then size=tiny length=256 rows=400 steps=8 cap=0 common="backend=gloo accumulation=2"; fi
  common+=" S=$length"
  is_wanted() { [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; }
  if is_wanted model || [ ! -f "$work/data.jsonl" ]; then
    $python "$here/seed_job.py" model "$work/model" size=$size 2>>"$log/seed.err" || fail model
    $python "$here/seed_job.py" data "$work/data.jsonl" "$work/model" S=$length rows=$rows 2>>"$log/seed.err" || fail data
  fi
  for policy in zero2 zero3 fsdp; do
    is_wanted $policy && seed_run run policy=$policy ranks=$ranks steps=$steps cap_gib=$cap
  done
  # One GPU keeps all of the optimizer, which does not fit in the cap; recompute as the capped ranks have to.
  is_wanted one && seed_run run policy=zero2 ranks=1 steps=12 cap_gib=0 recompute=$([ -n "$dry" ] && echo auto || echo true)
  is_wanted resume && seed_run resume policy=zero2 ranks=$ranks steps=$([ -n "$dry" ] && echo 24 || echo 10) cap_gib=$cap save_steps=4
  echo "== seed took $((SECONDS - begin)) s"
}

one() {
  ranks=1
  timeout 60 $python "$here/comm_alternate.py" apus="$bin/apus_bench_comm" n=1 ranks=1 from=1M to=64M step=8 iterations=10 \
    repeat=1 out="$out/collectives.jsonl" 2>"$log/collectives.err" || fail collectives
  timeout 60 "$bin/apus_bench_train" kind=full size=0.5b layers=4 B=2 S=512 steps=100 policy=zero3 ranks=1 warm=2 min_s=0 samples=20 \
    gather=1 out="$out/soak.jsonl" >"$log/soak.log" 2>&1 || { fail soak; tail -3 "$log/soak.log" | cut -c1-600; }
  row one-full kind=full size=0.5b layers=4 policy=zero2 B=2 S=1024 recompute=block min_s=1
  common="S=1024 accumulation=4"
  $python "$here/seed_job.py" model "$work/model" size=0.5b 2>>"$log/seed.err" || fail model
  $python "$here/seed_job.py" data "$work/data.jsonl" "$work/model" S=1024 rows=200 2>>"$log/seed.err" || fail data
  seed_run run policy=zero2 ranks=1 steps=12 cap_gib="${CAP_GIB:-38}"
  peers
  timeout 90 $python "$here/peers_fsdp.py" size=0.5b B=2 S=1024 ranks=1 attn=cudnn warm=2 steps=3 peers="$peers" \
    out="$out/fsdp_peer.jsonl" >"$log/fsdp_peer.log" 2>&1 || { fail peer; tail -3 "$log/fsdp_peer.log" | cut -c1-600; }
}

gpu_tests() {
  if [ -n "$dry" ]; then
    (cd "$here" && $python -B -m unittest multi_gpu_test 2>&1 | tail -3; exit "${PIPESTATUS[0]}") || fail multi_gpu_test
    return
  fi
  GTEST_FILTER='NcclOnGpus.*:EngineOnGpus.*' "$here/device_round.sh" tests comm parallel || fail gpu_tests
}

step=${1:-}
[ $# -gt 0 ] && shift
case $step in
  collectives | soak | gpu_tests | one) $step ;;
  train | seed) $step "$@" ;;
  all | "")
    if [ -z "$step$dry" ]; then sed -n '2,18p' "$0"; exit 2; fi
    gpu_tests; collectives; train; soak; seed ;;
  *) sed -n '2,18p' "$0"; exit 2 ;;
esac
echo "== report"
$python "$here/multi_gpu_report.py" "$out" || fail report
exit $failed
