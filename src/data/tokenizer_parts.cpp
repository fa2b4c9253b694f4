#include "data/tokenizer_parts.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "data/pretokenize_regex.h"

namespace apus::data {
namespace {

using Json = nlohmann::json;

// The component of that name, or nothing for null or absent.
std::optional<JsonView> component(const TokenizerJson& file, const std::string& name) {
  return JsonView(file.document, file.source).find_object(name);
}

[[noreturn]] void refuse(const JsonView& view, const std::string& what, const std::string& known) {
  throw NotSupported(view.source() + ": " + view.path_of("type") + " " + what +
                     " is not supported yet; byte-level BPE takes " + known);
}

// The members of a Sequence, flattened; any other component is its own only member. Views refer to the
// document.
void flatten(const JsonView& view, const std::string& list_key, std::vector<JsonView>& out) {
  if (view.require<std::string>("type") != "Sequence") {
    out.push_back(view);
    return;
  }
  const auto list = view.value().find(list_key);
  if (list == view.value().end() || !list->is_array())
    throw DataError(view.source(), 0, view.path_of(list_key) + " is no array");
  for (size_t i = 0; i < list->size(); ++i)
    flatten(JsonView((*list)[i], view.source(), view.path_of(list_key) + "[" + std::to_string(i) + "]"),
            list_key, out);
}

std::vector<JsonView> members(const TokenizerJson& file, const std::string& name,
                              const std::string& list_key) {
  std::vector<JsonView> out;
  if (const auto view = component(file, name)) flatten(*view, list_key, out);
  return out;
}

SplitBehavior behavior_of(const JsonView& view) {
  const auto name = view.require<std::string>("behavior");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw DataError(view.source(), 0, view.path_of("behavior") + " is '" + name + "', which is no behavior");
}

std::unique_ptr<PreTokenizer> build_split(const JsonView& view) {
  const PatternSplitOptions options{.behavior = behavior_of(view), .invert = view.get_or("invert", false)};
  const JsonView pattern = view.object("pattern");
  if (const auto literal = pattern.find<std::string>("String"))
    return std::make_unique<PatternSplit>(find_literal(*literal), options);
  const auto regex = pattern.require<std::string>("Regex");
  const WordSplitter known = known_splitter(regex);
  if (known && options.behavior == SplitBehavior::kIsolated) return std::make_unique<KnownSplit>(known);
  return std::make_unique<PatternSplit>(find_regex(regex, view.source()), options);
}

void add_pre_tokenizer(const JsonView& view, std::vector<std::unique_ptr<PreTokenizer>>& steps) {
  const auto type = view.require<std::string>("type");
  if (type == "Split") {
    steps.push_back(build_split(view));
  } else if (type == "Digits") {
    const bool each = view.get_or("individual_digits", false);
    steps.push_back(std::make_unique<PatternSplit>(
        find_numbers(),
        PatternSplitOptions{.behavior = each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous}));
  } else if (type == "ByteLevel") {
    if (view.get_or("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
    if (view.get_or("use_regex", true)) steps.push_back(std::make_unique<KnownSplit>(split_gpt2));
  } else {
    refuse(view, "'" + type + "'", "Split, Digits, ByteLevel and Sequence");
  }
}

std::vector<int32_t> token_ids(const JsonView& tokens, const std::string& name) {
  const auto ids = tokens.object(name).require<std::vector<int64_t>>("ids");
  std::vector<int32_t> out;
  for (const int64_t id : ids) {
    if (id < 0 || id > kMaxTokenId)
      throw DataError(tokens.source(), 0, tokens.path_of(name) + ".ids has " + std::to_string(id));
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

PostStep build_template(const JsonView& view) {
  PostStep step{.kind = PostStep::Kind::kTemplate, .before = {}, .after = {}};
  bool seen_text = false;
  const auto single = view.require<Json>("single");
  if (!single.is_array()) throw DataError(view.source(), 0, view.path_of("single") + " is no array");
  for (const Json& item : single) {
    const JsonView piece(item, view.source(), view.path_of("single"));
    if (piece.has("SpecialToken")) {
      const auto name = piece.object("SpecialToken").require<std::string>("id");
      const std::vector<int32_t> ids = token_ids(view.object("special_tokens"), name);
      auto& side = seen_text ? step.after : step.before;
      side.insert(side.end(), ids.begin(), ids.end());
      continue;
    }
    const auto sequence = piece.object("Sequence").require<std::string>("id");
    if (seen_text || sequence != "A")
      throw DataError(view.source(), 0, view.path_of("single") + " must hold the text A once");
    seen_text = true;
  }
  if (!seen_text) throw DataError(view.source(), 0, view.path_of("single") + " leaves out the text A");
  return step;
}

AddedToken build_added_token(const JsonView& view) {
  AddedToken token;
  const auto id = view.require<int64_t>("id");
  if (id < 0 || id > kMaxTokenId)
    throw DataError(
        view.source(), 0,
        view.path_of("id") + " is " + std::to_string(id) + ", expected 0 to " + std::to_string(kMaxTokenId));
  token.id = static_cast<int32_t>(id);
  token.content = view.require<std::string>("content");
  token.single_word = view.get_or("single_word", false);
  token.lstrip = view.get_or("lstrip", false);
  token.rstrip = view.get_or("rstrip", false);
  token.special = view.get_or("special", false);
  token.normalized = view.get_or("normalized", !token.special);
  return token;
}

// Options of a BPE model that only other families use.
void check_model_options(const JsonView& model) {
  const auto require_absent = [&](bool absent, const std::string& key) {
    if (!absent)
      throw NotSupported(model.source() + ": " + model.path_of(key) +
                         " is not supported yet: only byte-level BPE models are");
  };
  require_absent(!model.get_or("byte_fallback", false), "byte_fallback");
  require_absent(model.get_or<std::string>("continuing_subword_prefix", "").empty(),
                 "continuing_subword_prefix");
  require_absent(model.get_or<std::string>("end_of_word_suffix", "").empty(), "end_of_word_suffix");
  require_absent(model.get_or("dropout", 0.0) == 0.0, "dropout");
}

}  // namespace

std::unique_ptr<Normalizer> build_normalizer(const TokenizerJson& file) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const JsonView& view : members(file, "normalizer", "normalizers")) {
    const auto type = view.require<std::string>("type");
    if (type != "NFC") refuse(view, "'" + type + "'", "NFC, Sequence and no normalizer");
    steps.push_back(std::make_unique<NfcNormalizer>());
  }
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return std::move(steps.front());
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

std::unique_ptr<PreTokenizer> build_pre_tokenizer(const TokenizerJson& file) {
  const std::vector<JsonView> views = members(file, "pre_tokenizer", "pretokenizers");
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool byte_level = views[i].require<std::string>("type") == "ByteLevel";
    if (byte_level && i + 1 < views.size())
      refuse(views[i + 1], "after ByteLevel", "ByteLevel as the last of a Sequence");
    add_pre_tokenizer(views[i], steps);
    if (byte_level) return std::make_unique<SequencePreTokenizer>(std::move(steps));
  }
  throw NotSupported(file.source +
                     ": a pre_tokenizer without ByteLevel is not supported yet: only byte-level BPE is");
}

std::vector<PostStep> build_post_steps(const TokenizerJson& file) {
  std::vector<PostStep> steps;
  for (const JsonView& view : members(file, "post_processor", "processors")) {
    const auto type = view.require<std::string>("type");
    if (type == "TemplateProcessing") {
      steps.push_back(build_template(view));
    } else if (type == "ByteLevel") {
      if (view.get_or("trim_offsets", true))
        steps.push_back({.kind = PostStep::Kind::kTrimOffsets,
                         .keep_first_space = view.get_or("add_prefix_space", true),
                         .before = {},
                         .after = {}});
    } else {
      refuse(view, "'" + type + "'", "ByteLevel, TemplateProcessing, Sequence and no post_processor");
    }
  }
  return steps;
}

void check_decoder(const TokenizerJson& file) {
  const std::vector<JsonView> views = members(file, "decoder", "decoders");
  if (views.empty()) throw NotSupported(file.source + ": a tokenizer without a decoder is not supported yet");
  for (const JsonView& view : views) {
    const auto type = view.require<std::string>("type");
    if (type != "ByteLevel" || views.size() != 1) refuse(view, "'" + type + "'", "one ByteLevel");
  }
}

std::unique_ptr<BpeModel> build_model(TokenizerJson& file) {
  const auto model = component(file, "model");
  if (!model) throw DataError(file.source, 0, "has no model");
  const auto type = model->get_or<std::string>("type", file.has_vocabulary && file.has_merges ? "BPE" : "");
  if (type != "BPE") refuse(*model, "'" + type + "'", "BPE");
  if (!file.has_vocabulary) throw DataError(file.source, 0, "model.vocab is no object of names and ids");
  if (!file.has_merges) throw DataError(file.source, 0, "model.merges is no array");
  check_model_options(*model);
  BpeOptions options{.ignore_merges = model->get_or("ignore_merges", false),
                     .unk_id = {},
                     .fuse_unk = model->get_or("fuse_unk", false)};
  if (const auto unk = model->find<std::string>("unk_token")) {
    options.unk_id = file.vocabulary.find(*unk);
    if (!options.unk_id)
      throw DataError(file.source, 0, "model.unk_token '" + *unk + "' is not in model.vocab");
  }
  return std::make_unique<BpeModel>(std::move(file.vocabulary), file.merges(), options, file.source);
}

std::vector<AddedToken> build_added_tokens(const TokenizerJson& file, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  const auto list = file.document.find("added_tokens");
  if (list == file.document.end() || list->is_null()) return tokens;
  if (!list->is_array()) throw DataError(file.source, 0, "added_tokens is no array");
  for (size_t i = 0; i < list->size(); ++i) {
    AddedToken token =
        build_added_token(JsonView((*list)[i], file.source, "added_tokens[" + std::to_string(i) + "]"));
    if (token.content.empty()) continue;
    token.id = vocabulary.find(token.content).value_or(token.id);
    tokens.push_back(std::move(token));
  }
  std::stable_partition(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.special; });
  return tokens;
}

}  // namespace apus::data
