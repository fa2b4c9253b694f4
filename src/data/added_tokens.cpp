#include "data/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "data/unicode_classes.h"

namespace apus::data {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  return is_word_character(code_point_at(code_point_before(text.data(), text.data() + text.size())).value);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_character(code_point_at(text.data()).value);
}

size_t without_trailing_space(std::string_view text) {
  const char* end = text.data() + text.size();
  while (end > text.data()) {
    const char* last = code_point_before(text.data(), end);
    if (!unicode_class(code_point_at(last).value).is_space()) break;
    end = last;
  }
  return static_cast<size_t>(end - text.data());
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = code_point_at(text.data() + at);
    if (!unicode_class(point.value).is_space()) break;
    at += point.length;
  }
  return at;
}

ByteRange range(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() {
  roots_.fill(-1);
}

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  int32_t node = -1;
  for (const char character : pattern) {
    const auto byte = static_cast<uint8_t>(character);
    int32_t next = node < 0 ? roots_[byte] : child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      int32_t& link = node < 0 ? roots_[byte] : nodes_[static_cast<size_t>(node)].first_child;
      const int32_t sibling = node < 0 ? -1 : link;
      link = next;
      if (node < 0) ++root_count_, only_root_ = character;
      nodes_.push_back({byte, -1, sibling, -1});
    }
    node = next;
  }
  int32_t& place = nodes_[static_cast<size_t>(node)].token;
  if (place >= 0) return;
  place = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenMatcher::child(int32_t node, uint8_t byte) const {
  int32_t next = nodes_[static_cast<size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte)
    next = nodes_[static_cast<size_t>(next)].next_sibling;
  return next;
}

size_t AddedTokenMatcher::next_candidate(std::string_view text, size_t from) const {
  if (root_count_ == 1) {
    const void* found = std::memchr(text.data() + from, only_root_, text.size() - from);
    return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
  }
  while (from < text.size() && roots_[static_cast<uint8_t>(text[from])] < 0) ++from;
  return from;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t begin) const {
  Match best{begin, begin, -1};
  int32_t node = roots_[static_cast<uint8_t>(text[begin])];
  for (size_t at = begin + 1; node >= 0; ++at) {
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) best = {begin, at, token};
    if (at >= text.size()) break;
    node = child(node, static_cast<uint8_t>(text[at]));
  }
  return best;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    at = next_candidate(text, at);
    if (at >= text.size()) break;
    const Match match = longest_at(text, at);
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

void AddedTokenMatcher::split(std::string_view text, std::vector<TextPart>& parts) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Match match = find(text, at);
    if (match.token < 0) break;
    at = match.end;
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    size_t begin = match.begin;
    size_t end = match.end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token.lstrip) begin = std::max(without_trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (end <= begin) continue;
    if (done < begin) parts.push_back({range(done, begin), -1});
    parts.push_back({range(begin, end), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({range(done, text.size()), -1});
}

}  // namespace apus::data
