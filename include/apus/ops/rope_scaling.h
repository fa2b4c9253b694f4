#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::ops {

/// How a model stretches its rotary positions beyond the length that it was first trained at.
enum class RopeType {
  kDefault,   ///< not at all: frequency i is theta^(-2i/H)
  kLinear,    ///< every frequency divided by the factor
  kDynamic,   ///< "NTK-aware": theta grows with the sequence, beyond max_position_embeddings
  kYarn,      ///< high frequencies kept, low ones divided, a ramp between; cos and sin scaled
  kLlama3,    ///< the same by wavelength, as Llama 3.1 does it
  kLongrope,  ///< a divisor for each frequency, of two lists by the sequence's length; cos and sin scaled
};

/// Every type, in the order of the enumeration.
APUS_API const std::vector<RopeType>& rope_types();

/// As config.json spells it: "default", "linear", "dynamic", "yarn", "llama3", "longrope".
APUS_API std::string_view rope_type_name(RopeType type);

/// The parameters of a rule. Only those that the type names are read; the others keep their defaults.
struct APUS_API RopeScaling {
  RopeType type = RopeType::kDefault;
  /// All but default. How many times longer than the original the sequences become.
  double factor = 1.0;
  /// Yarn, llama3, longrope: the length of the first training.
  int64_t original_max_position_embeddings = 0;
  /// Yarn, longrope: of cos and sin; unset = from the factor.
  std::optional<double> attention_factor = {};
  /// Yarn: turns within the original length above which a frequency is kept, and below which it is divided.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  /// Yarn: round the ramp's ends outwards to whole indices.
  bool truncate = true;
  /// Yarn: where both are set (not 0) they choose the attention factor.
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  /// Llama3: original lengths over these are the wavelengths between which the rule interpolates.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  /// Longrope: H/2 divisors up to the original length, and beyond it.
  std::vector<double> short_factor = {};
  std::vector<double> long_factor = {};

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// What a rule needs to know of its model.
struct APUS_API RopeShape {
  /// H; all of it turns.
  int64_t head_dim = 0;
  double theta = 10000.0;
  /// Dynamic: the length up to which nothing changes.
  int64_t max_position_embeddings = 0;
};

/// Whether the rule's frequencies depend on the sequence's length: dynamic and longrope.
APUS_API bool depends_on_length(const RopeScaling& scaling);

/// The one number by which a length chooses among a rule's frequencies: equal numbers, equal frequencies.
/// Dynamic: max(length, max_position_embeddings). Longrope: the original length, or one more beyond it.
/// Others: 0.
APUS_API int64_t rule_length(const RopeScaling& scaling, const RopeShape& shape, int64_t length);

/// What positions are multiplied with, and cos and sin.
struct APUS_API RopeFrequencies {
  at::Tensor inv_freq;  ///< fp32 [H/2] on the CPU
  double attention_factor = 1.0;
};

/// The frequencies of a rule for a sequence of `length` tokens (ignored unless depends_on_length).
/// Maths:       default f_i = theta^(-2i/H); the types as their papers and transformers have them:
///              dynamic theta' = theta * (factor * s / max - (factor - 1))^(H/(H-2)), s = rule_length.
/// Dtypes:      fp32, operation by operation as transformers 5 computes them: the same bits.
/// Throws:      ConfigError if the head dim is odd or not positive, or longrope's lists have not H/2 entries.
/// Source:      Chen et al., "Extending context window via positional interpolation", 2023; Peng et al.,
///              "YaRN", 2023; Ding et al., "LongRoPE", 2024; Llama team, "The Llama 3 herd", 2024.
APUS_API RopeFrequencies rope_frequencies(const RopeScaling& scaling, const RopeShape& shape,
                                          int64_t length = 0);

}  // namespace apus::ops
