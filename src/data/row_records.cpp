#include "data/row_records.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "apus/base/error.h"

namespace apus::data {
namespace {

/// What the labels of a run are.
enum RunKind : uint32_t {
  kIgnored = 0,   // kIgnoredLabel
  kSameAsId = 1,  // the token itself
  kListed = 2,    // they follow the ids
};
constexpr uint32_t kKindBits = 2;
constexpr uint32_t kMaxRun = (uint32_t{1} << (32 - kKindBits)) - 1;
constexpr uint32_t kHasWeights = 1;
constexpr uint32_t kHasChannel = 2;
constexpr uint32_t kHasMargin = 1;

RunKind kind_of(int32_t id, int32_t label) {
  if (label == kIgnoredLabel) return kIgnored;
  return label == id ? kSameAsId : kListed;
}

template <typename T>
void append_all(std::span<const T> values, std::vector<uint32_t>& words) {
  for (const T value : values) words.push_back(std::bit_cast<uint32_t>(value));
}

/// A text: its bytes' number, then the bytes in whole words.
void append_text(const std::string& text, std::vector<uint32_t>& words) {
  words.push_back(static_cast<uint32_t>(text.size()));
  const size_t begin = words.size();
  words.resize(begin + (text.size() + sizeof(uint32_t) - 1) / sizeof(uint32_t));
  std::memcpy(words.data() + begin, text.data(), text.size());
}

/// Takes words off the front of a record; after an overrun everything it gives is empty.
class WordReader {
 public:
  explicit WordReader(std::span<const uint32_t> words) : words_(words) {}

  uint32_t one() {
    const auto word = take(1);
    return word.empty() ? 0 : word[0];
  }
  std::span<const uint32_t> take(size_t count) {
    if (count > words_.size()) {
      overrun_ = true;
      words_ = {};
      return {};
    }
    const auto front = words_.first(count);
    words_ = words_.subspan(count);
    return front;
  }
  template <typename T>
  void copy(size_t count, std::vector<T>& out) {
    const auto words = take(count);
    out.resize(words.size());
    std::ranges::transform(words, out.begin(), [](uint32_t word) { return std::bit_cast<T>(word); });
  }
  std::string text() {
    const size_t bytes = one();
    const auto words = take((bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t));
    return words.empty() ? std::string() : std::string(reinterpret_cast<const char*>(words.data()), bytes);
  }
  /// Whether every word was taken, and none too many.
  bool is_exact() const { return !overrun_ && words_.empty(); }

 private:
  std::span<const uint32_t> words_;
  bool overrun_ = false;
};

/// One label run after another; false if they do not cover the ids, or the listed labels are too few.
bool fill_labels(std::span<const uint32_t> runs, std::span<const int32_t> listed, SftRow& row) {
  size_t at = 0;
  row.labels.reserve(row.input_ids.size());
  for (const uint32_t run : runs) {
    const size_t count = run >> kKindBits;
    if (count > row.input_ids.size() - at) return false;
    const uint32_t kind = run & ((1u << kKindBits) - 1);
    const auto ids = std::span<const int32_t>(row.input_ids).subspan(at, count);
    if (kind == kIgnored) {
      row.labels.insert(row.labels.end(), count, kIgnoredLabel);
    } else if (kind == kSameAsId) {
      row.labels.insert(row.labels.end(), ids.begin(), ids.end());
    } else {
      if (kind != kListed || count > listed.size()) return false;
      row.labels.insert(row.labels.end(), listed.begin(),
                        listed.begin() + static_cast<std::ptrdiff_t>(count));
      listed = listed.subspan(count);
    }
    at += count;
  }
  return at == row.input_ids.size() && listed.empty();
}

}  // namespace

void append_record(const SftRow& row, std::vector<uint32_t>& words) {
  const size_t size = row.input_ids.size();
  APUS_CHECK(size > 0 && row.labels.size() == size && (row.weights.empty() || row.weights.size() == size),
             ShapeError, "a row has ", size, " ids, ", row.labels.size(), " labels and ", row.weights.size(),
             " weights, expected equally many (or no weights) and at least one id");
  std::vector<uint32_t> runs;
  std::vector<int32_t> listed;
  for (size_t i = 0; i < size; ++i) {
    const RunKind kind = kind_of(row.input_ids[i], row.labels[i]);
    const bool goes_on = !runs.empty() && (runs.back() & 3) == kind && (runs.back() >> kKindBits) < kMaxRun;
    if (!goes_on) runs.push_back(kind);
    runs.back() += 1u << kKindBits;
    if (kind == kListed) listed.push_back(row.labels[i]);
  }
  words.push_back(static_cast<uint32_t>(size));
  words.push_back(static_cast<uint32_t>(runs.size()));
  words.push_back(static_cast<uint32_t>(listed.size()));
  words.push_back((row.weights.empty() ? 0 : kHasWeights) | (row.channel.empty() ? 0 : kHasChannel));
  words.insert(words.end(), runs.begin(), runs.end());
  append_all<int32_t>(row.input_ids, words);
  append_all<int32_t>(listed, words);
  append_all<float>(row.weights, words);
  if (!row.channel.empty()) append_text(row.channel, words);
}

bool read_record(std::span<const uint32_t> words, SftRow& row) {
  WordReader reader(words);
  const uint32_t size = reader.one(), run_count = reader.one(), listed_count = reader.one(),
                 flags = reader.one();
  const auto runs = reader.take(run_count);
  std::vector<int32_t> listed;
  reader.copy(size, row.input_ids);
  reader.copy(listed_count, listed);
  if (flags & kHasWeights) reader.copy(size, row.weights);
  if (flags & kHasChannel) row.channel = reader.text();
  return reader.is_exact() && flags <= (kHasWeights | kHasChannel) && size > 0 &&
         fill_labels(runs, listed, row);
}

void append_record(const DpoRow& row, std::vector<uint32_t>& words) {
  words.push_back(static_cast<uint32_t>(row.prompt_ids.size()));
  words.push_back(static_cast<uint32_t>(row.chosen_ids.size()));
  words.push_back(static_cast<uint32_t>(row.rejected_ids.size()));
  words.push_back(static_cast<uint32_t>(row.chosen_prompt_begin));
  words.push_back(static_cast<uint32_t>(row.rejected_prompt_begin));
  words.push_back(row.margin ? kHasMargin : 0);
  words.push_back(std::bit_cast<uint32_t>(row.margin.value_or(0.0f)));
  append_all<int32_t>(row.prompt_ids, words);
  append_all<int32_t>(row.chosen_ids, words);
  append_all<int32_t>(row.rejected_ids, words);
}

bool read_record(std::span<const uint32_t> words, DpoRow& row) {
  WordReader reader(words);
  const uint32_t prompt = reader.one(), chosen = reader.one(), rejected = reader.one();
  row.chosen_prompt_begin = static_cast<int32_t>(reader.one());
  row.rejected_prompt_begin = static_cast<int32_t>(reader.one());
  const uint32_t flags = reader.one();
  const auto margin = std::bit_cast<float>(reader.one());
  if (flags & kHasMargin) row.margin = margin;
  reader.copy(prompt, row.prompt_ids);
  reader.copy(chosen, row.chosen_ids);
  reader.copy(rejected, row.rejected_ids);
  const auto begins_inside = [&](int32_t begin) {
    return begin >= 0 && begin <= static_cast<int64_t>(prompt);
  };
  return reader.is_exact() && flags <= kHasMargin && begins_inside(row.chosen_prompt_begin) &&
         begins_inside(row.rejected_prompt_begin);
}

}  // namespace apus::data
