#include "apus/parallel/sharded_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <utility>

#include "apus/base/error.h"
#include "apus/ops/token_log_probs.h"
#include "apus/optim/adamw.h"
#include "apus/optim/decay_rule.h"
#include "apus/parallel/grad_norm.h"
#include "apus/parallel/group_plan.h"

namespace apus::parallel {
namespace {

/// The part of the group's parameters that lies in its updated range, with each one's own settings.
std::vector<optim::Segment> segments_of(const memory::ParamGroup& group, double weight_decay) {
  std::vector<optim::Segment> segments;
  const memory::ElementRange updated = group.update_range();
  for (size_t index = 0; index < group.parameters().size(); ++index) {
    const auto range = memory::intersect(group.layout().range_of(static_cast<int64_t>(index)), updated);
    if (range.size() == 0) continue;
    const memory::GroupParameter& parameter = group.parameters()[index];
    const bool decays = optim::takes_weight_decay(parameter.name, parameter.tensor.dim());
    segments.push_back({.begin = range.begin - updated.begin,
                        .end = range.end - updated.begin,
                        .weight_decay = decays ? weight_decay : 0.0});
  }
  return segments;
}

}  // namespace

struct ShardedModel::Units {
  Unit embed, head;
  std::vector<Unit> blocks;
};

ShardedModel::ShardedModel(nn::CausalLm& model, comm::Communicator& dp, const ShardedModelOptions& options)
    : model_(model), dp_(dp), options_(options), blocks_(model.blocks()), units_(std::make_unique<Units>()) {
  build_groups();
  std::vector<memory::ParamGroup*> pointers;
  for (const auto& group : groups_) pointers.push_back(group.get());
  reducer_ = std::make_unique<GradReducer>(std::move(pointers), options_.policy, dp_);
  runner_ = std::make_unique<BlockRunner>(reducer_->sink());
}

ShardedModel::~ShardedModel() = default;

void ShardedModel::build_groups() {
  const ModelUnits model = model_units(model_);
  const auto as_unit = [](const std::vector<nn::NamedParameter>& parameters) {
    Unit unit;
    for (const auto& parameter : parameters) unit.parameters.push_back(parameter.tensor);
    return unit;
  };
  units_->embed = as_unit(model.units.front());
  units_->head = as_unit(model.units.back());
  for (size_t index = 1; index + 1 < model.units.size(); ++index) {
    units_->blocks.push_back(as_unit(model.units[index]));
  }
  for (auto& parameters : plan_groups(model, options_.bucket_elements)) {
    const memory::ParamGroupOptions group_options{.name = detail::concat("group", groups_.size()),
                                                  .rank = dp_.rank(),
                                                  .world = dp_.size(),
                                                  .shard_optimizer = options_.policy.opt_shard,
                                                  .shard_gradients = options_.policy.grad_shard,
                                                  .compute_dtype = options_.compute_dtype,
                                                  .agree_on_values = [this](const at::Tensor& values) {
                                                    dp_.broadcast(values, 0)->wait();
                                                  }};
    groups_.push_back(std::make_unique<memory::ParamGroup>(std::move(parameters), group_options));
  }
}

at::Tensor ShardedModel::forward(const at::Tensor& tokens_T, nn::PassContext& context) {
  model_.prepare(context);
  at::Tensor hidden_TD = runner_->run(units_->embed, tokens_T, Recompute::kNone,
                                      [this, context](const at::Tensor& tokens) { return model_.embed(tokens, context); });
  for (size_t index = 0; index < blocks_.size(); ++index) {
    nn::Block* block = blocks_[index];
    hidden_TD = runner_->run(units_->blocks[index], hidden_TD, options_.recompute,
                             [block, context](const at::Tensor& hidden) { return block->forward(hidden, context); });
  }
  return hidden_TD;
}

at::Tensor ShardedModel::token_log_probs(const at::Tensor& hidden_MD, const at::Tensor& targets_M,
                                         const nn::PassContext& context) {
  const ops::TokenLogProbsOptions head{.chunk_tokens = options_.head_chunk_tokens};
  return runner_->run(units_->head, hidden_MD, Recompute::kNone,
                      [this, context, targets_M, head](const at::Tensor& hidden) {
                        const at::Tensor normed = model_.final_norm(hidden, context);
                        return ops::token_log_probs(normed, model_.head_weight(), targets_M, head);
                      });
}

void ShardedModel::backward(const at::Tensor& loss, MicroBatchPlace place) {
  reducer_->begin_micro_batch(place);
  if (loss.requires_grad()) loss.backward();
  reducer_->finish_micro_batch();
}

double ShardedModel::reduce_norm() {
  double sum = 0.0;
  for (const auto& group : groups_) sum += sum_of_squares(group->owned_grad());
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  waited_.wait(*dp_.all_reduce(total));
  return std::sqrt(*total.const_data_ptr<double>());
}

void ShardedModel::update_group(memory::ParamGroup& group, const UpdateOptions& options, double clip) {
  const optim::AdamwState state{group.masters(), group.exp_avg(), group.exp_avg_sq()};
  const memory::ElementRange range = group.update_range();
  at::Tensor copy;
  if (group.dtype() != at::kFloat) copy = group.flat_params().slice(0, range.begin, range.end);
  const optim::AdamwOptions adamw{.lr = options.lr,
                                  .beta1 = options.beta1,
                                  .beta2 = options.beta2,
                                  .epsilon = options.epsilon,
                                  .step = updates_};
  optim::adamw_step(state, group.reduced_grad(), copy, segments_of(group, options.weight_decay), adamw,
                    {.clip_factor = at::full({1}, clip, at::kFloat)});
}

double ShardedModel::update(const UpdateOptions& options) {
  at::NoGradGuard no_grad;
  const double norm = reduce_norm();
  if (std::isfinite(norm)) {
    ++updates_;
    const bool clips = options.max_grad_norm > 0 && norm + 1e-6 > options.max_grad_norm;
    const double clip = clips ? options.max_grad_norm / (norm + 1e-6) : 1.0;
    for (const auto& group : groups_) update_group(*group, options, clip);
    gather_parameters();
  }
  for (const auto& group : groups_) group->reset_grads();
  return norm;
}

/// Every rank's part of `full`, from the part that this rank owns.
void ShardedModel::gather_in_place(const at::Tensor& full, const memory::ElementRange& own) {
  waited_.wait(*dp_.all_gather(full, full.slice(0, own.begin, own.end)));
}

void ShardedModel::gather_parameters() {
  if (!options_.policy.opt_shard) return;
  for (const auto& group : groups_) gather_in_place(group->flat_params(), group->owned_range());
}

int64_t ShardedModel::trainable_elements() const {
  int64_t sum = 0;
  for (const auto& group : groups_) sum += group->layout().used_elements();
  return sum;
}

std::vector<nn::NamedParameter> ShardedModel::gather_masters() {
  at::NoGradGuard no_grad;
  std::vector<nn::NamedParameter> result;
  for (const auto& group : groups_) {
    at::Tensor full = group->flat_params();
    if (group->dtype() != at::kFloat) {
      full = at::empty({group->layout().padded_elements()}, full.options().dtype(at::kFloat));
      const auto updated = group->update_range();
      full.slice(0, updated.begin, updated.end).copy_(group->masters());
      if (options_.policy.opt_shard) gather_in_place(full, group->owned_range());
    }
    for (size_t index = 0; index < group->parameters().size(); ++index) {
      const memory::GroupParameter& parameter = group->parameters()[index];
      const auto range = group->layout().range_of(static_cast<int64_t>(index));
      result.push_back({parameter.name, full.slice(0, range.begin, range.end).view(parameter.tensor.sizes())});
    }
  }
  return result;
}

std::vector<GroupState> ShardedModel::optimizer_states() {
  std::vector<GroupState> result;
  for (const auto& group : groups_) {
    const memory::ElementRange owned = group->owned_range();
    const int64_t shift = group->update_range().begin;
    const auto own = [&](const at::Tensor& states) { return states.slice(0, owned.begin - shift, owned.end - shift); };
    result.push_back({.group = group->options().name,
                      .layout_fingerprint = group->layout().fingerprint(),
                      .padded_elements = group->layout().padded_elements(),
                      .owned = owned,
                      .master = own(group->masters()),
                      .exp_avg = own(group->exp_avg()),
                      .exp_avg_sq = own(group->exp_avg_sq())});
  }
  return result;
}

void ShardedModel::load_finished(int64_t updates) {
  at::NoGradGuard no_grad;
  updates_ = updates;
  for (const auto& group : groups_) {
    const memory::ElementRange owned = group->owned_range();
    if (!options_.policy.opt_shard) {
      for (const at::Tensor& states : {group->masters(), group->exp_avg(), group->exp_avg_sq()}) {
        gather_in_place(states, owned);
      }
    }
    group->publish_masters();
  }
  gather_parameters();
}

}  // namespace apus::parallel
