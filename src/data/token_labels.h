#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "apus/data/rows.h"
#include "data/row_encoding.h"

namespace apus::data {

/// A part of a text, in bytes, and what its tokens count.
struct LabelSpan {
  size_t begin = 0;
  size_t end = 0;
  float weight = 1.0f;
};

/// The bytes before rising places of a text that are counted in code points, in one pass.
class ByteCounter final {
 public:
  explicit ByteCounter(std::string_view text) : text_(text) {}
  /// Bytes before a code point, whose index must not be smaller than the last one asked for.
  size_t before(size_t code_point);

 private:
  std::string_view text_;
  size_t at_ = 0;
  size_t code_points_ = 0;
};

/// Labels tokens by the span that their first byte lies in; `elsewhere` is what the others count. Spans
/// ascend and do not overlap.
SftRow label_spans(PlacedTokens tokens, const std::vector<LabelSpan>& spans, float elsewhere);

/// Labels every token with one weight.
SftRow label_all(std::vector<int32_t> ids, float weight);

}  // namespace apus::data
