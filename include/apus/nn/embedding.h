#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "apus/base/api.h"
#include "apus/nn/adaptable_module.h"
#include "apus/nn/boundary.h"
#include "apus/nn/pass_context.h"

namespace apus::nn {

/// Shape and dtype of a table with one row a vocabulary entry.
struct APUS_API VocabOptions {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  at::ScalarType dtype = at::kFloat;
};

/// The token embedding: row lookup.
/// Shapes:  tokens int64 [T], weight [V, D] -> [T, D].
/// A tied model's head is a second handle to this weight; it is registered here only.
/// An active adapter's copy of the weight replaces it for the lookup (not for a tied head).
/// Parameter names: "weight", "modules_to_save.<name>.weight".
class APUS_API Embedding final : public AdaptableModule {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  /// Throws:  ConfigError if a size is not positive.
  explicit Embedding(const VocabOptions& options);

  /// Throws:  ShapeError if tokens are not int64 [T] or one lies outside the vocabulary.
  at::Tensor forward(const at::Tensor& tokens_T, const PassContext& context) const;

  /// Puts a seam around the lookup: enter() receives the tokens, leave() the rows; null = identity.
  void set_boundary(std::shared_ptr<const Boundary> boundary) { boundary_ = std::move(boundary); }

  const at::Tensor& weight() const { return weight_VD_; }

 private:
  at::Tensor weight_VD_;
  std::shared_ptr<const Boundary> boundary_;
};

/// The vocabulary projection. Only a weight: the loss applies it itself, so that logits never exist whole;
/// for the same reason it takes no LoRA and is no nn::Linear. Adapters may replace it whole. Parameter names:
/// "weight" unless tied, "modules_to_save.<name>.weight".
class APUS_API VocabHead final : public AdaptableModule {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  /// Throws:  ConfigError if a size is not positive.
  explicit VocabHead(const VocabOptions& options);
  /// The head of a tied model: shares the embedding's tensor and registers the adapters' copies alone. Copies
  /// of the embedding do not reach it, nor its copies the embedding. The embedding outlives it.
  explicit VocabHead(const Embedding& tied);

  /// [V, D] of a pass, for CausalLm::head_weight.
  at::Tensor weight(const PassContext& context) const { return active("weight", weight_VD_, context); }
  /// [V, D] without adapters.
  const at::Tensor& weight() const { return weight_VD_; }

 private:
  at::Tensor weight_VD_;
};

}  // namespace apus::nn
