#include "apus/parallel/sharded_model.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "apus/base/error.h"
#include "apus/ops/select_rows.h"
#include "apus/ops/token_log_probs.h"

namespace apus::parallel {
namespace {

/// What each block does: the option's choice for the chosen blocks, the whole tape for the others.
std::vector<Recompute> choose_recompute(size_t blocks, const ShardedModelOptions& options) {
  if (!options.recompute_blocks) return std::vector<Recompute>(blocks, options.recompute);
  std::vector<Recompute> chosen(blocks, Recompute::kNone);
  for (const int64_t block : *options.recompute_blocks) {
    APUS_CHECK(block >= 0 && static_cast<size_t>(block) < blocks, ConfigError,
               "recompute_blocks names block ", block, ", but the model has ", blocks, " (0 to ",
               static_cast<int64_t>(blocks) - 1, ")");
    chosen[static_cast<size_t>(block)] = options.recompute;
  }
  return chosen;
}

/// Frozen parameters that every rank holds whole go to a GPU as the model wants to read them there.
nn::CausalLm& placed(nn::CausalLm& model, const ShardedModelOptions& options) {
  const bool shards = options.frozen == Placement::kSharded ||
                      (options.frozen == Placement::kByPolicy && options.policy.param_shard);
  if (options.device && options.device->is_cuda() && !shards)
    model.place({.device = *options.device, .frozen_dtype = options.frozen_dtype});
  return model;
}

}  // namespace

ShardedModel::ShardedModel(nn::CausalLm& model, const DataParallel& ranks, const ShardedModelOptions& options)
    : model_(model),
      units_(model_units(placed(model, options)), ranks, options),
      blocks_(model.blocks()),
      recompute_(choose_recompute(blocks_.size(), options)) {}

ShardedModel::ShardedModel(nn::CausalLm& model, comm::Communicator& dp, const ShardedModelOptions& options)
    : ShardedModel(model, DataParallel::one_axis(dp), options) {}

ShardedModel::ShardedModel(nn::CausalLm& model, const comm::DeviceMesh& mesh,
                           const ShardedModelOptions& options)
    : ShardedModel(model, DataParallel::of(mesh), options) {}

ShardedModel::~ShardedModel() = default;

/// Where operations add weight gradients themselves: only passes that are back-propagated through have any.
memory::GradSink* ShardedModel::sink_of_pass() {
  const bool trains = options().use == ModelUse::kTraining && at::GradMode::is_enabled();
  return trains ? &units_.grad_sink() : nullptr;
}

at::Tensor ShardedModel::forward(const at::Tensor& tokens_T, nn::PassContext& context) {
  return run_pass(tokens_T, nullptr, context);
}

at::Tensor ShardedModel::forward_read(const at::Tensor& tokens_T, const nn::ReadRows& read,
                                      nn::PassContext& context) {
  if (skips_rows(read.rows_M.size(0), tokens_T.size(0))) return run_pass(tokens_T, &read, context);
  return ops::select_rows(run_pass(tokens_T, nullptr, context), read.rows_M);
}

/// To leave fewer rows out would not pay for their selection; a pass that reads none runs whole.
bool ShardedModel::skips_rows(int64_t read, int64_t all) const {
  return options().skip_unread_rows && read > 0 && 8 * read <= 7 * all;
}

/// All rows behind the last block; with `read`, these alone.
at::Tensor ShardedModel::run_pass(const at::Tensor& tokens_T, const nn::ReadRows* read,
                                  nn::PassContext& context) {
  model_.prepare(context);
  context.gradients = sink_of_pass();
  at::Tensor hidden_TD = units_.run(
      0, tokens_T, [this, context](const at::Tensor& tokens) { return model_.embed(tokens, context); });
  for (size_t index = 0; index < blocks_.size(); ++index) {
    nn::Block* block = blocks_[index];
    nn::PassContext pass = context;
    pass.light_tape = recompute_[index] == Recompute::kPartial;
    // Under kBlock a run with a tape is the second one, in backward.
    const bool runs_again = recompute_[index] == Recompute::kBlock;
    const bool is_last = index + 1 == blocks_.size();
    const auto rows = read != nullptr && is_last ? std::optional(*read) : std::nullopt;
    hidden_TD = units_.run(
        index + 1, hidden_TD,
        [block, pass, rows, runs_again](const at::Tensor& hidden) mutable {
          pass.output_is_unread = runs_again && at::GradMode::is_enabled();
          return rows ? block->forward_read(hidden, *rows, pass) : block->forward(hidden, pass);
        },
        recompute_[index]);
  }
  return hidden_TD;
}

at::Tensor ShardedModel::token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& targets_M,
                                         const nn::PassContext& context, const TokenLogProbsWish& wish) {
  nn::PassContext pass = context;
  pass.gradients = sink_of_pass();
  const ops::TokenLogProbsOptions head{.chunk_tokens = options().head_chunk_tokens,
                                       .is_argmax_M = wish.is_argmax_M,
                                       .row_scale_M = wish.row_scale_M,
                                       .gradients = hidden_MD.is_cuda() ? pass.gradients : nullptr};
  return units_.run(blocks_.size() + 1, hidden_MD, [this, pass, targets_M, head](const at::Tensor& hidden) {
    const at::Tensor normed = model_.final_norm(hidden, pass);
    return ops::token_log_probs(normed, model_.head_weight(pass), targets_M, head);
  });
}

}  // namespace apus::parallel
