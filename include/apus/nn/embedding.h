#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "apus/base/api.h"
#include "apus/nn/boundary.h"
#include "apus/nn/module.h"

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
/// Parameter names: "weight".
class APUS_API Embedding final : public Module {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  /// Throws:  ConfigError if a size is not positive.
  explicit Embedding(const VocabOptions& options);

  /// Throws:  ShapeError if tokens are not int64 [T] or one lies outside the vocabulary.
  at::Tensor forward(const at::Tensor& tokens_T) const;

  /// Puts a seam around the lookup: enter() receives the tokens, leave() the rows; null = identity.
  void set_boundary(std::shared_ptr<const Boundary> boundary) { boundary_ = std::move(boundary); }

  const at::Tensor& weight() const { return weight_VD_; }

 private:
  at::Tensor weight_VD_;
  std::shared_ptr<const Boundary> boundary_;
};

/// The vocabulary projection of an untied model. Only a weight: the loss applies it itself, so that logits
/// never exist whole; for the same reason it takes no adapters and is no nn::Linear.
/// Parameter names: "weight".
class APUS_API VocabHead final : public Module {
 public:
  /// Leaves the weight's values unset and frozen; a loader fills it.
  /// Throws:  ConfigError if a size is not positive.
  explicit VocabHead(const VocabOptions& options);

  /// [V, D], for CausalLm::head_weight.
  const at::Tensor& weight() const { return weight_VD_; }

 private:
  at::Tensor weight_VD_;
};

}  // namespace apus::nn
