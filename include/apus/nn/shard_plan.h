#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::nn {

/// How tensor or expert parallelism over n ranks cuts the parameters that a pattern names.
enum class ShardStyle {
  /// Every rank holds all of it.
  kReplicate,
  /// Output features are split: weight [out/n, in], bias [out/n].
  kColumn,
  /// Input features are split: weight [out, in/n]; the ranks' outputs are summed, the bias counts once.
  kRow,
  /// Vocabulary rows are split: weight [V/n, D].
  kVocab,
  /// Whole experts are distributed.
  kExpert,
  /// A replicated weight whose activations are split along the sequence, so its gradient is summed.
  kSequence,
};

/// One line of a plan: module paths that match get the style.
struct APUS_API ShardRule {
  /// A path with * for one component, e.g. "model.layers.*.mlp.down_proj"; see matches_path.
  std::string pattern;
  ShardStyle style = ShardStyle::kReplicate;
};

/// Whether a dotted path fits a pattern of as many components, in which * stands for any one of them.
APUS_API bool matches_path(std::string_view pattern, std::string_view path);

/// Sharding declared beside a model as plain data; it is applied from outside by parallel::parallelize.
struct APUS_API ShardPlan {
  /// The first match wins.
  std::vector<ShardRule> rules = {};

  /// The style for a module path (of the module, not of its parameters); kReplicate where no rule matches.
  ShardStyle style_of(const std::string& path) const;
};

}  // namespace apus::nn
