#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/peft/lora_config.h"

namespace apus::peft {

/// What a merge must know of the base: no values.
struct APUS_API MergeBase {
  /// Every stored tensor of the base by its name.
  std::map<std::string, std::vector<int64_t>> shapes;
  /// config.json's tie_word_embeddings: the head is the embedding's own tensor.
  bool tied_head = false;
};

/// A tensor that the merged model has and the base does not store: the head of a tied base whose head or
/// embedding was trained by itself.
struct APUS_API AddedTensor {
  std::string name;  ///< "lm_head.weight"
  std::string like;  ///< the base tensor whose shape, dtype and value it starts from
};

/// An adapter folder as a function from a base model's tensors to the merged ones. Reads files alone: no
/// model is built.
///
/// Maths:   LoRA: W + scaling * B A in fp32, rounded once to W's dtype. Trained biases and modules_to_save
///          replace the base's tensor, rounded to its dtype.
/// Memory:  the adapter's file is mapped; merged() holds one tensor in fp32 and its product.
/// Thread-safe once built.
class APUS_API AdapterMerge final {
 public:
  /// Opens the folder and checks every tensor of it against the base's names and shapes.
  /// Throws:  CheckpointError naming file and tensor: one that touches no tensor of the base, one that is
  ///          missing though the configuration targets its module, a shape that does not fit; NotSupported
  ///          and others as load_adapter.
  AdapterMerge(const std::filesystem::path& folder, const MergeBase& base);
  ~AdapterMerge();
  AdapterMerge(AdapterMerge&&) noexcept;
  AdapterMerge& operator=(AdapterMerge&&) noexcept;

  const LoraConfig& config() const;
  /// Worth telling the user.
  const std::vector<std::string>& warnings() const;

  /// Names of base tensors that merging changes, sorted.
  const std::vector<std::string>& touched() const;
  /// Tensors that come on top; not among touched().
  const std::vector<AddedTensor>& added() const;
  /// The base's head is tied and the merged one is a tensor of its own: the merged config.json must say
  /// tie_word_embeddings false.
  bool unties_head() const;

  /// The merged value of a tensor; a copy of `base` where the adapter does not touch it.
  /// `name`: a tensor of the base, or an added one, whose `base` is the unmerged value of its `like`.
  /// Shapes:  base as declared, on the CPU -> the same shape and dtype.
  /// Throws:  ShapeError if `base` is not of the declared shape, ConfigError if there is no such tensor.
  at::Tensor merged(const std::string& name, const at::Tensor& base) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace apus::peft
