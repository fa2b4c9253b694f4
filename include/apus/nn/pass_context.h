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
  std::vector<int64_t> lengths;  ///< [B] tokens of each sequence, without padding
  int64_t padded_length = 0;     ///< rows a sequence takes; 0 = packed
  int64_t max_length = 0;        ///< largest entry of lengths
  at::Tensor positions_T;        ///< int64 [T] position of each row in its sequence (padding: counts on)

  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  bool is_packed() const { return padded_length == 0; }
  /// T, the number of token rows including padding.
  int64_t rows() const;
  /// First row of sequence `index`.
  int64_t first_row(int64_t index) const;

  static std::shared_ptr<const RowLayout> packed(std::vector<int64_t> lengths);
  static std::shared_ptr<const RowLayout> padded(std::vector<int64_t> lengths, int64_t padded_length);
};

/// Everything that a forward pass needs besides the activations; copied into backward for recompute.
struct APUS_API PassContext {
  std::shared_ptr<const RowLayout> rows;
  at::Tensor cos_TH;                  ///< rotary tables for the rows [T, H], filled by CausalLm::prepare
  at::Tensor sin_TH;                  ///< as cos_TH
  std::vector<std::string> adapters;  ///< active LoRA adapters by name; empty = the base alone
};

}  // namespace apus::nn
