#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "apus/base/error.h"

namespace apus::data {
namespace {

// Of characters, or with places: up to here scanning for the best pair beats a heap.
constexpr size_t kShortWord = 48;
constexpr size_t kFilterBitsPerMerge = 12;

}  // namespace

MergeTable::MergeTable(size_t count, int32_t id_limit)
    : is_narrow_(id_limit <= 1 << kNarrowIdBits && count < (size_t{1} << kNarrowRankBits) - 1),
      mask_(std::bit_ceil(count + count / 2 + 16) - 1),
      narrow_slots_(is_narrow_ ? mask_ + 1 : 0, kFree),
      wide_slots_(is_narrow_ ? 0 : mask_ + 1),
      results_(count, -1),
      filter_(std::bit_ceil((count + 16) * kFilterBitsPerMerge) / 64),
      filter_shift_(64 - std::countr_zero(filter_.size() * 64)) {}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  APUS_ASSERT(merge.rank < results_.size(), "rank ", merge.rank, " of ", results_.size());
  const uint64_t pair = pair_of(left, right);
  const uint64_t hash = mix(pair);
  const uint64_t bit = hash >> filter_shift_;
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  results_[merge.rank] = merge.id;
  const int32_t offset = merge.id - static_cast<int32_t>(merge.rank);
  if (is_empty_) results_offset_ = offset;
  is_empty_ = false;
  results_follow_ = results_follow_ && offset == results_offset_;
  size_t at = hash & mask_;
  if (is_narrow_) {
    const uint64_t wanted = narrow(pair);
    while (narrow_slots_[at] != kFree && narrow_slots_[at] >> kNarrowRankBits != wanted >> kNarrowRankBits)
      at = (at + 1) & mask_;
    narrow_slots_[at] = wanted | merge.rank;
    return;
  }
  while (wide_slots_[at].pair != kFree && wide_slots_[at].pair != pair) at = (at + 1) & mask_;
  wide_slots_[at] = {pair, merge.rank};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return {};
  if (is_narrow_ && (left | right) >> kNarrowIdBits != 0) return {};
  const uint32_t rank = rank_at(place_of(left, right));
  return rank == kNone ? Merge{} : Merge{rank, result_of(rank)};
}

BpeModel::BpeModel(Vocabulary vocabulary, const NamedMerges& merges, BpeOptions options,
                   const std::string& source)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      merges_(merges.size(), vocabulary_.id_limit()),
      byte_pairs_(1 << 16),
      source_(source) {
  const std::vector<MergeIds> ids =
      find_merge_ids(vocabulary_, merges, options_.continuing_subword_prefix, source);
  constexpr size_t kAhead = 16;
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    const MergeIds& ahead = ids[std::min(rank + kAhead, ids.size() - 1)];
    merges_.place_of(ahead.left, ahead.right);  // fetches it
    const MergeIds& merge = ids[rank];
    merges_.add(merge.left, merge.right, {static_cast<uint32_t>(rank), merge.whole});
  }
  fill_byte_ids();
  splits_before_marks_ = may_split_before_marks(ids);
  scans_bytes_ = options_.byte_level && merges_.is_narrow() &&
                 std::ranges::all_of(byte_ids_, [](int32_t id) { return id >= 0; });
  for (size_t pair = 0; options_.byte_level && pair < byte_pairs_.size(); ++pair)
    byte_pairs_[pair] = merges_.find(byte_ids_[pair >> 8], byte_ids_[pair & 255]).rank;
}

bool BpeModel::may_split_before_marks(const std::vector<MergeIds>& merges) const {
  // Words taken whole may be any; a mark that is no token could join unknown characters; and what is left out
  // moves the places of a word's tokens.
  if (options_.byte_level || !options_.unk_id || options_.ignore_merges || !options_.whole_words.empty() ||
      !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty() ||
      !vocabulary_.find(kMark))
    return false;
  return std::ranges::none_of(merges, [this](const MergeIds& merge) {
    std::string_view name = vocabulary_.name(merge.whole);
    while (name.starts_with(kMark)) name.remove_prefix(kMark.size());
    return name.find(kMark) != std::string_view::npos;
  });
}

void BpeModel::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  const ByteRange whole{0, static_cast<uint32_t>(word.size())};
  encode_words(word, {&whole, 1}, scratch, ids);
}

bool BpeModel::find_whole(std::string_view word, BpeScratch& scratch) const {
  scratch.symbols.clear();
  if (!options_.ignore_merges && !std::ranges::binary_search(options_.whole_words, word)) return false;
  scratch.name.clear();
  if (options_.byte_level)
    append_byte_level(scratch.name, word);
  else
    scratch.name = word;
  const auto id = vocabulary_.find(scratch.name);
  if (id) scratch.symbols.push_back({*id, static_cast<uint32_t>(word.size())});
  return id.has_value();
}

const std::vector<BpeSymbol>& BpeModel::encode_symbols(std::string_view word, BpeScratch& scratch) const {
  if (find_whole(word, scratch)) return scratch.symbols;
  if (options_.byte_level)
    start_parts(word, scratch);
  else
    start_characters(word, scratch);
  if (scratch.parts.size() <= kShortWord)
    merge_short(scratch);
  else
    merge_long(scratch);
  return scratch.symbols;
}

// One part a byte. The last part's `next` has no rank.
void BpeModel::start_parts(std::string_view word, BpeScratch& scratch) const {
  auto& parts = scratch.parts;
  const auto rule_of = [this](uint32_t rank) {
    return rank == MergeTable::kNone ? MergeTable::Merge{} : MergeTable::Merge{rank, merges_.result_of(rank)};
  };
  parts.clear();
  bool after_unknown = false;
  bool all_known = true;
  for (const char character : word) {
    int32_t id = byte_ids_[static_cast<unsigned char>(character)];
    const bool unknown = id < 0;
    all_known = all_known && !unknown;
    if (unknown) id = unknown_id();
    if (id < 0) continue;
    if (unknown && options_.fuse_unk && after_unknown) {
      ++parts.back().length;
      continue;
    }
    after_unknown = unknown;
    parts.push_back({id, 1, {}, -1, -1});
  }
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (all_known)
      parts[i].next = rule_of(byte_pairs_[static_cast<size_t>(static_cast<unsigned char>(word[i])) << 8 |
                                          static_cast<unsigned char>(word[i + 1])]);
    else
      parts[i].next = merges_.find(parts[i].id, parts[i + 1].id);
  }
}

void BpeModel::merge_short(BpeScratch& scratch) const {
  auto& parts = scratch.parts;
  size_t count = parts.size();
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (parts[i].next.rank < parts[best].next.rank) best = i;
    if (parts[best].next.rank == MergeTable::kNone) break;
    parts[best].id = parts[best].next.id;
    parts[best].length += parts[best + 1].length;
    std::copy(parts.begin() + static_cast<ptrdiff_t>(best) + 2, parts.begin() + static_cast<ptrdiff_t>(count),
              parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    --count;
    parts[best].next =
        best + 1 < count ? merges_.find(parts[best].id, parts[best + 1].id) : MergeTable::Merge{};
    if (best > 0) parts[best - 1].next = merges_.find(parts[best - 1].id, parts[best].id);
  }
  for (size_t i = 0; i < count; ++i) scratch.symbols.push_back({parts[i].id, parts[i].length});
}

// The same with a heap of pairs over a linked list; entries whose pair has changed since are passed over.
void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& parts = scratch.parts;
  auto& heap = scratch.heap;
  const auto at = [&parts](int32_t i) -> BpeScratch::Part& { return parts[static_cast<size_t>(i)]; };
  heap.clear();
  const auto count = static_cast<int32_t>(parts.size());
  for (int32_t i = 0; i < count; ++i) {
    at(i).left = i - 1;
    at(i).right = i + 1 < count ? i + 1 : -1;
    if (at(i).next.rank != MergeTable::kNone) heap.push_back({at(i).next.rank, i});
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto update = [&](int32_t i) {
    at(i).next = at(i).right >= 0 ? merges_.find(at(i).id, at(at(i).right).id) : MergeTable::Merge{};
    if (at(i).next.rank == MergeTable::kNone) return;
    heap.push_back({at(i).next.rank, i});
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const BpeScratch::Candidate best = heap.back();
    heap.pop_back();
    BpeScratch::Part& part = at(best.part);
    if (part.length == 0 || part.next.rank != best.rank) continue;
    BpeScratch::Part& gone = at(part.right);
    part.id = part.next.id;
    part.length += gone.length;
    part.right = gone.right;
    gone.length = 0;
    if (part.right >= 0) at(part.right).left = best.part;
    update(best.part);
    if (part.left >= 0) update(part.left);
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = at(i).right)
    scratch.symbols.push_back({at(i).id, at(i).length});
}

}  // namespace apus::data
