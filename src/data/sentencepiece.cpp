#include "data/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/protobuf_reader.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

// Every cut of a piece is looked up, so its length counts squared.
constexpr size_t kLongestPiece = 512;
// Far more than any vocabulary gives; files made to give more would take all memory.
constexpr size_t kMostMerges = size_t{1} << 23;

enum PieceType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Piece {
  std::string_view name;
  float score = 0;
  int64_t type = kNormal;
};

// The fields of a model file that matter here, with the defaults of its schema.
struct Model {
  std::vector<Piece> pieces;
  int64_t model_type = 1;
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string_view denormalizer_charsmap;
};

class ModelReader {
 public:
  explicit ModelReader(const std::string& source) : source_(source) {}

  Model read(std::string_view bytes) {
    ProtobufReader reader(bytes, source_, "SentencePiece model");
    ProtobufField field;
    while (reader.next(field)) {
      if (field.number == 1) read_piece(reader.bytes(field));
      if (field.number == 2) read_trainer(reader.bytes(field));
      if (field.number == 3) read_normalizer(reader.bytes(field));
      if (field.number == 5) read_denormalizer(reader.bytes(field));
    }
    return std::move(model_);
  }

 private:
  void read_piece(std::string_view bytes) {
    ProtobufReader reader(bytes, source_, "piece of a SentencePiece model");
    ProtobufField field;
    Piece piece;
    while (reader.next(field)) {
      if (field.number == 1) piece.name = reader.text(field);
      if (field.number == 2) piece.score = reader.real(field);
      if (field.number == 3) piece.type = reader.integer(field);
    }
    model_.pieces.push_back(piece);
  }

  void read_trainer(std::string_view bytes) {
    ProtobufReader reader(bytes, source_, "trainer specification of a SentencePiece model");
    ProtobufField field;
    while (reader.next(field)) {
      if (field.number == 3) model_.model_type = reader.integer(field);
      if (field.number == 24) model_.whitespace_as_suffix = reader.boolean(field);
      if (field.number == 35) model_.byte_fallback = reader.boolean(field);
    }
  }

  void read_normalizer(std::string_view bytes) {
    ProtobufReader reader(bytes, source_, "normalizer specification of a SentencePiece model");
    ProtobufField field;
    while (reader.next(field)) {
      if (field.number == 2) model_.charsmap = reader.bytes(field);
      if (field.number == 3) model_.add_dummy_prefix = reader.boolean(field);
      if (field.number == 4) model_.remove_extra_whitespaces = reader.boolean(field);
      if (field.number == 5) model_.escape_whitespaces = reader.boolean(field);
    }
  }

  void read_denormalizer(std::string_view bytes) {
    ProtobufReader reader(bytes, source_, "denormalizer specification of a SentencePiece model");
    ProtobufField field;
    while (reader.next(field))
      if (field.number == 2) model_.denormalizer_charsmap = reader.bytes(field);
  }

  const std::string& source_;
  Model model_;
};

void check_options(const Model& model, const std::string& source) {
  const auto refuse = [&](const std::string& what) { throw NotSupported(source + ": " + what); };
  if (model.model_type != 2) {
    const char* names[] = {"0", "unigram", "bpe", "word", "char"};
    const bool known = model.model_type >= 0 && model.model_type <= 4;
    refuse("SentencePiece model_type " +
           (known ? std::string(names[model.model_type]) : std::to_string(model.model_type)) +
           " is not supported; bpe is");
  }
  if (model.whitespace_as_suffix) refuse("SentencePiece treat_whitespace_as_suffix is not supported");
  if (!model.denormalizer_charsmap.empty())
    refuse("a SentencePiece model with a denormalizer is not supported");
}

void fill_vocabulary(const Model& model, TokenizerJson& out) {
  if (model.pieces.empty()) throw DataError(out.source, 0, "has no pieces");
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const auto fail = [&](const std::string& reason) {
      throw DataError(out.source, 0, "piece " + std::to_string(i) + " " + reason);
    };
    if (i > static_cast<size_t>(kMaxTokenId)) fail("is one too many");
    if (piece.name.empty()) fail("is empty");
    if (piece.type < kNormal || piece.type > kByte) fail("has the type " + std::to_string(piece.type));
    if (!std::isfinite(piece.score)) fail("has a score that is no number");
    if (piece.type == kNormal && piece.name.size() > kLongestPiece)
      fail("has " + std::to_string(piece.name.size()) + " bytes, more than " + std::to_string(kLongestPiece));
    if (out.vocabulary.find(piece.name)) fail("'" + std::string(piece.name) + "' stands there twice");
    out.vocabulary.add(piece.name, static_cast<int32_t>(i));
  }
  out.has_vocabulary = true;
}

struct Merge {
  float score = 0;
  size_t piece = 0;
  size_t left_bytes = 0;
  size_t left_length = 0;
  size_t right_length = 0;
  int32_t left = 0;
  int32_t right = 0;
};

// All ways to make a piece out of two; only normal pieces are made and take part.
void add_merges_of(const Model& model, size_t index, const Vocabulary& vocabulary,
                   std::vector<Merge>& merges) {
  const Piece& piece = model.pieces[index];
  const size_t length = utf8_length(piece.name);
  const auto normal = [&](std::string_view name) {
    const std::optional<int32_t> id = vocabulary.find(name);
    return id && model.pieces[static_cast<size_t>(*id)].type == kNormal ? id : std::nullopt;
  };
  size_t left_length = 0;
  for (size_t cut = 0; cut < piece.name.size();) {
    cut += code_point_at(piece.name.data() + cut).length;
    ++left_length;
    if (cut == piece.name.size()) break;
    const auto left = normal(piece.name.substr(0, cut));
    const auto right = left ? normal(piece.name.substr(cut)) : std::nullopt;
    if (right) merges.push_back({piece.score, index, cut, left_length, length - left_length, *left, *right});
  }
}

// Ranked by score, as transformers ranks them: of equal ones the longer left side first.
void fill_merges(const Model& model, TokenizerJson& out) {
  std::vector<Merge> merges;
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (model.pieces[i].type == kNormal) {
      add_merges_of(model, i, out.vocabulary, merges);
      if (merges.size() > kMostMerges)
        throw DataError(out.source, 0, "gives more than " + std::to_string(kMostMerges) + " merges");
    }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left_length != b.left_length) return a.left_length > b.left_length;
    if (a.right_length != b.right_length) return a.right_length > b.right_length;
    return std::tie(a.piece, a.left, a.right) < std::tie(b.piece, b.left, b.right);
  });
  for (const Merge& merge : merges) {
    const std::string_view name = model.pieces[merge.piece].name;
    const std::string_view left = name.substr(0, merge.left_bytes);
    const std::string_view right = name.substr(merge.left_bytes);
    out.add_merge(left, right);
  }
  out.has_merges = true;
}

Json replace(const char* kind, const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

Json normalizers_of(const Model& model, const SentencePieceOptions& options) {
  Json steps = Json::array();
  if (model.remove_extra_whitespaces) {
    steps.push_back(replace("Regex", "\\A +| +\\z", ""));
    steps.push_back(replace("Regex", " {2,}", " "));
  }
  if (model.add_dummy_prefix && options.prefix_every_part)
    steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
  if (model.escape_whitespaces) steps.push_back(replace("String", " ", "\u2581"));
  if (model.escape_whitespaces && model.remove_extra_whitespaces)
    steps.push_back(replace("Regex", "\u2581+\\z", ""));  // of a text that has them itself
  return steps.empty() ? Json() : Json{{"type", "Sequence"}, {"normalizers", steps}};
}

Json decoder_of(const Model& model) {
  Json steps = Json::array({replace("String", "\u2581", " ")});
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

Json added_tokens_of(const Model& model, const SentencePieceOptions& options) {
  Json tokens = Json::array();
  const auto add = [&](const SentencePieceToken& token) {
    tokens.push_back({{"content", token.content},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  };
  const auto given = [&](std::string_view name) {
    return std::any_of(options.added_tokens.begin(), options.added_tokens.end(),
                       [&](const SentencePieceToken& token) { return token.content == name; });
  };
  for (const Piece& piece : model.pieces)
    if ((piece.type == kUnknown || piece.type == kControl) && !given(piece.name))
      add({.content = std::string(piece.name)});
  for (const SentencePieceToken& token : options.added_tokens) add(token);
  return tokens;
}

Json post_processor_of(const SentencePieceOptions& options, const TokenizerJson& file) {
  if (options.bos.empty() && options.eos.empty()) return {};
  Json single = Json::array();
  Json tokens = Json::object();
  const auto add = [&](const std::string& name) {
    if (name.empty()) return;
    const auto id = file.vocabulary.find(name);
    if (!id) throw DataError(file.source, 0, "has no piece '" + name + "' to put around texts");
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {
        {"id", name}, {"ids", Json::array({static_cast<uint32_t>(*id)})}, {"tokens", Json::array({name})}};
  };
  add(options.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(options.eos);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

}  // namespace

TokenizerJson read_sentencepiece(std::string_view bytes, const std::string& source,
                                 const SentencePieceOptions& options) {
  const Model model = ModelReader(source).read(bytes);
  TokenizerJson out;
  out.source = source;
  check_options(model, source);
  fill_vocabulary(model, out);
  fill_merges(model, out);
  out.charsmap = model.charsmap;
  Json settings = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", model.byte_fallback}};
  for (const Piece& piece : model.pieces) {
    if (piece.type == kUnknown) settings["unk_token"] = piece.name;
    if (piece.type == kUserDefined) out.isolated.emplace_back(piece.name);
  }
  out.document = {{"model", settings},
                  {"normalizer", normalizers_of(model, options)},
                  {"decoder", decoder_of(model)},
                  {"added_tokens", added_tokens_of(model, options)},
                  {"post_processor", post_processor_of(options, out)}};
  if (model.add_dummy_prefix && !options.prefix_every_part)
    out.document["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  return out;
}

}  // namespace apus::data
