#include "apus/data/rows.h"

#include <algorithm>

namespace apus::data {

int64_t DpoRow::chosen_length() const {
  return static_cast<int64_t>(prompt_ids.size() + chosen_ids.size()) - chosen_prompt_begin;
}

int64_t DpoRow::rejected_length() const {
  return static_cast<int64_t>(prompt_ids.size() + rejected_ids.size()) - rejected_prompt_begin;
}

int64_t SftRow::trained_tokens() const {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(),
                       [](int32_t label) { return label != kIgnoredLabel; });
}

}  // namespace apus::data
