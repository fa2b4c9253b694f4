#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::nn {

/// How tensor or expert parallelism cuts the parameters that a pattern names.
enum class ShardStyle {
  kReplicate,  ///< every rank holds all of it
  kColumn,     ///< output features are split: weight [out/n, in], bias [out/n]
  kRow,        ///< input features are split: weight [out, in/n], bias on one rank's sum only
  kVocab,      ///< vocabulary rows are split
  kExpert,     ///< whole experts are distributed
  kSequence,   ///< replicated weight whose activations are split along the sequence
};

/// One line of a plan: module paths that match get the style.
struct APUS_API ShardRule {
  std::string pattern;  ///< path with * for one component, e.g. "model.layers.*.mlp.down_proj"
  ShardStyle style = ShardStyle::kReplicate;
};

/// Whether a dotted path fits a pattern of as many components, in which * stands for any one of them.
APUS_API bool matches_path(std::string_view pattern, std::string_view path);

/// Sharding declared beside a model as plain data; it is applied from outside by parallel::parallelize.
struct APUS_API ShardPlan {
  std::vector<ShardRule> rules;  ///< the first match wins; no match = kReplicate

  /// The style for a module path.
  ShardStyle style_of(const std::string& path) const;
};

}  // namespace apus::nn
