#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/philox.h"
#include "apus/data/dataset.h"

namespace apus::data {

/// Texts of these lengths, all of their tokens trained; row i begins with token i.
inline std::shared_ptr<const SftDataset> make_texts(std::span<const int64_t> lengths,
                                                    std::string fingerprint = "f0") {
  std::vector<SftRow> rows;
  for (const int64_t length : lengths) {
    SftRow row{.input_ids = std::vector<int32_t>(static_cast<size_t>(length), 7)};
    row.input_ids[0] = static_cast<int32_t>(rows.size());
    row.labels = row.input_ids;
    row.place = {0, static_cast<int64_t>(rows.size()) + 1};
    rows.push_back(std::move(row));
  }
  return std::make_shared<SftDataset>(
      std::move(rows), DatasetOrigin{.files = {"a.jsonl"}, .fingerprint = std::move(fingerprint)});
}

/// Lengths from 1 to `longest`, short ones more often.
inline std::vector<int64_t> uneven_lengths(int64_t count, int64_t longest) {
  const PhiloxSequence random(11, "lengths");
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const double draw = random.uniform(static_cast<uint64_t>(i));
    lengths.push_back(1 + static_cast<int64_t>(draw * draw * static_cast<double>(longest)));
  }
  return lengths;
}

}  // namespace apus::data
