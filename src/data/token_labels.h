#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "apus/data/rows.h"
#include "data/row_encoding.h"

namespace apus::data {

/// A part of a text, in code points, and what its tokens count.
struct LabelSpan {
  int64_t begin = 0;
  int64_t end = 0;
  float weight = 1.0f;
};

/// Code points before rising places of a text, in one pass.
class CodePointCounter final {
 public:
  explicit CodePointCounter(std::string_view text) : text_(text) {}
  /// Code points before the byte, which must not be smaller than the last one asked for.
  int64_t before(size_t byte);

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t count_ = 0;
};

/// Labels tokens by the span that their first byte lies in; `elsewhere` is what the others count. Spans
/// ascend and do not overlap.
SftRow label_spans(PlacedTokens tokens, const std::vector<LabelSpan>& spans, float elsewhere);

/// Labels every token with one weight.
SftRow label_all(std::vector<int32_t> ids, float weight);

}  // namespace apus::data
