// How words start where the vocabulary spells characters: as SentencePiece's models do, and GPT-1's kind with
// prefixes and suffixes.
#include <array>

#include "apus/base/error.h"
#include "data/bpe.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

std::string byte_name(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

}  // namespace

// Ids of single bytes as the model spells them; where it spells characters, of ASCII ones.
void BpeModel::fill_byte_ids() {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    std::string name;
    if (options_.byte_level)
      append_byte_level(name, raw);
    else if (byte < 128)
      name = raw;
    byte_ids_[byte] = name.empty() ? -1 : vocabulary_.find(name).value_or(-1);
    fallback_ids_[byte] = vocabulary_.find(byte_name(static_cast<unsigned char>(byte))).value_or(-1);
  }
}

std::optional<int32_t> BpeModel::find_character(std::string_view name) const {
  if (name.size() != 1) return vocabulary_.find(name);
  const int32_t id = byte_ids_[static_cast<unsigned char>(name[0])];
  return id < 0 ? std::nullopt : std::optional(id);
}

int32_t BpeModel::unknown_id() const {
  if (!options_.missing_unk.empty())
    throw DataError(source_, 0,
                    "model.unk_token '" + options_.missing_unk +
                        "' is not in model.vocab, and the text has a character that it would stand for");
  return options_.unk_id.value_or(-1);
}

// Adds the tokens of a name's bytes, if the vocabulary has all of them.
bool BpeModel::add_fallback_bytes(std::string_view name, BpeScratch& scratch) const {
  const size_t before = scratch.parts.size();
  for (const char character : name) {
    const int32_t id = fallback_ids_[static_cast<unsigned char>(character)];
    if (id < 0) {
      scratch.parts.resize(before);
      return false;
    }
    scratch.parts.push_back({id, 1, {}, -1, -1});
  }
  return true;
}

// One part a character. An unk waits for the next known character, so bytes of a character that falls back
// come before it, and it may grow across them: the tokenizers library's order.
void BpeModel::start_characters(std::string_view word, BpeScratch& scratch) const {
  auto& parts = scratch.parts;
  parts.clear();
  BpeScratch::Part unknown;
  const auto flush = [&] {
    if (unknown.length > 0) parts.push_back(unknown);
    unknown = {};
  };
  const bool plain = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  for (size_t at = 0; at < word.size();) {
    const uint32_t length = code_point_at(word.data() + at).length;
    std::string_view name = word.substr(at, length);
    if (!plain) {
      scratch.name = at > 0 ? options_.continuing_subword_prefix : "";
      scratch.name += name;
      if (at + length == word.size()) scratch.name += options_.end_of_word_suffix;
      name = scratch.name;
    }
    at += length;
    if (const auto id = find_character(name)) {
      flush();
      parts.push_back({*id, length, {}, -1, -1});
      continue;
    }
    if (options_.byte_fallback && add_fallback_bytes(name, scratch)) continue;
    const int32_t unk = unknown_id();
    if (unk < 0) continue;
    if (unknown.length > 0 && !options_.fuse_unk) flush();
    unknown.id = unk;
    unknown.length += length;
  }
  flush();
  for (size_t i = 0; i + 1 < parts.size(); ++i) parts[i].next = merges_.find(parts[i].id, parts[i + 1].id);
}

}  // namespace apus::data
