#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/normalize.h"

namespace apus::data {

/// A token that is looked for in the text itself, before the model sees it.
struct AddedToken {
  int32_t id = -1;
  std::string content;
  /// Matches only where no word character stands beside it.
  bool single_word = false;
  /// Takes the white space before it along.
  bool lstrip = false;
  /// Takes the white space after it along.
  bool rstrip = false;
  /// Looked for in the normalised text, with its content normalised too; else in the raw text.
  bool normalized = true;
  /// Left out when decoding without special tokens.
  bool special = false;
};

/// A part of a text: an added token's (id >= 0), or text between them (id -1).
struct TextPart {
  ByteRange range;
  int32_t id = -1;
};

/// Finds added tokens: at the leftmost place where one matches the longest that does.
class AddedTokenMatcher final {
 public:
  AddedTokenMatcher();

  /// Looks for `pattern` (a token's content, perhaps normalised) from now on; of two tokens with one pattern
  /// the first wins. An empty pattern is never found.
  void add(std::string_view pattern, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  /// Appends the parts of `text`, which has fewer than 2^32 bytes of valid UTF-8, in order; none is empty.
  /// White space that a token takes with rstrip may overlap a token that starts with white space, as in the
  /// tokenizers library.
  void split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Node {
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;
  };
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = -1;
  };

  Match find(std::string_view text, size_t from) const;
  Match longest_at(std::string_view text, size_t begin) const;
  size_t next_candidate(std::string_view text, size_t from) const;
  int32_t child(int32_t node, uint8_t byte) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_;
  int root_count_ = 0;
  char only_root_ = 0;
};

}  // namespace apus::data
