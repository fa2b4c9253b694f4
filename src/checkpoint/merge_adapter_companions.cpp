#include "checkpoint/merge_adapter_companions.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "apus/base/file.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::array kEndings = {".json", ".jinja", ".txt", ".model", ".tiktoken", ".py", ".md"};
constexpr std::array kLicences = {"LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY"};
/// What makes texts tokens. An adapter that has one of them has them all.
constexpr std::array kTokenizer = {"tokenizer.json",   "tokenizer.model", "tokenizer_config.json",
                                   "vocab.json",       "merges.txt",      "special_tokens_map.json",
                                   "added_tokens.json"};
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kMoreTemplates = "additional_chat_templates";

bool is_tokenizer_file(const std::string& name) {
  return std::ranges::find(kTokenizer, std::string_view(name)) != kTokenizer.end();
}

/// Whether a file of the base says something about the model; not weights, their index, config.json (which is
/// written anew), adapters and what training leaves.
bool describes_model(const std::string& name) {
  constexpr std::array kOthers = {"config.json",        "adapter_config.json", "args.json", "run.json",
                                  "trainer_state.json", "checkpoint.json",     "loss.txt"};
  if (name.ends_with(".index.json") || std::ranges::find(kOthers, std::string_view(name)) != kOthers.end())
    return false;
  const auto ends = [&](const char* ending) { return name.ends_with(ending); };
  const auto begins = [&](const char* beginning) { return name.starts_with(beginning); };
  return std::ranges::any_of(kEndings, ends) || std::ranges::any_of(kLicences, begins);
}

std::vector<Companion> files_in(const fs::path& folder, const fs::path& below) {
  std::vector<Companion> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder / below, none)) {
    if (entry.is_regular_file())
      files.push_back({.source = entry.path(),
                       .name = below / entry.path().filename(),
                       .bytes = static_cast<int64_t>(entry.file_size())});
  }
  return files;
}

bool is_template(const Companion& file) {
  return file.name == kTemplate ||
         (file.name.parent_path() == kMoreTemplates && file.name.extension() == ".jinja");
}

}  // namespace

Companions companions_of(const fs::path& base, const fs::path& adapter) {
  Companions companions;
  bool own_tokenizer = false, own_template = false;
  for (Companion& file : files_in(adapter, "")) {
    const bool tokenizer = is_tokenizer_file(file.name.string());
    if (!tokenizer && file.name != kTemplate) continue;
    own_tokenizer = own_tokenizer || tokenizer;
    own_template = own_template || !tokenizer;
    companions.files.push_back(std::move(file));
  }
  std::vector<Companion> of_base = files_in(base, "");
  std::ranges::copy(files_in(base, kMoreTemplates), std::back_inserter(of_base));
  for (Companion& file : of_base) {
    const std::string name = file.name.string();
    const bool replaced = (own_tokenizer && is_tokenizer_file(name)) || (own_template && name == kTemplate);
    if (!replaced && (is_template(file) || (!file.name.has_parent_path() && describes_model(name))))
      companions.files.push_back(std::move(file));
  }
  std::ranges::sort(companions.files, {}, &Companion::name);
  if (own_tokenizer)
    companions.notes.push_back("the tokenizer is the one beside the adapter, not the base's");
  if (own_template)
    companions.notes.push_back("the chat template is the one beside the adapter, not the base's");
  return companions;
}

void copy_companion(const Companion& companion, const fs::path& folder) {
  const fs::path target = folder / companion.name;
  ensure_directory(target.parent_path());
  write_file_atomic(target, MappedFile(companion.source).text());
}

}  // namespace apus::checkpoint
