#include "apus/base/error.h"
#include "data/component_list.h"
#include "data/older_unicode.h"
#include "data/pattern_of.h"
#include "data/tokenizer_parts.h"

namespace apus::data {
namespace {

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

constexpr std::string_view kKnown =
    "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, "
    "BertPreTokenizer, FixedLength, Sequence";

SplitBehavior behavior_of(const JsonView& view, const std::string& fallback) {
  const auto name = view.get_or("behavior", fallback);
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw DataError(view.source(), 0, view.path_of("behavior") + " is '" + name + "', which is no behavior");
}

bool is_space(char32_t code_point) {
  return unicode_class(code_point).is_space();
}

std::unique_ptr<PreTokenizer> split_by(PatternFinder finder, SplitBehavior behavior) {
  return std::make_unique<PatternSplit>(std::move(finder), PatternSplitOptions{.behavior = behavior});
}

std::unique_ptr<PreTokenizer> build_split(const JsonView& view) {
  const PatternSplitOptions options{.behavior = behavior_of(view, ""),
                                    .invert = view.get_or("invert", false)};
  // A known pattern leaves nothing between its matches.
  const bool keeps_matches = options.behavior == SplitBehavior::kIsolated ||
                             (options.behavior == SplitBehavior::kRemoved && options.invert);
  const WordSplitter known = known_splitter(view.object("pattern").get_or<std::string>("Regex", ""));
  if (known && keeps_matches) return std::make_unique<KnownSplit>(known);
  return std::make_unique<PatternSplit>(pattern_of(view), options);
}

std::unique_ptr<PreTokenizer> build_fixed_length(const JsonView& view) {
  const auto length = view.get_or<int64_t>("length", 5);
  if (length < 1) throw DataError(view.source(), 0, view.path_of("length") + " is below 1");
  return std::make_unique<FixedLength>(static_cast<size_t>(length));
}

void add_step(const JsonView& view, const std::string& type, Steps& steps) {
  if (type == "Split") {
    steps.push_back(build_split(view));
  } else if (type == "Digits") {
    const bool each = view.get_or("individual_digits", false);
    steps.push_back(split_by(find_characters(is_digits_number),
                             each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Metaspace") {
    steps.push_back(std::make_unique<Metaspace>(metaspace_options(view)));
  } else if (type == "Punctuation") {
    steps.push_back(split_by(find_characters(is_older_punctuation), behavior_of(view, "Isolated")));
  } else if (type == "Whitespace") {
    steps.push_back(std::make_unique<PatternSplit>(
        find_words(), PatternSplitOptions{.behavior = SplitBehavior::kRemoved, .invert = true}));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(split_by(find_characters(is_space), SplitBehavior::kRemoved));
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(split_by(find_literal(character_of(view, "delimiter")), SplitBehavior::kRemoved));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(split_by(find_characters(is_space), SplitBehavior::kRemoved));
    steps.push_back(split_by(find_characters(is_older_punctuation), SplitBehavior::kIsolated));
  } else if (type == "FixedLength") {
    steps.push_back(build_fixed_length(view));
  } else {
    refuse_component(view, type, kKnown);
  }
}

void add_byte_level(const JsonView& view, Steps& steps) {
  if (view.get_or("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
  if (view.get_or("use_regex", true)) steps.push_back(std::make_unique<KnownSplit>(split_gpt2));
}

}  // namespace

bool ends_in_byte_level(const TokenizerJson& file) {
  const std::vector<JsonView> views = component_list(file, "pre_tokenizer", "pretokenizers");
  for (size_t i = 0; i < views.size(); ++i)
    if (views[i].require<std::string>("type") == "ByteLevel") return i + 1 == views.size();
  return false;
}

std::unique_ptr<PreTokenizer> build_pre_tokenizer(const TokenizerJson& file, WordSpelling spelling) {
  Steps steps;
  for (const JsonView& view : component_list(file, "pre_tokenizer", "pretokenizers")) {
    const auto type = view.require<std::string>("type");
    if (type != "ByteLevel") {
      add_step(view, type, steps);
      continue;
    }
    add_byte_level(view, steps);
    if (spelling == WordSpelling::kCharacters) steps.push_back(std::make_unique<SpellBytes>());
  }
  if (!file.isolated.empty()) steps.push_back(std::make_unique<IsolateStrings>(file.isolated));
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return std::move(steps.front());
  return std::make_unique<SequencePreTokenizer>(std::move(steps));
}

}  // namespace apus::data
