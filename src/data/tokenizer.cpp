#include "apus/data/tokenizer.h"

#include <algorithm>
#include <unordered_set>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/unicode.h"
#include "data/pretokenize_text.h"
#include "data/sentencepiece.h"
#include "data/tokenizer_state.h"

namespace apus::data {
namespace {

// Positions inside a text are 32 bits wide, and steps may make it longer.
constexpr size_t kMaxTextBytes = INT32_MAX - 1024;
// Unicode's forms make at most 18 of a character; what a file puts in may be longer.
constexpr size_t kMostGrowth = 64;
constexpr size_t kFreeGrowth = size_t{1} << 16;

/// A post-processor may not add a token for which no embedding need have a row.
void check_added_ids(const PostPlan& plan, size_t limit, const std::string& source) {
  for (const PostPlan::Item& item : plan.items)
    if (item.id >= 0 && static_cast<size_t>(item.id) >= limit)
      throw DataError(source, 0,
                      "post_processor adds the token " + std::to_string(item.id) +
                          ", but the ids of vocabulary and added_tokens end at " + std::to_string(limit) +
                          " - 1");
}

std::unique_ptr<PreTokenizer> split_before_marks(std::unique_ptr<PreTokenizer> first) {
  if (!first) return std::make_unique<SplitBeforeMarks>();
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::move(first));
  steps.push_back(std::make_unique<SplitBeforeMarks>());
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

}  // namespace

std::unique_ptr<Tokenizer::State> Tokenizer::State::build(TokenizerJson& file) {
  auto state = std::make_unique<State>();
  state->source = file.source;
  state->normalizer = build_normalizer(file);
  state->bare = build_post_plan(file, PostTokens::kNone);
  state->full = build_post_plan(file, PostTokens::kSpecial);
  state->decoder = build_decoder(file);
  state->decodes_bytes = state->decoder.size() == 1 && state->decoder[0].kind == DecodeStep::Kind::kByteLevel;
  state->model = build_model(file);
  state->pre_tokenizer = build_pre_tokenizer(
      file, state->model->is_byte_level() ? WordSpelling::kBytes : WordSpelling::kCharacters);
  if (state->model->splits_before_marks())
    state->pre_tokenizer = split_before_marks(std::move(state->pre_tokenizer));
  if (state->pre_tokenizer)
    state->needs_origin =
        state->pre_tokenizer->needs_origin() || (state->normalizer && state->pre_tokenizer->asks_for_start());
  state->added = build_added_tokens(file, state->model->vocabulary());
  state->add_tokens();
  state->fill_decoder();
  check_added_ids(state->full, state->special.size(), state->source);
  return state;
}

void Tokenizer::State::add_tokens() {
  for (const AddedToken& token : added) {
    added_ids[token.content] = token.id;
    added_names[token.id] = token.content;
  }
  for (const AddedToken& token : added) {
    AlignedText content{.text = token.content};
    if (token.normalized && normalizer) content = normalized(std::move(content));
    (token.normalized ? normalized_matcher : raw_matcher).add(content.text, token);
    added_texts[token.id] = std::move(content.text);
  }
}

void Tokenizer::State::fill_decoder() {
  int32_t limit = model->vocabulary().id_limit();
  for (const AddedToken& token : added) limit = std::max(limit, token.id + 1);
  special.assign(static_cast<size_t>(limit), false);
  skipped.assign(static_cast<size_t>(limit), false);
  std::unordered_set<std::string_view> special_names;
  for (const AddedToken& token : added)
    if (token.special) special_names.insert(token.content);
  for (const AddedToken& token : added) {
    special[static_cast<size_t>(token.id)] = token.special;
    skipped[static_cast<size_t>(token.id)] = special_names.contains(added_texts[token.id]);
  }
  if (!decodes_bytes) return;
  decoded_ranges.resize(static_cast<size_t>(limit));
  for (int32_t id = 0; id < limit; ++id) {
    const auto begin = static_cast<uint32_t>(decoded.size());
    if (const auto name = shown(id, {})) decoded += bytes_of_name(*name);
    decoded_ranges[static_cast<size_t>(id)] = {begin, static_cast<uint32_t>(decoded.size())};
  }
}

std::string_view Tokenizer::State::checked(std::string_view text, EncodeOptions options,
                                           std::string& storage) const {
  if (text.size() > kMaxTextBytes)
    throw DataError("text", 0,
                    "has " + std::to_string(text.size()) + " bytes; at most " +
                        std::to_string(kMaxTextBytes) + " can be tokenized at once");
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return text;
  if (options.invalid_utf8 == InvalidUtf8::kRefuse)
    throw DataError("text", 0,
                    "is not valid UTF-8 at byte " + std::to_string(valid) +
                        "; convert it to UTF-8, or have what is invalid replaced");
  storage = replace_invalid_utf8(text);
  return checked(storage, options, storage);
}

AlignedText Tokenizer::State::normalized(AlignedText text) const {
  text.most_bytes = text.text.size() * kMostGrowth + kFreeGrowth;
  if (normalizer) normalizer->apply(text);
  if (text.text.size() > kMaxTextBytes)
    throw DataError("text", 0,
                    "has " + std::to_string(text.text.size()) + " bytes once it is normalised; at most " +
                        std::to_string(kMaxTextBytes) + " can be tokenized at once");
  return text;
}

void Tokenizer::State::encode_text(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const {
  work.raw_parts.clear();
  work.text_begin = text.data();
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
    const AlignedText normal = normalized({.text = std::string(raw)});
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
    work.pieces.starts_text = work.pieces.text.data() == work.text_begin;
    if (pre_tokenizer) pre_tokenizer->apply(work.pieces);
    model->encode_words(work.pieces.text, work.pieces.ranges, work.bpe, ids);
  }
}

std::optional<std::string_view> Tokenizer::State::shown(int32_t id, DecodeOptions options) const {
  if (id < 0 || id >= static_cast<int32_t>(special.size())) return std::nullopt;
  if (options.skip_special_tokens && skipped[static_cast<size_t>(id)]) return std::nullopt;
  const auto added_text = added_texts.find(id);
  if (added_text != added_texts.end()) return added_text->second;
  if (!model->vocabulary().has(id)) return std::nullopt;
  return model->vocabulary().name(id);
}

void Tokenizer::State::append_bytes(std::span<const int32_t> ids, DecodeOptions options,
                                    std::string& out) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= static_cast<int32_t>(decoded_ranges.size())) continue;
    const auto at = static_cast<size_t>(id);
    if (options.skip_special_tokens && skipped[at]) continue;
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
  return std::shared_ptr<const Tokenizer>(new Tokenizer(State::build(file)));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_sentencepiece(std::string_view bytes,
                                                               const std::string& source,
                                                               const SentencePieceOptions& options) {
  TokenizerJson file = read_sentencepiece(bytes, source, options);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(State::build(file)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string storage;
  text = state_->checked(text, options, storage);
  const Lease lease(state_->pool);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (state_->needs_origin) {
    std::vector<TrackedToken> tokens;
    state_->track_text(text, *lease, tokens);
    for (const TrackedToken& token : tokens) ids.push_back(token.id);
  } else {
    state_->encode_text(text, *lease, ids);
  }
  (options.add_special_tokens ? state_->full : state_->bare).apply(ids);
  return ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text, EncodeOptions options) const {
  std::string storage;
  text = state_->checked(text, options, storage);
  const Lease lease(state_->pool);
  std::vector<TrackedToken> tokens;
  state_->track_text(text, *lease, tokens);
  return (options.add_special_tokens ? state_->full : state_->bare).apply(text, tokens);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  if (state_->decodes_bytes) return replace_invalid_utf8(decode_bytes(ids, options));
  DecodePipeline pipeline(state_->decoder);
  for (const int32_t id : ids)
    if (const auto name = state_->shown(id, options)) pipeline.push(*name);
  pipeline.finish();
  return pipeline.take();
}

std::string Tokenizer::decode_bytes(std::span<const int32_t> ids, DecodeOptions options) const {
  if (!state_->decodes_bytes) return decode(ids, options);
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
