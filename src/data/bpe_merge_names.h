#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/bpe_vocabulary.h"

namespace apus::data {

/// A merge's two tokens and what they become.
struct MergeIds {
  int32_t left = -1;
  int32_t right = -1;
  int32_t whole = -1;
};

/// Pairs of names, in order of rank.
using NamedMerges = std::vector<std::pair<std::string_view, std::string_view>>;

/// The ids of merges given by names. `prefix` is left out of the right side of a merge's result.
/// Throws: DataError, with `source`, for a merge of names that the vocabulary lacks, or whose result it
/// lacks.
std::vector<MergeIds> find_merge_ids(const Vocabulary& vocabulary, const NamedMerges& merges,
                                     const std::string& prefix, const std::string& source);

}  // namespace apus::data
