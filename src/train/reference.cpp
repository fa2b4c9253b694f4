#include "apus/train/reference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/peft/adapter_file.h"
#include "apus/train/answer_log_probs.h"
#include "train/on_device.h"
#include "train/trainer_checks.h"

namespace apus::train {
namespace {

std::string with_adapters(const std::vector<std::string>& adapters) {
  std::string text;
  for (const std::string& name : adapters) text += (text.empty() ? " under adapter " : ", ") + name;
  return text;
}

/// No trainable parameter may be among those of the reference.
void require_frozen(parallel::ShardedModel& model) {
  for (const nn::NamedParameter& parameter : model.model().named_parameters()) {
    APUS_CHECK(!parameter.tensor.requires_grad(), ConfigError, "the reference model is trainable (",
               parameter.name, "), so the reference would move; load it frozen");
  }
}

}  // namespace

Reference Reference::adapters_off() {
  return {};
}

Reference Reference::adapter(std::vector<std::string> names, std::string origin) {
  return {.adapters = std::move(names), .origin = std::move(origin)};
}

Reference Reference::second_model(parallel::ShardedModel& model, std::string origin,
                                  std::vector<std::string> adapters) {
  return {.kind = ReferenceKind::kSecondModel,
          .adapters = std::move(adapters),
          .model = &model,
          .origin = std::move(origin)};
}

Reference Reference::none() {
  return {.kind = ReferenceKind::kNone};
}

std::string Reference::sentence() const {
  std::string text;
  switch (kind) {
    case ReferenceKind::kNone:
      return "none (reference_free): the policy is compared with log-probabilities of 0";
    case ReferenceKind::kTrainedModel:
      text = adapters.empty() ? "the base with adapters off"
             : origin.empty() ? "the base" + with_adapters(adapters) + ", frozen"
                              : origin;
      break;
    case ReferenceKind::kSecondModel:
      text = "a second, frozen model" + (origin.empty() ? std::string() : " from " + origin) +
             with_adapters(adapters);
      break;
  }
  return is_precomputed ? text + ", its log-probabilities computed ahead" : text;
}

at::Tensor reference_log_probs(const Reference& reference, parallel::ShardedModel& trained,
                               const data::Batch& batch, const at::Tensor& token_weights_M) {
  const at::NoGradGuard no_grad;
  const int64_t answers = std::max<int64_t>(2 * batch.pairs, 2);
  const auto zeros = [&] {
    return at::zeros({answers}, at::TensorOptions(at::kFloat).device(device_of(trained)));
  };
  if (reference.kind == ReferenceKind::kNone) return zeros();
  if (!reference.is_precomputed) {
    parallel::ShardedModel& model = reference.model ? *reference.model : trained;
    return answer_log_probs(model, batch,
                            {.adapters = reference.adapters, .token_weights_M = token_weights_M})
        .weighted;
  }
  if (batch.is_empty()) return zeros();
  APUS_CHECK(
      batch.reference_log_probs_S.defined(), ConfigError,
      "the reference is precomputed, but this micro-batch carries no reference log-probabilities; wrap its "
      "dataset in a ReferencedDataset (evaluation sets too)");
  return batch.reference_log_probs_S;
}

void check_reference(const Reference& reference, parallel::ShardedModel& trained) {
  if (reference.kind == ReferenceKind::kNone || reference.is_precomputed) return;
  if (reference.kind == ReferenceKind::kSecondModel) {
    APUS_CHECK(reference.model && reference.model != &trained, ConfigError,
               "the reference is a second model, but none is given that is not the trained one");
    require_frozen(*reference.model);
    return require_frozen_adapters(reference.model->model(), reference.adapters);
  }
  require_frozen_adapters(trained.model(), reference.adapters);
}

Reference load_reference_adapter(const std::string& folder, nn::CausalLm& model, const std::string& name,
                                 at::ScalarType dtype) {
  peft::load_adapter(folder, model, name, {.use = peft::AdapterUse::kFrozen, .dtype = dtype});
  return Reference::adapter({name}, "the adapter in " + folder + ", frozen");
}

ReferenceModel::ReferenceModel(models::PretrainedModel loaded, comm::Communicator& dp,
                               parallel::ShardedModelOptions engine)
    : loaded_(std::move(loaded)) {
  engine.use = parallel::ModelUse::kReference;
  engine.recompute = parallel::Recompute::kNone;
  engine.initial_values = parallel::InitialValues::kOwn;
  if (engine.compute_dtype) engine.frozen_dtype = engine.compute_dtype;
  engine_ = std::make_unique<parallel::ShardedModel>(*loaded_.model, dp, engine);
}

ReferenceModel::~ReferenceModel() = default;

Reference ReferenceModel::reference() {
  return Reference::second_model(*engine_, loaded_.folder.string());
}

}  // namespace apus::train
