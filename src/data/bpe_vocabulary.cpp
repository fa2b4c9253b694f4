#include "data/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "apus/base/error.h"
#include "apus/base/unicode.h"

namespace apus::data {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr char32_t kFirstStandIn = 256;

constexpr bool spells_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable Latin-1 bytes spell themselves, the other 68 take the characters from U+0100 on, in order.
constexpr std::array<char32_t, 256> kSpelling = [] {
  std::array<char32_t, 256> spelling{};
  char32_t next = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) spelling[byte] = spells_itself(byte) ? byte : next++;
  return spelling;
}();

constexpr size_t kSpellings = kFirstStandIn + 68;

constexpr std::array<int16_t, kSpellings> kSpelled = [] {
  std::array<int16_t, kSpellings> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kSpelling[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

size_t Vocabulary::slot_of(std::string_view name, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || text(slots_[at]) != name)) at = (at + 1) & mask;
  return at;
}

void Vocabulary::set_slots(size_t count) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(count, {});
  for (const Slot& slot : old)
    if (slot.id >= 0) slots_[slot_of(text(slot), slot.hash)] = slot;
}

void Vocabulary::reserve(size_t names) {
  const size_t count = std::max(kFirstSlots, std::bit_ceil(names + names / 2 + 1));
  if (count > slots_.size()) set_slots(count);
  names_.reserve(names);
}

void Vocabulary::add(std::string_view name, int32_t id) {
  APUS_ASSERT(id >= 0 && id <= kMaxTokenId, "token id ", id);
  if (slots_.size() < size_ + size_ / 2 + 2) set_slots(std::max(kFirstSlots, slots_.size() * 2));
  const uint32_t hash = hash_of(name);
  Slot& slot = slots_[slot_of(name, hash)];
  if (slot.id < 0) {
    slot.name_begin = static_cast<uint32_t>(buffer_.size());
    slot.name_length = static_cast<uint32_t>(name.size());
    slot.hash = hash;
    buffer_ += name;
    ++size_;
  } else if (slot.id != id) {
    renumbered_ = true;
  }
  slot.id = id;
  if (id >= id_limit()) names_.resize(static_cast<size_t>(id) + 1);
  names_[static_cast<size_t>(id)] = {slot.name_begin, static_cast<int32_t>(slot.name_length)};
}

uint32_t Vocabulary::hash_of(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(name));
}

std::optional<int32_t> Vocabulary::find(std::string_view name, uint32_t hash) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[slot_of(name, hash)].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Vocabulary::is_id_of(std::string_view wanted, int32_t id) const {
  if (renumbered_) return find(wanted) == id;
  return has(id) && name(id) == wanted;
}

bool Vocabulary::has(int32_t id) const {
  return id >= 0 && id < id_limit() && names_[static_cast<size_t>(id)].length >= 0;
}

std::string_view Vocabulary::name(int32_t id) const {
  const Name& name = names_[static_cast<size_t>(id)];
  return std::string_view(buffer_).substr(name.begin, static_cast<size_t>(name.length));
}

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, kSpelling[static_cast<unsigned char>(byte)]);
}

std::string bytes_of_name(std::string_view name) {
  std::string bytes;
  bytes.reserve(name.size());
  for (size_t at = 0; at < name.size();) {
    const Utf8Step step = decode_utf8(name, at);
    if (!step.valid || step.code_point >= kSpellings || kSpelled[step.code_point] < 0)
      return std::string(name);
    bytes += static_cast<char>(kSpelled[step.code_point]);
    at += step.length;
  }
  return bytes;
}

}  // namespace apus::data
