#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

/// Where the reference cases lie, for every parity test.
///
/// A root holds one folder a kind; below that the names of files and folders are free, so a test finds its
/// cases by the files they consist of, at any depth. The root is the environment's APUS_CASES, else the
/// committed tests/data/cases; files that a case refers to and lacks are taken from the committed root.
namespace apus::cases {

namespace detail {

/// All entries below `top` (not `top` itself), sorted, so that runs are in one order everywhere.
inline std::vector<std::filesystem::path> entries_below(const std::filesystem::path& top) {
  std::vector<std::filesystem::path> found;
  if (std::filesystem::is_directory(top)) {
    using Walk = std::filesystem::recursive_directory_iterator;
    constexpr auto kFollow = std::filesystem::directory_options::follow_directory_symlink;
    for (const auto& entry : Walk(top, kFollow)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Whether `path` ends in all the parts of `tail`.
inline bool ends_with(const std::filesystem::path& path, const std::filesystem::path& tail) {
  const auto whole = path.lexically_normal().generic_string();
  const auto end = "/" + tail.lexically_normal().generic_string();
  return whole.ends_with(end);
}

}  // namespace detail

/// The kinds of cases, as their folders in a root are named.
inline const std::set<std::string>& case_kinds() {
  static const std::set<std::string> kKinds = {"chat_template", "dpo",       "dpo_losses", "lora",
                                               "models",        "nf4",       "rope",       "schedules",
                                               "sft",           "sft_masks", "tokenizer"};
  return kKinds;
}

/// The cases that are part of the repository.
/// Programs that were carried to another machine run in the root of a checkout.
inline std::filesystem::path committed_cases_root() {
  const std::filesystem::path inside = "tests/data/cases", built = APUS_SOURCE_DIR / inside;
  return std::filesystem::exists(built) ? built : std::filesystem::current_path() / inside;
}

/// The root in use: APUS_CASES where set and not empty, else the committed one. Throws if it is no folder.
inline std::filesystem::path cases_root() {
  const char* chosen = std::getenv("APUS_CASES");
  const std::filesystem::path root = chosen && *chosen ? chosen : committed_cases_root();
  if (!std::filesystem::is_directory(root))
    throw std::runtime_error("APUS_CASES: no such folder: " + root.string());
  return root;
}

/// Folders directly in the root that no kind names; a test requires that there are none.
inline std::vector<std::string> unknown_kind_folders(const std::filesystem::path& root = cases_root()) {
  std::vector<std::string> unknown;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with('.') && !case_kinds().contains(name))
      unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

/// The folders of a kind (its own folder included) that `is_case` accepts, at any depth, sorted.
/// Empty where the root in use has no folder of that kind; a kind that is not in case_kinds() throws.
inline std::vector<std::filesystem::path> find_cases(
    const std::string& kind, const std::function<bool(const std::filesystem::path&)>& is_case) {
  if (!case_kinds().contains(kind)) throw std::runtime_error("no such kind of cases: " + kind);
  const std::filesystem::path top = cases_root() / kind;
  std::vector<std::filesystem::path> found;
  if (std::filesystem::is_directory(top) && is_case(top)) found.push_back(top);
  for (const auto& path : detail::entries_below(top))
    if (std::filesystem::is_directory(path) && is_case(path)) found.push_back(path);
  return found;
}

/// The same for kinds whose cases are files: regular files of the kind's folder that `is_case` accepts.
inline std::vector<std::filesystem::path> find_case_files(
    const std::string& kind, const std::function<bool(const std::filesystem::path&)>& is_case) {
  if (!case_kinds().contains(kind)) throw std::runtime_error("no such kind of cases: " + kind);
  std::vector<std::filesystem::path> found;
  for (const auto& path : detail::entries_below(cases_root() / kind))
    if (std::filesystem::is_regular_file(path) && is_case(path)) found.push_back(path);
  return found;
}

/// The file or folder `wanted` (a relative path such as "tokenizer.json" or "base/config.json") that a case
/// refers to. Looked for in the case's folder, then upwards to the root in use, then anywhere in the
/// committed root, first in the case's own kind and there first where the parent folder has the same name.
/// None where nobody has it.
inline std::optional<std::filesystem::path> find_for_case(const std::filesystem::path& case_folder,
                                                          const std::filesystem::path& wanted) {
  const std::filesystem::path root = std::filesystem::weakly_canonical(cases_root());
  std::filesystem::path folder = std::filesystem::weakly_canonical(case_folder);
  const std::filesystem::path inside = folder.lexically_relative(root);
  for (;;) {
    if (std::filesystem::exists(folder / wanted)) return folder / wanted;
    if (folder == root || folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  const std::filesystem::path committed = committed_cases_root();
  if (std::filesystem::exists(committed / inside / wanted)) return committed / inside / wanted;
  const std::string kind = inside.empty() ? "" : inside.begin()->string();
  for (const auto& top : {committed / kind, committed})
    for (const auto& path : detail::entries_below(top))
      if (detail::ends_with(path, wanted)) return path;
  return std::nullopt;
}

/// As find_for_case, and throws with both names where nobody has the file.
inline std::filesystem::path require_for_case(const std::filesystem::path& case_folder,
                                              const std::filesystem::path& wanted) {
  if (auto found = find_for_case(case_folder, wanted)) return *found;
  throw std::runtime_error(case_folder.string() + ": needs " + wanted.string() +
                           ", which neither it nor tests/data/cases has");
}

/// A case's name in reports: its path below the root in use.
inline std::string case_name(const std::filesystem::path& path) {
  return path.lexically_relative(cases_root()).generic_string();
}

/// Lists the cases that a test leaves out because they need a feature that is not built yet: each is printed
/// as it is added, and all of them are recorded as the test's property "not_run" at the end.
class NotRunCases {
 public:
  NotRunCases() = default;
  NotRunCases(const NotRunCases&) = delete;
  NotRunCases& operator=(const NotRunCases&) = delete;
  ~NotRunCases() {
    if (!list_.empty()) ::testing::Test::RecordProperty("not_run", list_);
  }

  void add(const std::string& name, const std::string& feature) {
    std::cout << "[  NOT RUN ] " << name << ": needs " << feature << "\n";
    list_ += (list_.empty() ? "" : "; ") + name + ": " + feature;
    ++count_;
  }
  int count() const { return count_; }

 private:
  std::string list_;
  int count_ = 0;
};

}  // namespace apus::cases
