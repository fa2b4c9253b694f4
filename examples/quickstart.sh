#!/usr/bin/env bash
# From a clone on a bare Debian 12 to a trained adapter: installs what is missing, builds, and runs the main job (DPO
# with LoRA under ZeRO-2) on four CPU ranks with a toy model. From any folder. Run again it says that it is complete,
# or goes on where it was interrupted.
#
#   examples/quickstart.sh
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"
build=build/cpu-release
toy=examples/quickstart
out=outputs/quickstart

cmake/bootstrap.sh
cmake --preset cpu-release
cmake --build "$build" --target apus_program base_share

# This is the CPU's quickstart: without GPUs to be seen, it runs the same on a machine that has some.
export CUDA_VISIBLE_DEVICES=

# Before training: how often the base alone prefers the chosen answers of the held-out pairs.
base=$("$build/examples/base_share" "$toy/base" "$toy/data/preference.eval.jsonl")
echo "$base"
share=$(sed -n 's|.*, share \([0-9.e-]*\)$|\1|p' <<<"$base" | tail -n 1)
if ! awk -v share="${share:-1}" 'BEGIN { exit !(share <= 0.65) }'; then
  echo "error: expected a base that prefers at most 0.65 of the chosen answers, got ${share:-no share}" >&2
  exit 1
fi

# The main job's flags (docs: README.md), in their order. Values that differ from the four-GPU job are scaled to a
# model of 1.2 million parameters and 276 pairs:
flags=(
  --model "$toy/base"                           # the toy base; there: Qwen2.5-14B-Instruct
  --dataset "$toy/data/preference.train.jsonl"  # 276 pairs
  --train_type lora
  --lora_rank 16                                # there 64: the toy's matrices are 128 wide
  --lora_alpha 32                               # there 128: the same alpha / rank = 2
  --target_modules q_proj,v_proj,k_proj,o_proj,gate_proj,up_proj,down_proj
  --output_dir "$out"
  --deepspeed zero2
  --per_device_train_batch_size 1
  --gradient_accumulation_steps 2               # there 16: a step of 8 pairs, for 35 steps an epoch instead of 5
  --num_train_epochs 3
  --learning_rate 1e-3                          # there 5e-5: small models and few steps want a larger rate
  --warmup_ratio 0.03
  --max_length 128                              # there 4096: the longest pair has fewer tokens
  --save_steps 15                               # there 200: 105 steps in all, so an interruption loses seconds
  --logging_steps 5                             # there 10
  --eval_steps 15                               # there 200
  --bf16 false                                  # there true: CPUs without bf16 units are slower with it
  --dataloader_num_workers 1                    # there 8: four ranks share this machine's CPUs
  --ddp_timeout 1800
  --report_to none
  --use_fast_tokenizer true
  --val_dataset "$toy/data/preference.eval.jsonl"  # one more flag: 68 held-out pairs that share no prompt
)
NPROC_PER_NODE=4 "$build/bin/apus" dpo "${flags[@]}"

run=$(find "$out" -maxdepth 1 -name 'v*' -type d | sort -V | tail -n 1)
adapter=$(realpath "$run/last")  # the newest checkpoint
accuracy=$(sed -n 's|.*"eval_rewards/accuracies": *\([0-9.e+-]*\).*|\1|p' "$run/logging.jsonl" | tail -n 1)
echo "adapter: $adapter"
echo "last eval_rewards/accuracies: $accuracy (of $run/logging.jsonl)"
if ! awk -v accuracy="${accuracy:-0}" 'BEGIN { exit !(accuracy >= 0.85) }'; then
  echo "error: expected at least 0.85 after three epochs" >&2
  exit 1
fi
