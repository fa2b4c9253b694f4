#include "cli/model_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

/// A model's name on a hub.
struct HubId {
  std::string organisation;
  std::string name;

  bool valid() const { return is_word(organisation) && is_word(name); }

 private:
  static bool is_word(const std::string& text) {
    return !text.empty() && text.front() != '.' && text.front() != '~' &&
           std::ranges::all_of(
               text, [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
  }
};

HubId split_id(const std::string& model) {
  const size_t slash = model.find('/');
  return slash == model.npos ? HubId{} : HubId{model.substr(0, slash), model.substr(slash + 1)};
}

/// The folder of a variable, else one below the home folder; empty if neither is known.
fs::path cache_folder(const Environment& environment, std::string_view variable, const char* below_home) {
  const std::string given = environment.get_or(variable, "");
  if (!given.empty()) return given;
  const std::string home = environment.get_or("HOME", "");
  return home.empty() ? fs::path() : fs::path(home) / below_home;
}

/// The snapshot that refs/main names; empty if it names none.
fs::path hugging_face_folder(const fs::path& cache, const HubId& id) {
  const fs::path model = cache / "hub" / ("models--" + id.organisation + "--" + id.name);
  const fs::path ref = model / "refs/main";
  if (!fs::is_regular_file(ref)) return {};
  std::string revision = read_file(ref);
  std::erase_if(revision, [](unsigned char c) { return std::isspace(c); });
  return model / "snapshots" / revision;
}

std::string with_underscores(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '.' ? "___" : std::string(1, c);
  return text;
}

/// Where ModelScope's versions have put models; the variable names the `hub` folder itself for some of them.
std::vector<fs::path> model_scope_folders(const fs::path& cache, const HubId& id) {
  std::vector<fs::path> folders;
  for (const char* below : {"hub/models", "hub", "models", "."}) {
    const fs::path organisation = (cache / below).lexically_normal() / id.organisation;
    folders.push_back(organisation / with_underscores(id.name));
    if (id.name.find('.') != id.name.npos) folders.push_back(organisation / id.name);
  }
  return folders;
}

bool holds_model(const fs::path& folder) {
  std::error_code unreadable;
  return !folder.empty() && fs::is_regular_file(folder / "config.json", unreadable);
}

[[noreturn]] void refuse(const std::string& model, const HubId& id, const std::string& caches) {
  throw ConfigError(detail::concat("--model ", model, " is neither a folder nor in the local caches (",
                                   caches,
                                   "), and apus never goes online; download it by `huggingface-cli download ",
                                   model, " --local-dir ", id.name, "` or `modelscope download --model ",
                                   model, " --local_dir ", id.name, "`, then give --model ", id.name));
}

}  // namespace

std::string resolve_model_folder(const std::string& model, const Environment& environment) {
  const HubId id = split_id(model);
  std::error_code unreadable;
  if (fs::exists(model, unreadable) || !id.valid()) return model;
  const fs::path hugging_face = cache_folder(environment, "HF_HOME", ".cache/huggingface");
  const fs::path model_scope = cache_folder(environment, "MODELSCOPE_CACHE", ".cache/modelscope");
  std::vector<fs::path> places;
  if (!hugging_face.empty()) places.push_back(hugging_face_folder(hugging_face, id));
  if (!model_scope.empty())
    std::ranges::copy(model_scope_folders(model_scope, id), std::back_inserter(places));
  const auto found = std::ranges::find_if(places, holds_model);
  if (found != places.end()) return found->string();
  const auto shown = [](const fs::path& cache, const char* variable) {
    return cache.empty() ? detail::concat("neither ", variable, " nor HOME is set") : cache.string();
  };
  refuse(model, id, shown(hugging_face, "HF_HOME") + ", " + shown(model_scope, "MODELSCOPE_CACHE"));
}

}  // namespace apus::cli
