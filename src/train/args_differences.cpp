#include "train/args_differences.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/train/run_directory.h"

namespace apus::train {
namespace {

constexpr const char* kFingerprint = "data_fingerprint";
constexpr const char* kDataFiles = "data_files";

bool is_compared(const std::string& key) {
  const auto& skipped = uncompared_keys();
  return std::find(skipped.begin(), skipped.end(), key) == skipped.end();
}

/// Whether evaluation follows save_steps, which is not compared.
bool eval_follows_save(const nlohmann::json& args) {
  return args.contains("eval_steps") && args.contains("save_steps") &&
         args.at("eval_steps") == args.at("save_steps");
}

/// "64 rows then, 65 now", or the number where it is the same.
std::string row_counts(const nlohmann::json& before, const nlohmann::json& now) {
  const auto then = before.value("rows", int64_t{0}), here = now.value("rows", int64_t{0});
  return then == here ? detail::concat(here, " rows") : detail::concat(then, " rows then, ", here, " now");
}

/// The entry of a list of data files that means the same file as `file`; `nth` of them, as one may be given
/// twice.
const nlohmann::json* same_file(const nlohmann::json& list, const nlohmann::json& file, int64_t nth) {
  for (const nlohmann::json& entry : list) {
    const bool is_same = entry.value("flag", "") == file.value("flag", "") &&
                         entry.value("file", "") == file.value("file", "");
    if (is_same && nth-- == 0) return &entry;
  }
  return nullptr;
}

/// How many entries before position `end` mean the same file.
int64_t earlier_entries(const nlohmann::json& list, size_t end) {
  int64_t count = 0;
  for (size_t i = 0; i < end; ++i) {
    const bool is_same = list[i].value("flag", "") == list[end].value("flag", "") &&
                         list[i].value("file", "") == list[end].value("file", "");
    count += is_same ? 1 : 0;
  }
  return count;
}

/// Which data files differ, in words.
std::string changed_files(const nlohmann::json& before, const nlohmann::json& now) {
  std::string text;
  const auto add = [&](const std::string& line) { text += (text.empty() ? "" : "; ") + line; };
  for (size_t i = 0; i < now.size(); ++i) {
    const auto name = now[i].value("file", std::string());
    const nlohmann::json* old = same_file(before, now[i], earlier_entries(now, i));
    if (old == nullptr) {
      add(name + " was not among them");
    } else if (old->value("fingerprint", "") != now[i].value("fingerprint", "")) {
      add(detail::concat(name, " has changed (", row_counts(*old, now[i]), ")"));
    }
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (same_file(now, before[i], earlier_entries(before, i)) == nullptr)
      add(before[i].value("file", std::string()) + " is no longer among them");
  }
  return text;
}

/// What has changed where the data's fingerprint has. Runs of earlier versions kept none by file.
std::string data_difference(const nlohmann::json& before, const nlohmann::json& now) {
  const auto files = [](const nlohmann::json& args) {
    return args.value(kDataFiles, nlohmann::json::array());
  };
  const nlohmann::json old_files = files(before), new_files = files(now);
  if (old_files.empty() || new_files.empty()) return "data: its rows were others (which file, is not known)";
  const std::string changed = changed_files(old_files, new_files);
  return "data: " + (changed.empty() ? "the files are the same, but make other rows (their order, the "
                                       "tokenizer, the template or another setting has changed)"
                                     : changed);
}

}  // namespace

std::vector<std::string> args_differences(const nlohmann::json& before, const nlohmann::json& now) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& key) {
    if (key == "eval_steps" && eval_follows_save(before) && eval_follows_save(now)) return;
    const nlohmann::json old_value = before.contains(key) ? before.at(key) : nlohmann::json();
    const nlohmann::json new_value = now.contains(key) ? now.at(key) : nlohmann::json();
    if (!is_compared(key) || old_value == new_value) return;
    if (key == kFingerprint) {
      lines.push_back(data_difference(before, now));
    } else {
      lines.push_back(detail::concat(key, ": was ", dump_json(old_value), ", is ", dump_json(new_value)));
    }
  };
  for (const auto& [key, value] : now.items()) compare(key);
  for (const auto& [key, value] : before.items()) {
    if (!now.contains(key)) compare(key);
  }
  return lines;
}

}  // namespace apus::train
