#include "data/bpe_merge_names.h"

#include <array>

#include "apus/base/error.h"

namespace apus::data {
namespace {

struct Hashes {
  uint32_t left = 0;
  uint32_t right = 0;
};

[[noreturn]] void fail_missing(std::string_view name, size_t rank, const std::string& source) {
  throw DataError(source, 0,
                  "merge " + std::to_string(rank) + " needs the token '" + std::string(name) +
                      "', which model.vocab does not have");
}

}  // namespace

std::vector<MergeIds> find_merge_ids(const Vocabulary& vocabulary, const NamedMerges& merges,
                                     const std::string& prefix, const std::string& source) {
  constexpr size_t kAhead = 16;  // merges between fetching names' places and looking there
  std::array<Hashes, kAhead> hashes;
  const auto fetch = [&](size_t rank) {
    if (rank >= merges.size()) return;
    const Hashes both = {Vocabulary::hash_of(merges[rank].first), Vocabulary::hash_of(merges[rank].second)};
    __builtin_prefetch(vocabulary.place_of(both.left));
    __builtin_prefetch(vocabulary.place_of(both.right));
    hashes[rank % kAhead] = both;
  };
  const auto id_of = [&](std::string_view name, uint32_t hash, size_t rank) {
    const auto id = vocabulary.find(name, hash);
    if (!id) fail_missing(name, rank, source);
    return *id;
  };
  std::vector<MergeIds> ids(merges.size());
  std::string whole;
  for (size_t rank = 0; rank < kAhead; ++rank) fetch(rank);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const Hashes both = hashes[rank % kAhead];
    fetch(rank + kAhead);
    if (right.size() < prefix.size())
      throw DataError(
          source, 0,
          "merge " + std::to_string(rank) + " has a right side without the prefix '" + prefix + "'");
    whole = left;
    whole += right.substr(prefix.size());
    const int32_t next = rank > 0 ? ids[rank - 1].whole + 1 : -1;  // most vocabularies go on like this
    const bool is_next = vocabulary.is_id_of(whole, next);
    const int32_t whole_id = is_next ? next : id_of(whole, Vocabulary::hash_of(whole), rank);
    ids[rank] = {id_of(left, both.left, rank), id_of(right, both.right, rank), whole_id};
  }
  return ids;
}

}  // namespace apus::data
