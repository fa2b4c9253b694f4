#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/batch.h"
#include "apus/models/pretrained.h"
#include "apus/parallel/sharded_model.h"

namespace apus::train {

/// Where DPO's reference log-probabilities come from.
enum class ReferenceKind {
  kTrainedModel,  ///< the trained model's frozen base, under the adapters named (none: adapters off)
  kSecondModel,   ///< another model, frozen
  kNone,          ///< reference_free: log-probabilities of 0
};

/// DPO's reference: what the policy is compared with. A value; the model it points at outlives it.
struct APUS_API Reference {
  ReferenceKind kind = ReferenceKind::kTrainedModel;
  /// Active in the reference pass; frozen.
  std::vector<std::string> adapters = {};
  /// kSecondModel: the model.
  parallel::ShardedModel* model = nullptr;
  /// In a few words, for sentence(): "a frozen copy of --adapters as loaded", a folder.
  std::string origin = {};
  /// The pass never runs: batches carry the log-probabilities (ReferencedDataset).
  bool is_precomputed = false;

  /// The base with its adapters off: the default of a new adapter.
  static Reference adapters_off();
  /// The trained model under frozen adapters of its own; `origin` says where they came from.
  static Reference adapter(std::vector<std::string> names, std::string origin);
  /// A second model; its adapters, if it has some.
  static Reference second_model(parallel::ShardedModel& model, std::string origin,
                                std::vector<std::string> adapters = {});
  /// reference_free.
  static Reference none();

  /// What is said about it at start, one sentence without a full stop.
  std::string sentence() const;
};

/// What the reference says of each answer: fp32 [2P], chosen first, without tape.
///
/// `token_weights_M` multiplies each supervised token's log-probability (ld_alpha); undefined: 1. Has no
/// effect where log-probabilities were computed ahead: they are weighed already.
/// Collectives: the model's own in one forward, unless is_precomputed or kNone; empty batches take part.
/// Throws:      ConfigError if is_precomputed and a batch with rows carries none.
APUS_API at::Tensor reference_log_probs(const Reference& reference, parallel::ShardedModel& trained,
                                        const data::Batch& batch, const at::Tensor& token_weights_M = {});

/// Refuses a reference that is missing, would move with training, or is the trained model itself.
/// Throws: ConfigError naming the adapter or the flag.
APUS_API void check_reference(const Reference& reference, parallel::ShardedModel& trained);

/// Puts another adapter's folder on a model as a frozen reference (`--ref_adapters DIR`), with its own rank,
/// targets and scaling. Call it before the engine is built, so that its policy shards what is large.
/// Throws: as peft::load_adapter.
APUS_API Reference load_reference_adapter(const std::string& folder, nn::CausalLm& model,
                                          const std::string& name, at::ScalarType dtype = at::kFloat);

/// A frozen second model with the engine it runs on.
class APUS_API ReferenceModel final {
 public:
  /// `loaded`: of `--ref_model`, or for full training a second load of --model.
  /// `engine`: the trained model's options; what a reference does otherwise (use, recompute) is changed here.
  /// Memory:   stored in the wanted dtype, parameters stay mapped from the file; under a policy that shards
  ///           parameters each rank keeps its part.
  /// The caller sees to it that both models share a tokenizer.
  ReferenceModel(models::PretrainedModel loaded, comm::Communicator& dp,
                 parallel::ShardedModelOptions engine);
  ~ReferenceModel();
  ReferenceModel(const ReferenceModel&) = delete;
  ReferenceModel& operator=(const ReferenceModel&) = delete;

  nn::CausalLm& model() { return *loaded_.model; }
  parallel::ShardedModel& engine() { return *engine_; }
  /// The reference that it is.
  Reference reference();

 private:
  models::PretrainedModel loaded_;
  std::unique_ptr<parallel::ShardedModel> engine_;
};

}  // namespace apus::train
