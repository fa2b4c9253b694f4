#include "apus/data/packing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "apus/base/philox.h"
#include "apus/data/sampler.h"

namespace apus::data {
namespace {

/// Changes when the same options give other packs.
constexpr int kPackingVersion = 1;

struct Item {
  int64_t ordinal = 0;
  int64_t tokens = 0;
};

/// A pack being filled: places in the window.
using Pack = std::vector<size_t>;

void check(const PackingOptions& options) {
  APUS_CHECK(options.packing_length > 0, ConfigError, "packing_length is ", options.packing_length,
             ", expected 1 or more");
  APUS_CHECK(options.max_length >= 0, ConfigError, "max_length is ", options.max_length,
             ", expected 0 or more");
  APUS_CHECK(options.max_length <= options.packing_length, ConfigError, "packing_length ",
             options.packing_length, " is below max_length ", options.max_length,
             ": a whole row may not fit; raise --packing_length or lower --max_length");
  APUS_CHECK(options.window > 0, ConfigError, "packing window is ", options.window, ", expected 1 or more");
}

/// Places in the window, the longest row first; equal ones in their own order.
std::vector<size_t> longest_first(const std::vector<Item>& window) {
  std::vector<size_t> places(window.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return window[a].tokens > window[b].tokens; });
  return places;
}

/// Best fit, decreasing. A pack's rows, and the packs by their first rows, are in the order of the window.
std::vector<Pack> pack_window(const std::vector<Item>& window, int64_t length) {
  std::vector<Pack> packs;
  std::multimap<int64_t, size_t> open;  // room left -> pack
  for (const size_t place : longest_first(window)) {
    const int64_t tokens = window[place].tokens;
    const auto fit = open.lower_bound(tokens);
    size_t pack = packs.size();
    int64_t room = length;
    if (fit == open.end()) {
      packs.emplace_back();
    } else {
      std::tie(room, pack) = *fit;
      open.erase(fit);
    }
    packs[pack].push_back(place);
    if (room > tokens) open.emplace(room - tokens, pack);
  }
  for (Pack& pack : packs) std::sort(pack.begin(), pack.end());
  std::sort(packs.begin(), packs.end());
  return packs;
}

std::string extended_fingerprint(const std::string& inner, const PackingOptions& options) {
  return to_hex(hash64(detail::concat(inner, "|packing ", kPackingVersion, "|", options.packing_length, "|",
                                      options.seed, "|", options.shuffle ? 1 : 0, "|", options.window)));
}

std::string describe(const PackingReport& report, const PackingOptions& options) {
  const auto tenths = std::lround(1000.0 * report.efficiency());
  std::string text =
      detail::concat("packed ", report.rows, " rows into ", report.packs, " packs of ",
                     options.packing_length, " tokens, ", tenths / 10, ".", tenths % 10, " % full");
  if (report.oversized > 0)
    text += detail::concat(", ", report.oversized, " longer rows in packs of their own");
  return text;
}

}  // namespace

double PackingReport::efficiency() const {
  return capacity == 0 ? 1.0 : static_cast<double>(tokens) / static_cast<double>(capacity);
}

PackedDataset::PackedDataset(std::shared_ptr<const Dataset> rows, const PackingOptions& options)
    : rows_(std::move(rows)), begins_{0}, origin_(rows_->origin()) {
  check(options);
  const std::vector<int64_t> order = Sampler({.rows = rows_->size(),
                                              .seed = philox_key(options.seed, "data/packing"),
                                              .shuffle = options.shuffle})
                                         .order(0);
  ordinals_.reserve(order.size());
  for (size_t first = 0; first < order.size();) {
    const size_t count = std::min(order.size() - first, static_cast<size_t>(options.window));
    add_window(std::span(order).subspan(first, count), options.packing_length);
    first += count;
  }
  report_.rows = static_cast<int64_t>(ordinals_.size());
  report_.packs = static_cast<int64_t>(tokens_.size());
  origin_.fingerprint = extended_fingerprint(origin_.fingerprint, options);
  origin_.note += (origin_.note.empty() ? "" : "; ") + describe(report_, options);
}

void PackedDataset::add_window(std::span<const int64_t> ordinals, int64_t packing_length) {
  std::vector<Item> window;
  for (const int64_t ordinal : ordinals) window.push_back({ordinal, rows_->tokens(ordinal)});
  for (const Pack& pack : pack_window(window, packing_length)) {
    int64_t tokens = 0;
    for (const size_t place : pack) {
      ordinals_.push_back(window[place].ordinal);
      tokens += window[place].tokens;
    }
    begins_.push_back(static_cast<int64_t>(ordinals_.size()));
    tokens_.push_back(tokens);
    report_.tokens += tokens;
    report_.capacity += std::max(tokens, packing_length);
    if (tokens > packing_length) ++report_.oversized;
  }
}

PackedDataset::~PackedDataset() = default;

std::span<const int64_t> PackedDataset::rows_of(int64_t pack) const {
  APUS_CHECK(pack >= 0 && pack < size(), ShapeError, "pack ", pack, " is outside the dataset of ", size(),
             " packs");
  const auto at = static_cast<size_t>(pack);
  return std::span(ordinals_).subspan(static_cast<size_t>(begins_[at]),
                                      static_cast<size_t>(begins_[at + 1] - begins_[at]));
}

RowPlace PackedDataset::place(int64_t ordinal) const {
  return rows_->place(rows_of(ordinal).front());
}

int64_t PackedDataset::tokens(int64_t ordinal) const {
  rows_of(ordinal);
  return tokens_[static_cast<size_t>(ordinal)];
}

int64_t PackedDataset::rows_in(int64_t ordinal) const {
  return static_cast<int64_t>(rows_of(ordinal).size());
}

double PackedDataset::squared_tokens(int64_t ordinal) const {
  double sum = 0;
  for (const int64_t row : rows_of(ordinal)) sum += rows_->squared_tokens(row);
  return sum;
}

}  // namespace apus::data
