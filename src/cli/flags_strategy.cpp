#include "cli/flag_groups.h"

namespace apus::cli {

using enum FlagKind;

namespace {

std::vector<Flag> megatron_flags() {
  const auto degree = [](const char* name, std::vector<std::string> aliases, const char* help) {
    return also(std::move(aliases), not_yet(name, kInteger, "1", help));
  };
  return grouped(
      "megatron",
      {degree("tensor_model_parallel_size", {"tensor_parallel_size", "vllm_tensor_parallel_size"},
              "ranks that share each projection"),
       degree("pipeline_model_parallel_size", {"pipeline_parallel_size", "vllm_pipeline_parallel_size"},
              "ranks that share the layers"),
       degree("virtual_pipeline_model_parallel_size", {"virtual_pipeline_parallel_size"},
              "stages in each rank"),
       degree("context_parallel_size", {"context_model_parallel_size"}, "ranks that share each sequence"),
       degree("expert_model_parallel_size", {"expert_parallel_size"}, "ranks that share the experts"),
       also({"sequence_parallel"},
            not_yet("sequence_parallel_size", kInteger, "1", "ranks that share activations", {"false"}))});
}

}  // namespace

std::vector<Flag> strategy_flags() {
  std::vector<Flag> flags =
      grouped("deepspeed",
              {acts("deepspeed", kText, "none",
                    "zero0 to zero3, zero2_offload, zero3_offload, or a file of DeepSpeed's JSON"),
               acts("ddp_timeout", kInteger, "1800", "seconds to wait for the slowest rank"),
               among({"nccl", "gloo"}, acts("ddp_backend", kText, "by device", "gloo: train on the CPU"))});
  const auto append = [&flags](const std::vector<Flag>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
  };
  append(grouped(
      "fsdp",
      {acts("fsdp", kText, "none",
            "full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2, no_shard or fsdp2; also auto_wrap, "
            "offload"),
       acts("fsdp_config", kText, "none", "JSON object or file"),
       acts("fsdp_transformer_layer_cls", kText, "none", "class of the model's blocks, to be checked")}));
  append(megatron_flags());
  return flags;
}

std::vector<Flag> inference_flags() {
  return grouped("inference", {not_yet("max_new_tokens", kInteger, "1024", "longest answer"),
                               not_yet("result_path", kText, "none", "file of answers"),
                               not_yet("infer_backend", kText, "none", "spelling of others",
                                       {"pt", "transformers", "apus"})});
}

std::vector<Flag> python_flags() {
  std::vector<Flag> flags;
  for (const char* name : {"use_fast_tokenizer",
                           "use_liger_kernel",
                           "attn_impl",
                           "attn_implementation",
                           "use_flash_attn",
                           "flash_attn",
                           "gradient_checkpointing_kwargs",
                           "vit_gradient_checkpointing",
                           "ddp_find_unused_parameters",
                           "ddp_broadcast_buffers",
                           "dataset_num_proc",
                           "dataloader_pin_memory",
                           "dataloader_persistent_workers",
                           "load_from_cache_file",
                           "remove_unused_columns",
                           "lazy_tokenize",
                           "use_hf",
                           "use_cache",
                           "low_cpu_mem_usage",
                           "trust_remote_code",
                           "disable_tqdm",
                           "log_level",
                           "skip_memory_metrics",
                           "local_rank"}) {
    flags.push_back({.name = name, .status = FlagStatus::kNoEffect, .default_text = "-"});
  }
  return grouped("without effect, for Python programs' sake", std::move(flags));
}

}  // namespace apus::cli
