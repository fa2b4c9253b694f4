#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apus::models {

/// When the config's sliding_window limits attention.
enum class WindowRule {
  kNever,    ///< the kind has none
  kFlagged,  ///< if use_sliding_window is true, in layers from max_window_layers on
  kAlways,   ///< unless it is null
};

/// What sets one kind of dense decoder apart: one line of a table.
struct DecoderKind {
  std::string_view model_type;
  std::string_view architecture;
  // What transformers fills in where config.json is silent; 0 = from other keys.
  int64_t max_position_embeddings = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  /// Biases that the kind always has.
  bool qkv_bias = false;
  /// Keys of config.json, any of which says whether there are biases; none = there are not.
  std::vector<std::string> qkv_bias_keys = {};
  std::vector<std::string> o_bias_keys = {};
  std::vector<std::string> mlp_bias_keys = {};
  bool qk_norm = false;
  WindowRule window = WindowRule::kNever;
};

/// Every kind, sorted by model_type.
std::span<const DecoderKind> decoder_kinds();

/// Throws:  NotSupported for an unknown kind, listing the known.
const DecoderKind& decoder_kind(const std::string& model_type);

}  // namespace apus::models
