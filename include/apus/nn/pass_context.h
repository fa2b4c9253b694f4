#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"

namespace apus::nn {

/// How the T token rows of a micro-batch split into sequences.
///
/// Two layouts share one type. Packed: the sequences lie one after another, T = sum of lengths,
/// padded_length = 0. Padded: every sequence takes padded_length rows, T = batch * padded_length, its own
/// tokens first, padding behind them. Immutable once built, and shared by every block of a pass.
struct APUS_API RowLayout {
  /// [B] tokens of each sequence, without padding; 0 is allowed.
  std::vector<int64_t> lengths;
  /// Rows that a sequence takes; 0 = packed.
  int64_t padded_length = 0;
  /// Largest entry of lengths, 0 without sequences.
  int64_t max_length = 0;
  /// int64 [T] on the CPU: position of each row in its sequence, from 0; padding counts on.
  at::Tensor positions_T;

  /// B, the number of sequences.
  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  bool is_packed() const { return padded_length == 0; }
  /// T, the number of token rows including padding.
  int64_t rows() const;
  /// First row of sequence `index`. Throws ShapeError if there is no such sequence.
  int64_t first_row(int64_t index) const;

  /// Throws:  ShapeError for a negative length.
  static std::shared_ptr<const RowLayout> packed(std::vector<int64_t> lengths);
  /// Throws:  ShapeError if padded_length < 1 or a length is negative or larger than it.
  static std::shared_ptr<const RowLayout> padded(std::vector<int64_t> lengths, int64_t padded_length);
};

/// Everything that a forward pass needs besides the activations; copied into backward for recompute.
struct APUS_API PassContext {
  std::shared_ptr<const RowLayout> rows = {};
  /// Rotary tables for the rows [T, H], filled by CausalLm::prepare.
  at::Tensor cos_TH = {};
  /// As cos_TH.
  at::Tensor sin_TH = {};
  /// Active LoRA adapters by name; empty = the base alone. A layer skips those that it lacks.
  std::vector<std::string> adapters = {};
  /// Blocks keep the inputs of norms and of the gated activation instead of what these make, and make it again
  /// in backward (ops::Recomputed). The numbers are the same bits.
  bool light_tape = false;
};

}  // namespace apus::nn
