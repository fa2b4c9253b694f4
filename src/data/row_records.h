#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apus/data/rows.h"

namespace apus::data {

/// Appends a row as 32-bit words, in the layout of docs/design/data.md; its place is not among them.
/// Throws:  ShapeError if labels or weights are not as long as the ids, or there is no id.
void append_record(const SftRow& row, std::vector<uint32_t>& words);
/// As above.
void append_record(const DpoRow& row, std::vector<uint32_t>& words);

/// Reads a row back; false if the words are none.
bool read_record(std::span<const uint32_t> words, SftRow& row);
/// As above.
bool read_record(std::span<const uint32_t> words, DpoRow& row);

/// Tokens of all sequences of a row.
inline int64_t tokens_of(const SftRow& row) {
  return row.length();
}
/// As above.
inline int64_t tokens_of(const DpoRow& row) {
  return row.chosen_length() + row.rejected_length();
}

}  // namespace apus::data
