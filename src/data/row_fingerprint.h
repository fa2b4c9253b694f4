#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/hash.h"
#include "apus/data/rows.h"

namespace apus::data {

/// Adds a number to a fingerprint.
inline void add_number(Hash64& hash, int64_t number) {
  hash.update(std::to_string(number) + ";");
}

/// Adds a text to a fingerprint, so that two texts one after another cannot be taken for another pair.
inline void add_text(Hash64& hash, std::string_view text) {
  add_number(hash, static_cast<int64_t>(text.size()));
  hash.update(text);
}

/// Adds a list of numbers of 4 bytes to a fingerprint.
template <typename T>
void add_list(Hash64& hash, const std::vector<T>& values) {
  static_assert(sizeof(T) == 4);
  add_number(hash, static_cast<int64_t>(values.size()));
  hash.update(std::as_bytes(std::span(values)));
}

/// Adds what is trained of a row.
inline void add_row(Hash64& hash, const DpoRow& row) {
  add_list(hash, row.prompt_ids);
  add_list(hash, row.chosen_ids);
  add_list(hash, row.rejected_ids);
  add_number(hash, row.chosen_prompt_begin);
  add_number(hash, row.rejected_prompt_begin);
  if (row.margin) add_list(hash, std::vector<float>{*row.margin});
}

/// As above.
inline void add_row(Hash64& hash, const SftRow& row) {
  add_list(hash, row.input_ids);
  add_list(hash, row.labels);
  add_list(hash, row.weights);
  if (!row.channel.empty()) add_text(hash, row.channel);
}

}  // namespace apus::data
