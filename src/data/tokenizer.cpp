#include "apus/data/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/unicode.h"
#include "data/tokenizer_parts.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

// Positions inside a text are 32 bits wide.
constexpr size_t kMaxTextBytes = UINT32_MAX - 1024;

// What one call works in; calls take one from the pool, so that words stay cached between them.
struct Workspace {
  BpeScratch bpe;
  Pieces pieces;
  std::vector<TextPart> raw_parts;
  std::vector<TextPart> parts;
};

class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }

  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

class Lease {
 public:
  explicit Lease(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
  ~Lease() { pool_.give_back(std::move(workspace_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() const { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

// A token on its way to an Encoding: bytes of the original text, and white space on both sides of its own
// text.
struct TrackedToken {
  int32_t id = -1;
  ByteRange origin;
  int leading_spaces = 0;
  int trailing_spaces = 0;
};

void count_spaces(std::string_view text, TrackedToken& token) {
  const auto is_space = [](std::string_view rest, size_t at) {
    return unicode_class(decode_utf8(rest, at).code_point).is_space();
  };
  size_t at = 0;
  while (at < text.size() && is_space(text, at)) {
    ++token.leading_spaces;
    at += decode_utf8(text, at).length;
  }
  const char* end = text.data() + text.size();
  while (end > text.data()) {
    const char* last = code_point_before(text.data(), end);
    if (!is_space(text, static_cast<size_t>(last - text.data()))) break;
    ++token.trailing_spaces;
    end = last;
  }
}

// The same for a byte-level token: a word's bytes may be half a character, and only 0x20 is spelt as a space.
void count_space_bytes(std::string_view bytes, TrackedToken& token) {
  const size_t first = bytes.find_first_not_of(' ');
  const auto size = static_cast<int>(bytes.size());
  token.leading_spaces = first == std::string_view::npos ? size : static_cast<int>(first);
  const size_t last = bytes.find_last_not_of(' ');
  token.trailing_spaces = last == std::string_view::npos ? size : size - 1 - static_cast<int>(last);
}

}  // namespace

struct Tokenizer::State {
  std::string source;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<BpeModel> model;
  std::vector<PostStep> post_steps;

  std::vector<AddedToken> added;
  std::unordered_map<std::string, int32_t> added_ids;
  std::unordered_map<int32_t, std::string> added_names;
  // What a token decodes to: its content as it is looked for, so normalised where the token is.
  std::unordered_map<int32_t, std::string> added_texts;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;

  // By id: the bytes a token decodes to, and whether it is special.
  std::string decoded;
  std::vector<ByteRange> decoded_ranges;
  std::vector<bool> special;

  mutable WorkspacePool pool;

  void add_tokens();
  void fill_decoder();
  void check_text(std::string_view text) const;
  void append_bytes(std::span<const int32_t> ids, DecodeOptions options, std::string& out) const;

  // Ids without places.
  void encode_text(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;
  void encode_part(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;

  // Ids with places.
  void track_text(std::string_view text, Workspace& work, std::vector<TrackedToken>& tokens) const;
  void track_part(const AlignedText& text, Workspace& work, std::vector<TrackedToken>& tokens) const;
  void track_words(const AlignedText& text, ByteRange range, Workspace& work,
                   std::vector<TrackedToken>& tokens) const;
  Encoding finish(std::string_view text, const std::vector<TrackedToken>& tokens,
                  EncodeOptions options) const;
};

void Tokenizer::State::add_tokens() {
  for (const AddedToken& token : added) {
    added_ids[token.content] = token.id;
    added_names[token.id] = token.content;
  }
  for (const AddedToken& token : added) {
    AlignedText content{token.content, false, {}};
    if (token.normalized && normalizer) normalizer->apply(content);
    (token.normalized ? normalized_matcher : raw_matcher).add(content.text, token);
    added_texts[token.id] = std::move(content.text);
  }
}

void Tokenizer::State::fill_decoder() {
  int32_t limit = model->vocabulary().id_limit();
  for (const AddedToken& token : added) limit = std::max(limit, token.id + 1);
  special.assign(static_cast<size_t>(limit), false);
  decoded_ranges.resize(static_cast<size_t>(limit));
  for (int32_t id = 0; id < limit; ++id) {
    const auto content = added_texts.find(id);
    const auto begin = static_cast<uint32_t>(decoded.size());
    if (content != added_texts.end())
      decoded += bytes_of_name(content->second);
    else if (model->vocabulary().has(id))
      decoded += bytes_of_name(model->vocabulary().name(id));
    decoded_ranges[static_cast<size_t>(id)] = {begin, static_cast<uint32_t>(decoded.size())};
  }
  for (const AddedToken& token : added)
    if (token.special) special[static_cast<size_t>(token.id)] = true;
}

void Tokenizer::State::check_text(std::string_view text) const {
  if (text.size() > kMaxTextBytes)
    throw DataError("text", 0,
                    "has " + std::to_string(text.size()) + " bytes; at most " +
                        std::to_string(kMaxTextBytes) + " can be tokenized at once");
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size())
    throw DataError("text", 0,
                    "is not valid UTF-8 at byte " + std::to_string(valid) +
                        "; convert it to UTF-8, or replace what is invalid before");
}

void Tokenizer::State::encode_text(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  work.raw_parts.clear();
  raw_matcher.split(text, work.raw_parts);
  for (const TextPart& part : work.raw_parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    const std::string_view raw = text.substr(part.range.begin, part.range.end - part.range.begin);
    if (!normalizer || normalizer->keeps(raw)) {
      encode_part(raw, work, ids);
      continue;
    }
    AlignedText normal{std::string(raw), false, {}};
    normalizer->apply(normal);
    encode_part(normal.text, work, ids);
  }
}

void Tokenizer::State::encode_part(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  work.parts.clear();
  normalized_matcher.split(text, work.parts);
  for (const TextPart& part : work.parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    work.pieces.reset(text.substr(part.range.begin, part.range.end - part.range.begin), nullptr);
    pre_tokenizer->apply(work.pieces);
    for (const ByteRange& range : work.pieces.ranges) model->encode(work.pieces.piece(range), work.bpe, ids);
  }
}

void Tokenizer::State::track_text(std::string_view text, Workspace& work,
                                  std::vector<TrackedToken>& tokens) const {
  work.raw_parts.clear();
  raw_matcher.split(text, work.raw_parts);
  for (const TextPart& part : work.raw_parts) {
    const std::string_view raw = text.substr(part.range.begin, part.range.end - part.range.begin);
    if (part.id >= 0) {
      tokens.push_back({part.id, part.range});
      count_spaces(raw, tokens.back());
      continue;
    }
    AlignedText normal = AlignedText::track(raw, part.range.begin);
    if (normalizer) normalizer->apply(normal);
    track_part(normal, work, tokens);
  }
}

void Tokenizer::State::track_part(const AlignedText& text, Workspace& work,
                                  std::vector<TrackedToken>& tokens) const {
  work.parts.clear();
  normalized_matcher.split(text.text, work.parts);
  for (const TextPart& part : work.parts) {
    if (part.id < 0) {
      track_words(text, part.range, work, tokens);
      continue;
    }
    const ByteRange origin{text.origin[part.range.begin].begin, text.origin[part.range.end - 1].end};
    tokens.push_back({part.id, origin});
    count_spaces(std::string_view(text.text).substr(part.range.begin, part.range.end - part.range.begin),
                 tokens.back());
  }
}

void Tokenizer::State::track_words(const AlignedText& text, ByteRange range, Workspace& work,
                                   std::vector<TrackedToken>& tokens) const {
  const auto first = text.origin.begin();
  const std::vector<ByteRange> origin(first + range.begin, first + range.end);
  Pieces& pieces = work.pieces;
  pieces.reset(std::string_view(text.text).substr(range.begin, range.end - range.begin), &origin);
  pre_tokenizer->apply(pieces);
  for (const ByteRange& piece : pieces.ranges) {
    uint32_t at = piece.begin;
    for (const BpeSymbol& symbol : model->encode_symbols(pieces.piece(piece), work.bpe)) {
      const uint32_t end = at + symbol.length;
      tokens.push_back({symbol.id, {(*pieces.origin)[at].begin, (*pieces.origin)[end - 1].end}});
      count_space_bytes(pieces.text.substr(at, symbol.length), tokens.back());
      at = end;
    }
  }
}

namespace {

// Cuts the white space at a token's ends off its place. The first token may keep one space that was put
// before it.
void trim(std::span<const TrackedToken> tokens, const PostStep& step, std::vector<TokenOffsets>& offsets) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    int64_t leading = tokens[i].leading_spaces;
    const int64_t trailing = tokens[i].trailing_spaces;
    const bool is_first = i == 0 || offsets[i].begin == 0;
    if (is_first && step.keep_first_space && leading == 1) leading = 0;
    offsets[i].begin = std::min(offsets[i].begin + leading, offsets[i].end);
    if (offsets[i].end >= trailing) offsets[i].end = std::max(offsets[i].end - trailing, offsets[i].begin);
  }
}

// Code points that start before each byte of the text, and before its end.
std::vector<uint32_t> code_points_before(std::string_view text) {
  std::vector<uint32_t> before(text.size() + 1);
  uint32_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    before[i] = count;
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++count;
  }
  before[text.size()] = count;
  return before;
}

}  // namespace

Encoding Tokenizer::State::finish(std::string_view text, const std::vector<TrackedToken>& tokens,
                                  EncodeOptions options) const {
  const std::vector<uint32_t> before = code_points_before(text);
  std::vector<TrackedToken> all = tokens;
  Encoding encoding;
  for (const TrackedToken& token : tokens)
    encoding.offsets.push_back({before[token.origin.begin], before[token.origin.end]});
  for (const PostStep& step : post_steps) {
    if (step.kind == PostStep::Kind::kTrimOffsets) {
      trim(all, step, encoding.offsets);
    } else if (options.add_special_tokens) {
      const auto tokens_of = [](const std::vector<int32_t>& ids) {
        std::vector<TrackedToken> list;
        for (const int32_t id : ids) list.push_back({id, {}});
        return list;
      };
      const auto head = tokens_of(step.before);
      const auto tail = tokens_of(step.after);
      all.insert(all.begin(), head.begin(), head.end());
      all.insert(all.end(), tail.begin(), tail.end());
      encoding.offsets.insert(encoding.offsets.begin(), head.size(), {});
      encoding.offsets.insert(encoding.offsets.end(), tail.size(), {});
    }
  }
  for (const TrackedToken& token : all) encoding.ids.push_back(token.id);
  return encoding;
}

void Tokenizer::State::append_bytes(std::span<const int32_t> ids, DecodeOptions options,
                                    std::string& out) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= static_cast<int32_t>(decoded_ranges.size())) continue;
    const auto at = static_cast<size_t>(id);
    if (options.skip_special_tokens && special[at]) continue;
    out.append(decoded, decoded_ranges[at].begin, decoded_ranges[at].end - decoded_ranges[at].begin);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::from_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return from_json(file.text(), path.string());
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view text, const std::string& source) {
  TokenizerJson file = parse_tokenizer_json(text, source);
  auto state = std::make_unique<State>();
  state->source = source;
  state->normalizer = build_normalizer(file);
  state->pre_tokenizer = build_pre_tokenizer(file);
  state->post_steps = build_post_steps(file);
  check_decoder(file);
  state->model = build_model(file);
  state->added = build_added_tokens(file, state->model->vocabulary());
  state->add_tokens();
  state->fill_decoder();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(state)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  state_->check_text(text);
  const Lease lease(state_->pool);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  state_->encode_text(text, *lease, ids);
  if (!options.add_special_tokens) return ids;
  for (const PostStep& step : state_->post_steps) {
    ids.insert(ids.begin(), step.before.begin(), step.before.end());
    ids.insert(ids.end(), step.after.begin(), step.after.end());
  }
  return ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text, EncodeOptions options) const {
  state_->check_text(text);
  const Lease lease(state_->pool);
  std::vector<TrackedToken> tokens;
  state_->track_text(text, *lease, tokens);
  return state_->finish(text, tokens, options);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  return replace_invalid_utf8(decode_bytes(ids, options));
}

std::string Tokenizer::decode_bytes(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string bytes;
  state_->append_bytes(ids, options, bytes);
  return bytes;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto found = state_->added_ids.find(std::string(token));
  return found != state_->added_ids.end() ? std::optional(found->second)
                                          : state_->model->vocabulary().find(token);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  const auto found = state_->added_names.find(id);
  if (found != state_->added_names.end()) return found->second;
  if (!state_->model->vocabulary().has(id)) return std::nullopt;
  return std::string(state_->model->vocabulary().name(id));
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < id_limit() && state_->special[static_cast<size_t>(id)];
}

size_t Tokenizer::vocab_size() const {
  const auto& vocabulary = state_->model->vocabulary();
  const auto is_new = [&](const auto& entry) { return !vocabulary.find(entry.first); };
  const auto& added = state_->added_ids;
  return vocabulary.size() + static_cast<size_t>(std::count_if(added.begin(), added.end(), is_new));
}

int32_t Tokenizer::id_limit() const {
  return static_cast<int32_t>(state_->special.size());
}

const std::string& Tokenizer::source() const {
  return state_->source;
}

}  // namespace apus::data
