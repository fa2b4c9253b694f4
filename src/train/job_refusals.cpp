#include "train/job_refusals.h"

#include "apus/base/error.h"

namespace apus::train {
namespace {

/// `flag` with its value: "--optim adamw_bf16"; `why` ends the sentence.
void refuse_if(bool asked, const std::string& flag, const std::string& why) {
  if (asked) throw NotSupported(detail::concat("--", flag, " is not supported yet: ", why));
}

void refuse_tasks(const JobOptions& options) {
  const bool other = options.task == "dpo" && options.rlhf_type != "dpo";
  refuse_if(other, "rlhf_type " + options.rlhf_type, "dpo is");
  refuse_if(options.use_dora, "use_dora true", "plain adapters are, and use_rslora");
}

/// A frozen base in another dtype than the products would need a conversion in every projection.
void refuse_mixed_base(const JobOptions& options) {
  const bool mixed = options.base_dtype && options.torch_dtype && *options.base_dtype != *options.torch_dtype;
  refuse_if(mixed, "base_dtype " + options.base_dtype.value_or(""), "that of --torch_dtype is");
}

void refuse_degrees(const JobOptions& options) {
  const std::string remedy = "data parallelism is, as in --deepspeed zero2";
  refuse_if(options.tensor_model_parallel_size != 1, "tensor_model_parallel_size", remedy);
  refuse_if(options.pipeline_model_parallel_size != 1, "pipeline_model_parallel_size", remedy);
  refuse_if(options.virtual_pipeline_model_parallel_size != 1, "virtual_pipeline_model_parallel_size",
            remedy);
  refuse_if(options.context_parallel_size != 1, "context_parallel_size", remedy);
  refuse_if(options.expert_model_parallel_size != 1, "expert_model_parallel_size", remedy);
  refuse_if(options.sequence_parallel_size != 1, "sequence_parallel_size", remedy);
  refuse_if(options.router_aux_loss_coef != 0, "router_aux_loss_coef", "models with experts are not built");
}

}  // namespace

void refuse_unbuilt(const JobOptions& options) {
  refuse_tasks(options);
  refuse_mixed_base(options);
  refuse_degrees(options);
}

}  // namespace apus::train
