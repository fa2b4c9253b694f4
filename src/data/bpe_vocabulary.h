#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus::data {

/// Largest id that is accepted: a file that names larger ones is broken, and would make us allocate for them.
inline constexpr int32_t kMaxTokenId = (1 << 24) - 1;

/// Names of tokens, by id and by name. Names lie in one buffer; the index is open addressing over it.
/// Memory: the names, 8 bytes an id, 24 to 48 bytes a token.
class Vocabulary final {
 public:
  /// Adds a token. A name that is there already gets the new id; an id that is there already gets the new
  /// name too. `id` must be 0 ... kMaxTokenId.
  void add(std::string_view name, int32_t id);

  /// Makes room for so many names.
  void reserve(size_t names);

  std::optional<int32_t> find(std::string_view name) const { return find(name, hash_of(name)); }

  /// The same in two steps, between which the name's place can be prefetched.
  static uint32_t hash_of(std::string_view name);
  const void* place_of(uint32_t hash) const {
    return slots_.empty() ? nullptr : &slots_[hash & (slots_.size() - 1)];
  }
  std::optional<int32_t> find(std::string_view name, uint32_t hash) const;

  /// Whether find(name) is `id`. Quick where names are asked for in the order of their ids.
  bool is_id_of(std::string_view name, int32_t id) const;

  bool has(int32_t id) const;
  /// The name of an id that is there.
  std::string_view name(int32_t id) const;

  /// Number of names.
  size_t size() const { return size_; }
  /// One more than the largest id.
  int32_t id_limit() const { return static_cast<int32_t>(names_.size()); }

 private:
  struct Name {
    uint32_t begin = 0;
    int32_t length = -1;  // -1: no such id
  };
  struct Slot {
    uint32_t name_begin = 0;
    uint32_t name_length = 0;
    int32_t id = -1;  // -1: free
    uint32_t hash = 0;
  };

  size_t slot_of(std::string_view name, uint32_t hash) const;
  void set_slots(size_t count);
  std::string_view text(const Slot& slot) const {
    return std::string_view(buffer_).substr(slot.name_begin, slot.name_length);
  }

  std::string buffer_;
  std::vector<Name> names_;
  std::vector<Slot> slots_;
  size_t size_ = 0;
  bool renumbered_ = false;  // some name got another id: its first one still has it
};

/// Byte-level BPE's spelling of bytes as printable characters (a space is U+0120), as GPT-2 defined it.
/// Appends the spelling.
void append_byte_level(std::string& out, std::string_view bytes);

/// The bytes that a token's name spells, or the name's own bytes if a character of it spells none.
std::string bytes_of_name(std::string_view name);

}  // namespace apus::data
