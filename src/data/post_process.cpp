#include "data/post_process.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/unicode.h"
#include "data/component_list.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;
using Item = PostPlan::Item;
// A post-processor turns a list of encodings into another one; ours hold tokens and stand-ins for the text.
using Segment = std::vector<Item>;

constexpr char32_t kSpelledSpace = 0x120;

int32_t token_id(const JsonView& view, const Json& value, const std::string& key) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMaxTokenId))
    throw DataError(view.source(), 0, view.path_of(key) + " has " + value.dump() + ", which is no token id");
  return value.get<int32_t>();
}

std::vector<int32_t> special_ids(const JsonView& view, const std::string& name) {
  const JsonView tokens = view.object("special_tokens");
  const auto ids = tokens.object(name).require<Json>("ids");
  if (!ids.is_array()) throw DataError(view.source(), 0, tokens.path_of(name) + ".ids is no array");
  std::vector<int32_t> out;
  for (const Json& id : ids) out.push_back(token_id(tokens, id, name));
  return out;
}

std::vector<Segment> apply_template(const JsonView& view, const std::vector<Segment>& segments,
                                    PostTokens tokens) {
  if (segments.empty() || segments.size() > 2)
    throw NotSupported(view.source() + ": " + view.path_of("type") + " 'TemplateProcessing' over " +
                       std::to_string(segments.size()) + " sequences is not supported");
  const std::string key = segments.size() == 1 ? "single" : "pair";
  const auto pieces = view.require<Json>(key);
  if (!pieces.is_array()) throw DataError(view.source(), 0, view.path_of(key) + " is no array");
  std::vector<Segment> out;
  for (const Json& entry : pieces) {
    const JsonView piece(entry, view.source(), view.path_of(key));
    if (piece.has("SpecialToken")) {
      const auto ids = special_ids(view, piece.object("SpecialToken").require<std::string>("id"));
      if (tokens == PostTokens::kNone) continue;
      out.emplace_back();
      for (const int32_t id : ids) out.back().push_back({id, {}});
      continue;
    }
    const auto sequence = piece.object("Sequence").require<std::string>("id");
    const size_t which = sequence == "A" ? 0 : 1;
    if ((sequence != "A" && sequence != "B") || which >= segments.size())
      throw DataError(view.source(), 0, view.path_of(key) + " has the sequence '" + sequence + "'");
    out.push_back(segments[which]);
  }
  return out;
}

int32_t named_id(const JsonView& view, const std::string& key) {
  const auto pair = view.require<Json>(key);
  if (!pair.is_array() || pair.size() != 2)
    throw DataError(view.source(), 0, view.path_of(key) + " is no pair of a token and its id");
  return token_id(view, pair[1], key);
}

// Both BERT's and RoBERTa's: cls and sep around the first; sep behind each other one, RoBERTa's also before.
void surround(const JsonView& view, std::vector<Segment>& segments, bool roberta) {
  const Item cls{named_id(view, "cls"), {}};
  const Item sep{named_id(view, "sep"), {}};
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i == 0 || roberta) segments[i].insert(segments[i].begin(), i == 0 ? cls : sep);
    segments[i].push_back(sep);
  }
}

void trim_all(const JsonView& view, std::vector<Segment>& segments) {
  if (!view.get_or("trim_offsets", true)) return;
  const bool keep = view.get_or("add_prefix_space", true);
  for (Segment& segment : segments)
    for (size_t i = 0; i < segment.size(); ++i)
      if (segment[i].id < 0) segment[i].trims.push_back({.keep_first_space = keep, .text_is_first = i == 0});
}

std::vector<Segment> run_step(const JsonView& view, std::vector<Segment> segments, PostTokens tokens) {
  const auto type = view.require<std::string>("type");
  if (type == "TemplateProcessing") return apply_template(view, segments, tokens);
  if (type == "ByteLevel" || type == "RobertaProcessing") trim_all(view, segments);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    if (tokens == PostTokens::kSpecial) surround(view, segments, type == "RobertaProcessing");
    return segments;
  }
  if (type != "ByteLevel")
    refuse_component(view, type,
                     "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence");
  return segments;
}

// The place of bytes in code points. What lies beyond the text stays as it is, in bytes.
class PlaceFinder {
 public:
  explicit PlaceFinder(std::string_view text) : before_(text.size()) {
    for (size_t i = 0; i < text.size(); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++count_;
      before_[i] = count_ - 1;
    }
  }

  TokenOffsets place(const TrackedToken& token) const {
    if (token.begin >= before_.size()) return {token.begin, token.end};
    const int64_t begin = before_[token.begin];
    if (token.end < before_.size()) return {begin, before_[token.end]};
    const bool inside = token.end > 0 && token.end - 1 < before_.size();
    return {begin, (inside ? before_[token.end - 1] : begin + 1) + 1};
  }

 private:
  std::vector<uint32_t> before_;
  uint32_t count_ = 0;
};

void trim_place(const TrackedToken& token, const Trim& trim, bool is_first, TokenOffsets& place) {
  int64_t leading = token.leading_spaces;
  const int64_t trailing = token.trailing_spaces;
  if ((is_first || place.begin == 0) && trim.keep_first_space && leading == 1) leading = 0;
  if (token.leading_spaces > 0) place.begin = std::min(place.begin + leading, place.end);
  if (trailing > 0 && place.end >= trailing) place.end = std::max(place.end - trailing, place.begin);
}

}  // namespace

void count_spaces(std::string_view name, TrackedToken& token) {
  const auto is_space = [](char32_t c) { return c == kSpelledSpace || unicode_class(c).is_space(); };
  token.leading_spaces = token.trailing_spaces = 0;
  for (size_t at = 0; at < name.size();) {
    const Utf8Step step = decode_utf8(name, at);
    if (!is_space(step.code_point)) break;
    ++token.leading_spaces;
    at += step.length;
  }
  for (const char* end = name.data() + name.size(); end > name.data();) {
    end = code_point_before(name.data(), end);
    if (!is_space(decode_utf8(name, static_cast<size_t>(end - name.data())).code_point)) break;
    ++token.trailing_spaces;
  }
}

void PostPlan::apply(std::vector<int32_t>& ids) const {
  const auto is_text = [](const Item& item) { return item.id < 0; };
  if (items.size() == 1 && is_text(items.front())) return;
  std::vector<int32_t> out;
  out.reserve(ids.size() + items.size());
  for (const Item& item : items) {
    if (is_text(item))
      out.insert(out.end(), ids.begin(), ids.end());
    else
      out.push_back(item.id);
  }
  ids = std::move(out);
}

Encoding PostPlan::apply(std::string_view text, std::span<const TrackedToken> tokens) const {
  const PlaceFinder finder(text);
  Encoding encoding;
  for (const Item& item : items) {
    if (item.id >= 0) {
      encoding.ids.push_back(item.id);
      encoding.offsets.emplace_back();
      continue;
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      TokenOffsets place = finder.place(tokens[i]);
      for (const Trim& trim : item.trims) trim_place(tokens[i], trim, i == 0 && trim.text_is_first, place);
      encoding.ids.push_back(tokens[i].id);
      encoding.offsets.push_back(place);
    }
  }
  return encoding;
}

PostPlan build_post_plan(const TokenizerJson& file, PostTokens tokens) {
  std::vector<Segment> segments = {{Item{}}};
  for (const JsonView& view : component_list(file, "post_processor", "processors"))
    segments = run_step(view, std::move(segments), tokens);
  PostPlan plan;
  for (Segment& segment : segments)
    for (Item& item : segment) plan.items.push_back(std::move(item));
  return plan;
}

}  // namespace apus::data
