#include "apus/base/support_matrix.h"

#include <algorithm>
#include <array>

namespace apus {
namespace {

using enum Support;

constexpr std::array kEntries = std::to_array<SupportEntry>({
    {"model_type", "qwen2", kYes,
     "tied and untied heads, grouped-query attention; `sliding_window` as mistral's"},
    {"model_type", "qwen3", kYes, "norms over the heads of q and k"},
    {"model_type", "qwen2_moe", kNotYet, ""},
    {"model_type", "qwen3_moe", kNotYet, ""},
    {"model_type", "llama", kYes, "Llama 2 to 3.3, SmolLM2; `attention_bias`, `mlp_bias`"},
    {"model_type", "internlm3", kYes, "also `qkv_bias` that differs from `bias`"},
    {"model_type", "mistral", kYes, "sequences up to `sliding_window`, where it is set"},
    {"model_type", "a module of your own", kYes, "any nn::CausalLm, see examples/custom_model"},

    {"rope type", "default", kYes, ""},
    {"rope type", "linear", kYes, ""},
    {"rope type", "dynamic", kYes, "by each sequence's own length"},
    {"rope type", "yarn", kYes, ""},
    {"rope type", "longrope", kYes, "by each sequence's own length"},
    {"rope type", "llama3", kYes, ""},
    {"rope type", "`--rope_scaling`, `--max_model_len`, `--rope_batch_length`", kYes, ""},

    {"tokenizer", "BPE", kYes,
     "of bytes or characters; `byte_fallback`, `fuse_unk`, `ignore_merges`, prefix and suffix; no dropout"},
    {"tokenizer", "Unigram, WordPiece, WordLevel", kNo, "not used by the models here; refused by name"},
    {"tokenizer", "SentencePiece `.model` files", kYes, "of type bpe; read where tokenizer.json is missing"},
    {"tokenizer", "normalizers NFC, NFD, NFKC, NFKD", kYes, ""},
    {"tokenizer", "normalizers Prepend, Replace, Strip, StripAccents, Lowercase", kYes, ""},
    {"tokenizer", "normalizers Nmt, Precompiled, BertNormalizer, ByteLevel, Sequence", kYes, ""},
    {"tokenizer", "pre-tokenizers ByteLevel, Metaspace, Split, Digits, Punctuation", kYes,
     "Split by any pattern that PCRE2 takes"},
    {"tokenizer",
     "pre-tokenizers Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, FixedLength, "
     "Sequence",
     kYes, ""},
    {"tokenizer", "pre-tokenizer UnicodeScripts", kNo, "refused by name"},
    {"tokenizer",
     "post-processors ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence", kYes, ""},
    {"tokenizer", "decoders ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace", kYes,
     "token by token with `TokenStream`"},
    {"tokenizer", "decoders BPEDecoder, WordPiece, CTC, Sequence", kYes, ""},
    {"tokenizer", "added tokens", kYes, "`special`, `normalized`, `lstrip`, `rstrip`, `single_word`"},

    {"chat template", "Jinja templates of a model's folder", kYes,
     "as transformers sets Jinja up; not built: `urlize`, `lipsum`, `random`"},
    {"chat template", "`--template` by name", kYes, "qwen2_5, qwen3, chatml, or a `.jinja` file"},
    {"chat template", "tools in rows", kYes, "`tools` of a row, roles tool_call, tool_response and tool"},

    {"data", "DPO rows of strings", kYes, "`prompt`, `chosen`, `rejected`, optional `system`"},
    {"data", "DPO rows of messages", kYes, "the prompt may stand within chosen and rejected"},
    {"data", "DPO rows with rejected_response or rejected_messages", kYes, "beside `messages`"},
    {"data", "`margin`", kYes,
     "subtracted within losses that look at beta times the difference; said where not"},
    {"data", "SFT rows of token ids and labels", kYes, "`input_ids`, `labels`"},
    {"data", "SFT rows of messages", kYes, "`loss`, `loss_scale` of a message"},
    {"data", "ShareGPT, Alpaca and query/response rows", kYes, ""},
    {"data", "pre-training text", kYes, ""},
    {"data", "`--columns`", kYes, ""},
    {"data", "`--loss_scale`", kYes, "default, last_round, all; SFT"},
    {"data", "`--padding_free`", kYes, ""},
    {"data", "`--packing`", kYes, "best fit, up to `--packing_length` tokens"},
    {"data", "prepared rows in a cache", kYes, "APUS_CACHE_DIR, XDG_CACHE_HOME/apus or ~/.cache/apus"},

    {"file", "JSON Lines, JSON arrays", kYes, "several files, `FILE#N`"},
    {"file", "gzip, zstd", kYes, "of JSON Lines and arrays, found by content"},
    {"file", "csv, parquet", kNotYet, ""},
    {"file", "safetensors", kYes, "single and sharded, memory-mapped"},
    {"file", "models by hub id", kYes,
     "from the local caches of Hugging Face and ModelScope; apus never goes online"},
    {"file", "pickle (`*.bin`)", kNo, "runs code; refused with the command that converts it"},
    {"file", "quantised model folders", kNotYet, "`quantization_config` in config.json is refused"},

    {"adapter", "LoRA", kYes, "by name, `all-linear` or `--target_regex`"},
    {"adapter", "`--use_rslora`", kYes, ""},
    {"adapter", "`--lora_dtype` fp32, bf16", kYes, "of the saved adapter"},
    {"adapter", "`--lora_dropout`", kYes,
     "a mask a target that no split of the rows changes; off in DPO unless `--disable_dropout false`"},
    {"adapter", "`--use_dora`", kNotYet, ""},
    {"adapter", "exclude_modules, layers_to_transform, layers_pattern", kYes,
     "in adapter_config.json and the library"},
    {"adapter", "LoRA on `lm_head`, `embed_tokens`", kNotYet, "train them whole: `--modules_to_save`"},
    {"adapter", "`--lora_bias` none, lora_only, all", kYes, "as copies: the base stays as it was"},
    {"adapter", "`--modules_to_save`", kYes, "any module, also head and embedding of a tied model"},
    {"adapter", "rank_pattern, alpha_pattern", kYes, ""},
    {"adapter", "`--freeze_parameters`, `--trainable_parameters`", kYes,
     "by prefix, ratio, regular expression"},
    {"adapter", "full training", kYes, "`--train_type full`; SFT, pre-training and DPO"},
    {"adapter", "QLoRA", kNotYet, ""},
    {"adapter", "merging", kYes, "streamed by tensor, read back and compared; bit for bit PEFT's"},

    {"loss", "sigmoid", kYes, "DPO; `--dpo_reduction` pairs or microbatch"},
    {"loss", "hinge", kYes, ""},
    {"loss", "ipo", kYes, ""},
    {"loss", "exo_pair", kYes, "needs `--label_smoothing`"},
    {"loss", "nca_pair", kYes, ""},
    {"loss", "robust", kYes, "reads `--label_smoothing`"},
    {"loss", "bco_pair", kYes, "TRL 0.24's running mean survives a resume"},
    {"loss", "sppo_hard", kYes, ""},
    {"loss", "aot", kYes, "sorts within a micro-batch"},
    {"loss", "aot_unpaired", kYes, "sorts within a micro-batch; aot_pair in TRL 0.24"},
    {"loss", "apo_zero", kYes, ""},
    {"loss", "apo_down", kYes, ""},
    {"loss", "discopop", kYes, ""},
    {"loss", "sigmoid_norm", kYes, "not in TRL 0.24"},
    {"loss", "sft", kYes, "divides by the step's chosen tokens"},
    {"loss", "several losses, `--loss_weights`", kYes, "a weighted sum"},
    {"loss", "`--loss_variant` current, trl0.24", kYes, "formulas and names of TRL 1.16 and 0.24"},
    {"loss", "`--f_divergence_type`", kYes, "reverse_kl, forward_kl, js_divergence, alpha_divergence"},
    {"loss", "`--rpo_alpha`, `--ld_alpha`, `--discopop_tau`", kYes, "`--ld_alpha` not with trl0.24"},
    {"loss", "token cross-entropy", kYes, "SFT and pre-training"},

    {"reference", "adapter_off", kYes, "the base; default of a new adapter"},
    {"reference", "frozen copy of --adapters", kYes,
     "default with `--adapters`; `--ref_adapters none` gives the base"},
    {"reference", "`--ref_adapters` folder", kYes, "loaded frozen, with its own rank and targets"},
    {"reference", "`--ref_model`", kYes, "a second frozen model; full training: a second load of --model"},
    {"reference", "cached log-probabilities", kYes, "`--precompute_ref_log_probs`; kept on disk"},
    {"reference", "`--reference_free`", kYes, ""},

    {"truncation", "delete", kYes, ""},
    {"truncation", "right", kYes, "keeps the start"},
    {"truncation", "left", kYes, "keeps the end"},

    {"strategy", "DDP", kYes, "no `--deepspeed`, or zero0"},
    {"strategy", "ZeRO-1", kYes, "`--deepspeed zero1`"},
    {"strategy", "ZeRO-2", kYes, "`--deepspeed zero2`"},
    {"strategy", "ZeRO-3", kYes, "`--deepspeed zero3`"},
    {"strategy", "offload", kYes,
     "`--deepspeed zero2_offload`, zero3_offload, `--fsdp \"full_shard offload\"`: optimizer, gradients, "
     "parameters on the host"},
    {"strategy", "activations on the host", kYes,
     "`activation_checkpointing.cpu_checkpointing` of a JSON file"},
    {"strategy", "DeepSpeed JSON files", kYes,
     "`--deepspeed FILE`; every key acts, is named as without effect, or is refused by name"},
    {"strategy", "FSDP, HSDP", kYes,
     "`--fsdp full_shard`, shard_grad_op, hybrid_shard, fsdp2; `--fsdp_config`"},
    {"strategy", "tensor, sequence, context, pipeline, expert parallelism", kNotYet, ""},
    {"strategy", "recompute (`--gradient_checkpointing`)", kYes, "auto: as the memory plan asks"},
    {"strategy", "`--full_determinism`", kYes, "the same bits under every strategy"},

    {"precision", "fp32", kYes, ""},
    {"precision", "bf16", kYes, "fp32 masters for what is trained"},
    {"precision", "fp16", kYes, "with DeepSpeed's dynamic or static loss scale; fp32 masters"},
    {"precision", "fp8, 4 bit", kNotYet, ""},
    {"precision", "`--base_dtype`, `--grad_accum_dtype`, `--reduce_dtype`", kYes,
     "fp32 or bf16; a base of another dtype than `--torch_dtype` is not built"},

    {"optimizer", "AdamW", kYes, "one pass over flat fp32 states"},
    {"optimizer", "adamw_bf16", kYes, "moments and masters in bf16, stochastic rounding"},
    {"optimizer", "schedules of transformers", kYes,
     "constant, linear, cosine and their variants, inverse_sqrt, polynomial, warmup_stable_decay"},
    {"optimizer", "schedules of DeepSpeed", kYes, "WarmupLR, WarmupDecayLR, WarmupCosineLR"},

    {"device", "CPU", kYes, "x86-64; ranks talk through Gloo"},
    {"device", "NVIDIA GPU", kYes, "compute capability 8.0 or later; in a build with CUDA"},

    {"launch", "NPROC_PER_NODE, `apus launch`", kYes, "one machine or several"},
    {"launch", "torchrun, Slurm, Open MPI, PMI", kYes, "by their variables"},

    {"command", "apus dpo, apus rlhf --rlhf_type dpo", kYes, ""},
    {"command", "apus sft, apus pt", kYes, ""},
    {"command", "apus train", kYes, "DPO, SFT or pre-training, as the data's columns say"},
    {"command", "apus data", kYes, "every shape of row; needs the tokenizer alone"},
    {"command", "apus plan", kYes, "memory and time from config.json; needs no GPU"},
    {"command", "apus merge, apus export --merge_lora true", kYes, ""},
    {"command", "apus env, apus launch", kYes, ""},
    {"command", "apus infer", kNotYet, ""},
    {"command", "apus megatron", kNotYet, ""},

    {"checkpoint", "adapters as PEFT reads and writes them", kYes, ""},
    {"checkpoint", "resume by the same command", kYes, "the same bits, same number of ranks"},
    {"checkpoint", "resume on another number of ranks", kNotYet, ""},
    {"checkpoint", "model folders in Hugging Face layout", kYes,
     "read; written by full training and `apus merge`"},
    {"checkpoint", "`--load_best_model_at_end`, `--metric_for_best_model`", kYes, ""},
    {"checkpoint", "`--resume_only_model`", kYes, ""},
    {"checkpoint", "`--report_to tensorboard`", kYes, "event files in `runs/`, read by TensorBoard itself"},
});

}  // namespace

std::string_view support_word(Support status) {
  switch (status) {
    case kYes:
      return "yes";
    case kNotYet:
      return "not yet";
    case kNo:
      return "no";
  }
  return "not yet";
}

std::span<const SupportEntry> support_matrix() {
  return kEntries;
}

const SupportEntry* find_support(std::string_view area, std::string_view feature) {
  const auto found = std::ranges::find_if(
      kEntries, [&](const SupportEntry& entry) { return entry.area == area && entry.feature == feature; });
  return found == kEntries.end() ? nullptr : &*found;
}

std::string render_support_matrix(std::span<const SupportEntry> entries) {
  std::string text = "| area | feature | status | note |\n| --- | --- | --- | --- |\n";
  std::string_view area;
  const auto cell = [&text](std::string_view content) {
    text += content.empty() ? " |" : " " + std::string(content) + " |";
  };
  for (const SupportEntry& entry : entries) {
    text += "|";
    cell(entry.area == area ? std::string_view() : entry.area);
    cell(entry.feature);
    cell(support_word(entry.status));
    cell(entry.note);
    text += "\n";
    area = entry.area;
  }
  return text;
}

}  // namespace apus
