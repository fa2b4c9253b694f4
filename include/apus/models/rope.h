#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "apus/base/api.h"
#include "apus/nn/pass_context.h"
#include "apus/ops/rope_scaling.h"
#include "apus/ops/rotary.h"

namespace apus::models {

/// Which length chooses the frequencies of a rule that depends on it (ops::depends_on_length).
enum class RopeLength {
  kSequence,  ///< each sequence's own: numbers do not depend on what else is in the batch
  kBatch,     ///< the whole batch's rows, padding included, as transformers has it: for parity with it
};

/// The rotary positions of one model: what a CausalLm's prepare() asks for the tables of a pass.
///
/// Under kBatch a dynamic rule has a memory, as in transformers: the largest length so far stays in use until
/// a batch shorter than max_position_embeddings comes. It is not part of a checkpoint.
class APUS_API Rope final {
 public:
  /// Throws:  ConfigError as ops::rope_frequencies.
  Rope(const ops::RopeShape& shape, const ops::RopeScaling& scaling, RopeLength by = RopeLength::kSequence);

  /// Shapes:  both [T, H] for the layout's T rows, in `dtype` on `device`. Padding rows have finite values.
  /// Memory:  where sequences need different frequencies, T * H/2 fp32 more than else.
  /// Throws:  NotSupported if answers behind one shared prompt need different frequencies: the prompt's keys
  ///          would have to be turned once for each.
  ops::RotaryTables tables(const nn::RowLayout& rows, at::Device device, at::ScalarType dtype);

  const ops::RopeShape& shape() const { return shape_; }
  const ops::RopeScaling& scaling() const { return scaling_; }

 private:
  at::Tensor frequencies(const nn::RowLayout& rows);
  int64_t batch_length(const nn::RowLayout& rows);

  ops::RopeShape shape_;
  ops::RopeScaling scaling_;
  RopeLength by_;
  ops::RopeFrequencies
      short_;             ///< of sequences within the first length: those of any sequence for most rules
  int64_t longest_seen_;  ///< kBatch and a dynamic rule
};

}  // namespace apus::models
