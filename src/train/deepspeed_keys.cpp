// The list that --deepspeed, its tests and its page of the guide follow.
#include "train/deepspeed_keys.h"

#include <vector>

namespace apus::train {
namespace {

using enum KeyKind;

constexpr std::string_view kNoNvme = "states are offloaded to host memory: device cpu";
constexpr std::string_view kNoFile = "there is no NVMe device to tune";
constexpr std::string_view kLeaveOut = "leave the section out";
constexpr std::string_view kWholeUnits = "whole blocks are gathered, one ahead";
constexpr std::string_view kOwnLines = "--logging_steps says when a line is written";

constexpr ConfigKey kTraining[] = {
    automatic("train_batch_size", kInteger),
    automatic("train_micro_batch_size_per_gpu", kInteger),
    automatic("gradient_accumulation_steps", kInteger),
    refused("managed_gradient_accumulation", kBoolean, "true", "a step has its micro-batches counted"),
    automatic("gradient_clipping", kNumber),
    acting("optimizer.type", kText),
    automatic("optimizer.params.lr", kNumber),
    automatic("optimizer.params.betas", kNumbers),
    automatic("optimizer.params.eps", kNumber),
    automatic("optimizer.params.weight_decay", kNumber),
    acting("optimizer.params.adam_w_mode", kBoolean),
    idle("optimizer.params.torch_adam", kBoolean, "there is one fused AdamW"),
    idle("optimizer.params.fused", kBoolean, "AdamW is fused always"),
    idle("optimizer.params.foreach", kBoolean, "AdamW is fused always"),
    idle("optimizer.params.set_grad_none", kBoolean, "gradients lie in buffers that are overwritten"),
    refused("optimizer.params.bias_correction", kBoolean, "true", "AdamW corrects its moments"),
    refused("optimizer.params.amsgrad", kBoolean, "false", "plain AdamW is"),
    refused("optimizer.params.maximize", kBoolean, "false", "losses are minimised"),
    refused("optimizer.params.max_grad_norm", kNumber, "0|0.0", "write gradient_clipping"),
    refused("optimizer.params.fp32_optimizer_states", kBoolean, "true",
            "give --optim adamw_bf16 for states in bf16"),
    idle("optimizer.legacy_fusion", kBoolean, "AdamW is fused always"),
    acting("scheduler.type", kText),
    automatic("scheduler.params.warmup_min_lr", kNumber),
    automatic("scheduler.params.warmup_max_lr", kNumber),
    automatic("scheduler.params.warmup_num_steps", kInteger),
    acting("scheduler.params.warmup_type", kText),
    automatic("scheduler.params.total_num_steps", kInteger),
    acting("scheduler.params.warmup_min_ratio", kNumber),
    acting("scheduler.params.cos_min_ratio", kNumber),
    acting("scheduler.params.last_batch_iteration", kInteger),
    acting("dataloader_drop_last", kBoolean),
};

constexpr ConfigKey kPrecision[] = {
    automatic("fp16.enabled", kBoolean),
    acting("fp16.loss_scale", kNumber),
    acting("fp16.initial_scale_power", kInteger),
    acting("fp16.loss_scale_window", kInteger),
    acting("fp16.hysteresis", kInteger),
    acting("fp16.consecutive_hysteresis", kBoolean),
    acting("fp16.min_loss_scale", kNumber),
    idle("fp16.auto_cast", kBoolean, "a model's inputs are token ids"),
    refused("fp16.fp16_master_weights_and_grads", kBoolean, "false", "masters are fp32; leave it out"),
    automatic("bf16.enabled", kBoolean),
    acting("bf16.bf16_master_weights_and_grads", kBoolean),
    acting("bf16.bf16_optimizer_states", kBoolean),
    idle("bf16.immediate_grad_update", kBoolean, "a gradient is added up as it is complete", "true"),
    refused("bf16.check_grad_overflow", kBoolean, "true", "a step that is not finite changes nothing"),
    acting("communication_data_type", kText),
    acting("data_types.grad_accum_dtype", kText),
    refused("data_types.param_dtype", kText, "", "give --torch_dtype"),
    refused("data_types.buffer_dtype", kText, "\"fp32\"", "tables of positions are fp32"),
    idle("seq_parallel_communication_data_type", kText, "sequences are not cut over ranks"),
    refused("amp", kSection, "", "write bf16 or fp16 instead"),
    refused("torch_autocast", kSection, "", "write bf16 or fp16 instead"),
};

constexpr ConfigKey kZero[] = {
    acting("zero_optimization.stage", kInteger),
    acting("zero_optimization.offload_optimizer.device", kText),
    refused("zero_optimization.offload_optimizer.pin_memory", kBoolean, "true",
            "host memory that a GPU copies from is always pinned; leave the key out"),
    refused("zero_optimization.offload_optimizer.ratio", kNumber, "1|1.0",
            "all of the optimizer's states move, or none"),
    refused("zero_optimization.offload_optimizer.super_offload", kBoolean, "false",
            "device cpu alone overlaps the update with copies"),
    idle("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber,
         "OMP_NUM_THREADS says how many threads update"),
    idle("zero_optimization.offload_optimizer.pipeline_read", kBoolean, "copies overlap always"),
    idle("zero_optimization.offload_optimizer.pipeline_write", kBoolean, "copies overlap always"),
    idle("zero_optimization.offload_optimizer.pipeline", kBoolean, "copies overlap always"),
    idle("zero_optimization.offload_optimizer.fast_init", kBoolean, kNoFile),
    idle("zero_optimization.offload_optimizer.buffer_count", kInteger, kNoFile),
    idle("zero_optimization.offload_optimizer.buffer_size", kInteger, kNoFile),
    refused("zero_optimization.offload_optimizer.nvme_path", kText, "", kNoNvme),
    acting("zero_optimization.offload_param.device", kText),
    refused("zero_optimization.offload_param.pin_memory", kBoolean, "true",
            "host memory that a GPU copies from is always pinned; leave the key out"),
    idle("zero_optimization.offload_param.buffer_count", kInteger, kNoFile),
    idle("zero_optimization.offload_param.buffer_size", kInteger, kNoFile),
    idle("zero_optimization.offload_param.max_in_cpu", kInteger, kNoFile),
    refused("zero_optimization.offload_param.nvme_path", kText, "", kNoNvme),
    acting("zero_optimization.cpu_offload", kBoolean),
    acting("zero_optimization.cpu_offload_param", kBoolean),
    refused("zero_optimization.cpu_offload_use_pin_memory", kBoolean, "true",
            "host memory that a GPU copies from is always pinned; leave the key out"),
    automatic("zero_optimization.reduce_bucket_size", kInteger),
    automatic("zero_optimization.allgather_bucket_size", kInteger),
    automatic("zero_optimization.overlap_comm", kBoolean),
    idle("zero_optimization.allgather_partitions", kBoolean, "parameters are gathered by all_gather", "true"),
    idle("zero_optimization.reduce_scatter", kBoolean, "sharded gradients are reduced by reduce_scatter",
         "true"),
    idle("zero_optimization.contiguous_gradients", kBoolean, "gradients lie in flat groups always", "true"),
    idle("zero_optimization.use_multi_rank_bucket_allreduce", kBoolean, "a bucket is one collective"),
    idle("zero_optimization.round_robin_gradients", kBoolean, "every rank owns a part of every bucket"),
    idle("zero_optimization.grad_hooks", kBoolean, "gradients are reduced as they are complete", "true"),
    idle("zero_optimization.sub_group_size", kInteger, "a group of parameters is updated at a time"),
    idle("zero_optimization.ignore_unused_parameters", kBoolean, "no parameter is left out of a step",
         "true"),
    refused("zero_optimization.load_from_fp32_weights", kBoolean, "true", "checkpoints hold fp32 masters"),
    refused("zero_optimization.elastic_checkpoint", kBoolean, "false", "leave it out"),
    refused("zero_optimization.legacy_stage1", kBoolean, "false", "leave it out"),
    idle("zero_optimization.log_trace_cache_warnings", kBoolean, "the order of gathers is fixed"),
    idle("zero_optimization.enable_sanity_checks", kBoolean, "states are checked always"),
    idle("zero_optimization.pipeline_loading_checkpoint", kBoolean, "each rank reads its own part of files"),
    idle("zero_optimization.override_module_apply", kBoolean, "for Python modules"),
    idle("zero_optimization.memory_efficient_linear", kBoolean, "for Python modules"),
    idle("zero_optimization.leaf_module", kAny, "a block is a unit"),
    idle("zero_optimization.save_muon_momentum_buffer_in_memory", kBoolean, "there is no Muon"),
    refused("zero_optimization.zenflow", kSection, "", kLeaveOut),
    refused("zero_optimization.mics_shard_size", kInteger, "-1",
            "give --fsdp hybrid_shard with --fsdp_config '{\"dp_replicate\": COPIES}'"),
    refused("zero_optimization.mics_hierarchical_params_gather", kBoolean, "false", "leave it out"),
    acting("zero_optimization.zero_hpz_partition_size", kInteger),
    refused("zero_optimization.zero_quantized_weights", kBoolean, "false", "parameters travel as they are"),
    refused("zero_optimization.zero_quantized_nontrainable_weights", kBoolean, "false",
            "parameters are kept as they are"),
    refused("zero_optimization.zero_quantized_gradients", kBoolean, "false",
            "write communication_data_type bf16"),
    refused("zero_optimization.zeropp_loco_param", kSection, "", kLeaveOut),
    idle("zero_optimization.stage3_prefetch_bucket_size", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_param_persistence_threshold", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_model_persistence_threshold", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_max_live_parameters", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_max_reuse_distance", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_module_granularity_threshold", kInteger, kWholeUnits),
    idle("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBoolean, kWholeUnits),
    idle("zero_optimization.stage3_allgather_sequential", kBoolean, kWholeUnits),
    idle("zero_optimization.stage3_gather_16bit_weights_on_model_save", kBoolean,
         "checkpoints hold the whole model always", "true"),
    idle("zero_optimization.stage3_gather_fp16_weights_on_model_save", kBoolean,
         "checkpoints hold the whole model always", "true"),
    idle("zero_allow_untested_optimizer", kBoolean, "there is one AdamW"),
    idle("zero_force_ds_cpu_optimizer", kBoolean, "there is one AdamW"),
    acting("activation_checkpointing.cpu_checkpointing", kBoolean),
    refused("activation_checkpointing.partition_activations", kBoolean, "false",
            "there is no tensor parallelism to cut them over; leave it out"),
    idle("activation_checkpointing.contiguous_memory_optimization", kBoolean,
         "buffers are kept from step to step"),
    idle("activation_checkpointing.number_checkpoints", kInteger, "every block is one"),
    idle("activation_checkpointing.synchronize_checkpoint_boundary", kBoolean, "streams keep the order"),
    idle("activation_checkpointing.profile", kBoolean, kOwnLines),
};

constexpr ConfigKey kTravel[] = {
    idle("prescale_gradients", kBoolean, "the loss is divided before backward"),
    idle("gradient_predivide_factor", kNumber, "the loss is divided before backward"),
    refused("gradient_allreduce_op", kText, "\"mean\"", "leave it out"),
    refused("sparse_gradients", kBoolean, "false", "gradients are dense"),
    idle("disable_allgather", kBoolean, "parameters are gathered by all_gather"),
    idle("graph_harvesting", kBoolean, "kernels are launched one by one"),
    idle("use_data_before_expert_parallelism", kBoolean, "there are no experts"),
    idle("vocabulary_size", kInteger, "config.json says it"),
    refused("sequence_parallel_size", kInteger, "1", "data parallelism is"),
    idle("data_parallel_size", kInteger, "the number of ranks says it"),
    refused("tensor_parallel", kSection, "", "data parallelism is; leave the section out"),
    refused("expert_parallel", kSection, "", kLeaveOut),
    refused("pipeline", kSection, "", kLeaveOut),
    refused("sparse_attention", kSection, "", "attention looks at every token; leave the section out"),
    refused("compression_training", kSection, "", kLeaveOut),
    refused("quantize_training", kSection, "", kLeaveOut),
    refused("weight_quantization", kSection, "", kLeaveOut),
    refused("eigenvalue", kSection, "", kLeaveOut),
    refused("progressive_layer_drop", kSection, "", kLeaveOut),
    refused("curriculum_learning", kSection, "", kLeaveOut),
    refused("data_efficiency", kSection, "", kLeaveOut),
    refused("elasticity", kSection, "",
            "a run goes on with as many ranks as it began with; leave the section out"),
    refused("hybrid_engine", kSection, "", kLeaveOut),
    refused("autotuning", kSection, "", "see `apus plan`"),
    refused("nebula", kSection, "", kLeaveOut),
    refused("datastates_ckpt", kSection, "", kLeaveOut),
    idle("compile", kAny, "there is no Python to compile"),
    idle("aio", kAny, kNoFile),
};

constexpr ConfigKey kReports[] = {
    idle("steps_per_print", kInteger, kOwnLines),
    idle("wall_clock_breakdown", kBoolean, "lines say data_wait_ms and comm_wait_ms always"),
    idle("memory_breakdown", kBoolean, "lines say the memory always"),
    idle("dump_state", kBoolean, "the resolved configuration is printed always"),
    idle("log_level", kText, kOwnLines),
    idle("timers.throughput.enabled", kBoolean, "lines say tokens/s always"),
    idle("timers.throughput.synchronized", kBoolean, "lines say tokens/s always"),
    idle("flops_profiler.enabled", kBoolean, "lines say mfu always"),
    idle("flops_profiler.recompute_fwd_factor", kNumber, "lines say mfu always"),
    idle("flops_profiler.profile_step", kInteger, "lines say mfu always"),
    idle("flops_profiler.module_depth", kInteger, "lines say mfu always"),
    idle("flops_profiler.top_modules", kInteger, "lines say mfu always"),
    idle("flops_profiler.detailed", kBoolean, "lines say mfu always"),
    idle("flops_profiler.output_file", kText, "lines say mfu always"),
    idle("comms_logger.enabled", kBoolean, "lines say comm_wait_ms always"),
    idle("comms_logger.verbose", kBoolean, "lines say comm_wait_ms always"),
    idle("comms_logger.prof_all", kBoolean, "lines say comm_wait_ms always"),
    idle("comms_logger.prof_ops", kTexts, "lines say comm_wait_ms always"),
    idle("comms_logger.debug", kBoolean, "lines say comm_wait_ms always"),
    idle("tensorboard.enabled", kBoolean, "--report_to says it"),
    idle("tensorboard.output_path", kText, "event files lie in runs/ of the run's folder"),
    idle("tensorboard.job_name", kText, "event files lie in runs/ of the run's folder"),
    refused("wandb", kSection, "", "--report_to tensorboard is"),
    refused("comet", kSection, "", "--report_to tensorboard is"),
    refused("csv_monitor", kSection, "", "logging.jsonl holds every line"),
    idle("checkpoint.tag_validation", kText, "ranks agree on the folder always"),
    refused("checkpoint.load_universal", kBoolean, "false", "see --resume_from_checkpoint"),
    refused("checkpoint.use_node_local_storage", kBoolean, "false",
            "--output_dir must be one folder for all machines"),
    idle("checkpoint.parallel_write.pipeline_stage", kBoolean, "there are no stages"),
    idle("checkpoint.checkpoint_serialization", kBoolean, "checkpoints are safetensors"),
    idle("checkpoint.writer", kAny, "checkpoints are safetensors"),
};

std::vector<ConfigKey> joined() {
  std::vector<ConfigKey> all;
  const auto append = [&all](std::span<const ConfigKey> part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  append(kTraining);
  append(kPrecision);
  append(kZero);
  append(kTravel);
  append(kReports);
  return all;
}

}  // namespace

std::span<const ConfigKey> deepspeed_keys() {
  static const std::vector<ConfigKey> keys = joined();
  return keys;
}

}  // namespace apus::train
