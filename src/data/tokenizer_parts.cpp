#include "data/tokenizer_parts.h"

#include <algorithm>
#include <unordered_map>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "data/component_list.h"

namespace apus::data {
namespace {

AddedToken build_added_token(const JsonView& view) {
  const auto id = view.get_or<int64_t>("id", 0);
  if (id < 0 || id > kMaxTokenId)
    throw DataError(
        view.source(), 0,
        view.path_of("id") + " is " + std::to_string(id) + ", expected 0 to " + std::to_string(kMaxTokenId));
  AddedToken token;
  token.content = view.require<std::string>("content");
  token.single_word = view.get_or("single_word", false);
  token.lstrip = view.get_or("lstrip", false);
  token.rstrip = view.get_or("rstrip", false);
  token.special = view.get_or("special", false);
  token.normalized = view.get_or("normalized", !token.special);
  return token;
}

void check_dropout(const JsonView& model) {
  const double dropout = model.get_or("dropout", 0.0);
  if (dropout != 0.0)
    throw NotSupported(model.source() + ": " + model.path_of("dropout") + " is " + std::to_string(dropout) +
                       "; ids that differ from call to call are not supported");
}

// Whether every byte has a token: then none is left out of a word.
bool knows_all_bytes(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    append_byte_level(name, std::string(1, static_cast<char>(byte)));
    if (!vocabulary.find(name)) return false;
  }
  return true;
}

BpeOptions model_options(const JsonView& model, const TokenizerJson& file) {
  BpeOptions options{.ignore_merges = model.get_or("ignore_merges", false),
                     .fuse_unk = model.get_or("fuse_unk", false),
                     .byte_fallback = model.get_or("byte_fallback", false),
                     .continuing_subword_prefix = model.get_or<std::string>("continuing_subword_prefix", ""),
                     .end_of_word_suffix = model.get_or<std::string>("end_of_word_suffix", "")};
  // The library measures bytes that are left out by their spelling, so places need it then.
  const bool keeps_all = model.has("unk_token") || knows_all_bytes(file.vocabulary);
  options.byte_level = keeps_all && ends_in_byte_level(file) && file.isolated.empty() &&
                       !options.byte_fallback && options.continuing_subword_prefix.empty() &&
                       options.end_of_word_suffix.empty();
  options.whole_words = file.isolated;
  std::sort(options.whole_words.begin(), options.whole_words.end());
  if (const auto unk = model.find<std::string>("unk_token")) {
    options.unk_id = file.vocabulary.find(*unk);
    if (!options.unk_id) options.missing_unk = *unk;
  }
  return options;
}

}  // namespace

std::unique_ptr<BpeModel> build_model(TokenizerJson& file) {
  const auto model = JsonView(file.document, file.source).find_object("model");
  if (!model) throw DataError(file.source, 0, "has no model");
  const auto type = model->get_or<std::string>("type", file.has_vocabulary && file.has_merges ? "BPE" : "");
  if (type != "BPE") refuse_component(*model, type, "BPE");
  if (!file.has_vocabulary) throw DataError(file.source, 0, "model.vocab is no object of names and ids");
  if (!file.has_merges) throw DataError(file.source, 0, "model.merges is no array");
  check_dropout(*model);
  const BpeOptions options = model_options(*model, file);
  return std::make_unique<BpeModel>(std::move(file.vocabulary), file.merges(), options, file.source);
}

std::vector<AddedToken> build_added_tokens(const TokenizerJson& file, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  const auto list = file.document.find("added_tokens");
  if (list == file.document.end() || list->is_null()) return tokens;
  if (!list->is_array()) throw DataError(file.source, 0, "added_tokens is no array");
  std::unordered_map<std::string, size_t> places;
  auto next_id = static_cast<int32_t>(vocabulary.size());
  for (size_t i = 0; i < list->size(); ++i) {
    AddedToken token =
        build_added_token(JsonView((*list)[i], file.source, "added_tokens[" + std::to_string(i) + "]"));
    if (token.content.empty()) continue;
    const auto [place, is_new] = places.emplace(token.content, tokens.size());
    if (!is_new) {
      token.id = tokens[place->second].id;
      tokens[place->second] = std::move(token);
      continue;
    }
    const auto known = vocabulary.find(token.content);
    token.id = known ? *known : next_id++;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace apus::data
