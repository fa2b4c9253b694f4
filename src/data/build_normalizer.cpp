#include "apus/base/error.h"
#include "data/charsmap.h"
#include "data/component_list.h"
#include "data/normalize_text.h"
#include "data/pattern_of.h"
#include "data/tokenizer_parts.h"

namespace apus::data {
namespace {

using Steps = std::vector<std::unique_ptr<Normalizer>>;
using Form = UnicodeFormNormalizer::Form;

constexpr std::string_view kKnown =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Nmt, Precompiled, "
    "BertNormalizer, "
    "ByteLevel, Sequence";

void add_bert(const JsonView& view, Steps& steps) {
  const bool lowercase = view.require<bool>("lowercase");
  if (view.require<bool>("clean_text"))
    steps.push_back(std::make_unique<CharacterNormalizer>(clean_character));
  if (view.require<bool>("handle_chinese_chars"))
    steps.push_back(std::make_unique<ChineseSpacesNormalizer>());
  if (view.get_or("strip_accents", lowercase)) {
    steps.push_back(std::make_unique<UnicodeFormNormalizer>(Form::kNfd));
    steps.push_back(std::make_unique<CharacterNormalizer>(without_nonspacing_mark));
  }
  if (lowercase) steps.push_back(std::make_unique<LowercaseNormalizer>());
}

std::unique_ptr<Normalizer> build_step(const JsonView& view, const std::string& type) {
  if (type == "NFC") return std::make_unique<NfcNormalizer>();
  if (type == "NFD") return std::make_unique<UnicodeFormNormalizer>(Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeFormNormalizer>(Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeFormNormalizer>(Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<CharacterNormalizer>(without_mark);
  if (type == "Nmt") return std::make_unique<CharacterNormalizer>(nmt_character);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(view.require<std::string>("prepend"));
  if (type == "Strip")
    return std::make_unique<StripNormalizer>(
        StripSides{.left = view.require<bool>("strip_left"), .right = view.require<bool>("strip_right")});
  if (type == "Replace")
    return std::make_unique<ReplaceNormalizer>(pattern_of(view),
                                               view.object("pattern").get_or<std::string>("String", ""),
                                               view.require<std::string>("content"));
  if (type == "Precompiled")
    return std::make_unique<CharsmapNormalizer>(
        decode_base64(view.require<std::string>("precompiled_charsmap"), view.source(),
                      view.path_of("precompiled_charsmap")),
        view.source());
  refuse_component(view, type, kKnown);
}

}  // namespace

std::unique_ptr<Normalizer> build_normalizer(const TokenizerJson& file) {
  Steps steps;
  if (!file.charsmap.empty())
    steps.push_back(std::make_unique<CharsmapNormalizer>(file.charsmap, file.source, file.isolated));
  for (const JsonView& view : component_list(file, "normalizer", "normalizers")) {
    const auto type = view.require<std::string>("type");
    if (type == "BertNormalizer" || type == "Bert")
      add_bert(view, steps);
    else
      steps.push_back(build_step(view, type));
  }
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return std::move(steps.front());
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

}  // namespace apus::data
