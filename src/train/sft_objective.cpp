#include "apus/train/sft_objective.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/memory/staged_copy.h"
#include "apus/nn/dropout_rows.h"
#include "apus/ops/segment_sum.h"
#include "train/on_device.h"

namespace apus::train {
namespace {

/// Tokens of non-zero weight.
int64_t counted_tokens(const data::Batch& batch) {
  if (batch.is_empty()) return 0;
  const at::Tensor& weights_M = batch.on_host().target_weights_M;
  return weights_M.defined() ? weights_M.count_nonzero().item<int64_t>() : batch.target_count();
}

/// Hits among the tokens of non-zero weight, fp64 [1].
at::Tensor hits_of(const data::Batch& batch, const at::Tensor& is_argmax_M) {
  at::Tensor hits_M = is_argmax_M;
  if (batch.target_weights_M.defined()) hits_M = hits_M.logical_and(batch.target_weights_M.ne(0));
  return hits_M.sum().to(at::kDouble).reshape({1});
}

/// d loss / d log-probability of each supervised token.
at::Tensor row_scale(const data::Batch& batch, double divisor) {
  if (batch.target_weights_M.defined()) return batch.target_weights_M.div(-divisor);
  return at::full({batch.target_count()}, -1.0 / divisor, batch.targets_M.options().dtype(at::kFloat));
}

}  // namespace

SftObjective::SftObjective(SftObjectiveOptions options)
    : options_(std::move(options)), metrics_{{.name = "token_acc", .divisor = 0}} {
  for (const std::string& channel : options_.channels) {
    APUS_CHECK(!channel.empty() && std::ranges::count(options_.channels, channel) == 1, ConfigError,
               "channel \"", channel, "\" is named ", std::ranges::count(options_.channels, channel),
               " times; name each once, and none by an empty text");
    metrics_.push_back({.name = "loss_" + channel, .divisor = metrics_.size()});
  }
}

/// [M] which of the channels each supervised token belongs to; their number for those of none.
std::vector<int64_t> SftObjective::channels_of(const data::Batch& batch) const {
  std::vector<int64_t> of_sequence;
  for (const std::string& name : batch.channels)
    of_sequence.push_back(std::ranges::find(options_.channels, name) - options_.channels.begin());
  std::vector<int64_t> channels(static_cast<size_t>(batch.target_count()),
                                static_cast<int64_t>(options_.channels.size()));
  if (of_sequence.empty()) return channels;
  const int64_t* sequences = batch.on_host().target_sequences_M.const_data_ptr<int64_t>();
  for (size_t m = 0; m < channels.size(); ++m)
    channels[m] = of_sequence.at(static_cast<size_t>(sequences[m]));
  return channels;
}

std::vector<int64_t> SftObjective::weights(const data::Batch& batch) const {
  std::vector<int64_t> counts(1 + options_.channels.size(), 0);
  counts[0] = counted_tokens(batch);
  if (options_.channels.empty() || counts[0] == 0) return counts;
  const at::Tensor& weights_M = batch.on_host().target_weights_M;
  const float* weights = weights_M.defined() ? weights_M.const_data_ptr<float>() : nullptr;
  const std::vector<int64_t> channels = channels_of(batch);
  for (size_t m = 0; m < channels.size(); ++m) {
    const auto place = static_cast<size_t>(channels[m]) + 1;
    if (place < counts.size() && (weights == nullptr || weights[m] != 0.0F)) ++counts[place];
  }
  return counts;
}

nn::PassContext SftObjective::context_of(const data::Batch& batch) const {
  nn::PassContext context{.rows = batch.layout, .adapters = options_.adapters};
  if (!options_.dropout_seed || !at::GradMode::is_enabled()) return context;
  APUS_CHECK(
      batch.is_empty() || !batch.places.empty(), ConfigError,
      "lora_dropout draws its numbers by a row's place in the epoch, but the batch has no places; fill "
      "Batch::places, or set lora_dropout to 0");
  context.dropout = nn::dropout_rows(
      *batch.layout, {.seed = *options_.dropout_seed, .epoch = batch.epoch, .places = batch.places});
  return context;
}

/// fp64 [channels]
at::Tensor SftObjective::channel_sums(const data::Batch& batch, const at::Tensor& losses_M) const {
  const auto count = static_cast<int64_t>(options_.channels.size());
  const std::vector<int64_t> channels = channels_of(batch);
  const at::Tensor index_M = at::empty({static_cast<int64_t>(channels.size())}, at::kLong);
  std::ranges::copy(channels, index_M.mutable_data_ptr<int64_t>());
  const at::Tensor losses = losses_M.detach().to(at::kDouble);
  return ops::segment_sum(losses, memory::staged_to(index_M, losses.device(), at::kLong), count + 1)
      .slice(0, 0, count);
}

ObjectiveResult SftObjective::run(parallel::ShardedModel& model, const data::Batch& batch) const {
  return run_scaled(model, batch, std::nullopt);
}

ObjectiveResult SftObjective::run_in_step(parallel::ShardedModel& model, const data::Batch& batch,
                                          const std::vector<double>& divisors) const {
  return run_scaled(model, batch, divisors.at(0));
}

/// With a divisor: what each token counts in the loss is known before the forward, so that a trainable head
/// on a GPU makes its gradient in it.
ObjectiveResult SftObjective::run_scaled(parallel::ShardedModel& model, const data::Batch& given,
                                         std::optional<double> divisor) const {
  nn::PassContext context = context_of(given);
  const data::Batch batch = on_device(model, given);
  const at::Tensor hidden_MD = model.forward_read(batch.tokens_T, read_rows(batch, context), context);
  parallel::TokenLogProbsWish wish{
      .is_argmax_M = at::empty({batch.target_count()}, hidden_MD.options().dtype(at::kBool))};
  const bool trains_head = at::GradMode::is_enabled() && model.model().head_weight(context).requires_grad();
  if (divisor && trains_head && hidden_MD.is_cuda()) wish.row_scale_M = row_scale(batch, *divisor);
  at::Tensor losses_M = model.token_log_probs(hidden_MD, batch.targets_M, context, wish).neg();
  if (batch.target_weights_M.defined()) losses_M = losses_M.mul(batch.target_weights_M);
  ObjectiveResult result{.loss_sums = {losses_M.sum()}};
  if (batch.is_empty()) return result;
  at::NoGradGuard no_grad;
  result.metric_sums = hits_of(batch, wish.is_argmax_M);
  if (!options_.channels.empty())
    result.metric_sums = at::cat({result.metric_sums, channel_sums(batch, losses_M)});
  return result;
}

}  // namespace apus::train
