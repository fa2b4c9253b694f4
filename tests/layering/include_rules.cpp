#include "tests/layering/include_rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace apus::layering {
namespace {

// A folder may include itself and folders of a smaller number; equal numbers do not see each other.
const std::map<std::string, int, std::less<>> kRank = {
    {"base", 0},       {"comm", 1},  {"memory", 2}, {"ops", 3},    {"nn", 4},
    {"models", 5},     {"peft", 5},  {"optim", 5},  {"data", 5},   {"parallel", 6},
    {"checkpoint", 7}, {"train", 8}, {"infer", 8},  {"launch", 8}, {"cli", 9}};

// The files of data/ that make tensors, by the start of their names; all others work on text alone.
constexpr std::array<std::string_view, 4> kTensorFilesOfData = {"batch", "collator", "dataset", "loader"};

bool is_source(const std::filesystem::path& path) {
  const std::string end = path.extension().string();
  return end == ".h" || end == ".cpp" || end == ".cu" || end == ".cuh";
}

// Comments become spaces; lines stay. Strings keep their text, so "//" in one must not start a comment.
std::string without_comments(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] == '"') {
      for (++i; i < out.size() && out[i] != '"' && out[i] != '\n'; ++i) i += out[i] == '\\';
    } else if (out[i] == '/' && (out[i + 1] == '/' || out[i + 1] == '*')) {
      const bool block = out[i + 1] == '*';
      const std::size_t found = block ? text.find("*/", i + 2) : text.find('\n', i);
      const std::size_t end = found == text.npos ? out.size() : found + (block ? 2 : 0);
      for (; i < end; ++i) out[i] = out[i] == '\n' ? '\n' : ' ';
      --i;
    }
  }
  return out;
}

std::string include_target(std::string_view line) {
  const auto skip = [&line] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip();
  if (!line.starts_with('#')) return "";
  line.remove_prefix(1);
  skip();
  if (!line.starts_with("include")) return "";
  line.remove_prefix(7);
  skip();
  if (!line.starts_with('"') && !line.starts_with('<')) return "";
  const std::size_t end = line.find(line[0] == '<' ? '>' : '"', 1);
  return end == line.npos ? "" : std::string(line.substr(1, end - 1));
}

std::string first_folder(std::string_view path) {
  return std::string(path.substr(0, path.find('/')));
}

bool starts_with_any(std::string_view target, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [target](std::string_view start) { return target.starts_with(start); });
}

bool is_torch(std::string_view target) {
  return starts_with_any(target, {"torch/", "ATen/", "c10/"});
}

bool makes_tensors(std::string_view path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return std::ranges::any_of(kTensorFilesOfData,
                             [&name](std::string_view start) { return name.starts_with(start); });
}

bool must_be_torch_free(std::string_view path) {
  const std::string layer = layer_of(path);
  return layer == "base" || layer == "launch" || (layer == "data" && !makes_tensors(path));
}

// The file that an include of another file of apus leads to.
std::string file_of_target(std::string_view target) {
  return (target.starts_with("apus/") ? "include/" : "src/") + std::string(target);
}

using IncludesOfFile = std::map<std::string, std::vector<std::string>, std::less<>>;

// The chain of files from `path` to a torch header, " -> " between them; "" if there is none.
std::string chain_to_torch(const IncludesOfFile& files, const std::string& path,
                           std::set<std::string>& visited) {
  const auto found = files.find(path);
  if (found == files.end() || !visited.insert(path).second) return "";
  for (const std::string& target : found->second) {
    if (is_torch(target)) return path + " -> " + target;
    const std::string chain = chain_to_torch(files, file_of_target(target), visited);
    if (!chain.empty()) return path + " -> " + chain;
  }
  return "";
}

}  // namespace

std::vector<Include> includes_of(const std::string& path, std::string_view text) {
  std::vector<Include> out;
  std::istringstream lines(without_comments(text));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::string target = include_target(line);
    if (!target.empty()) out.push_back({.path = path, .line = number, .target = std::move(target)});
  }
  return out;
}

std::vector<Include> collect_includes(const std::filesystem::path& root) {
  std::vector<Include> out;
  for (const char* top : {"include", "src"}) {
    for (const auto& item : std::filesystem::recursive_directory_iterator(root / top)) {
      if (!item.is_regular_file() || !is_source(item.path())) continue;
      std::ifstream file(item.path(), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      if (!file) throw std::runtime_error("cannot read " + item.path().string());
      const std::string path = std::filesystem::relative(item.path(), root).generic_string();
      std::ranges::move(includes_of(path, text.str()), std::back_inserter(out));
    }
  }
  return out;
}

std::string layer_of(std::string_view path) {
  for (const std::string_view top : {"include/apus/", "src/"}) {
    if (!path.starts_with(top)) continue;
    path.remove_prefix(top.size());
    return path.find('/') == path.npos ? "" : first_folder(path);
  }
  return "";
}

std::string layer_of_target(std::string_view target) {
  if (target.starts_with("apus/")) return layer_of("include/" + std::string(target));
  const std::string folder = first_folder(target);
  return target.find('/') != target.npos && kRank.contains(folder) ? folder : "";
}

std::string order_fault(const Include& include) {
  const std::string from = layer_of(include.path);
  if (from.empty()) return "";
  const auto from_rank = kRank.find(from);
  if (from_rank == kRank.end()) return "is in the unknown layer " + from;
  if (include.target == "apus/apus.h") return "includes the umbrella header";
  if (include.target.find("..") != include.target.npos) return "includes by a relative path";
  const std::string to = layer_of_target(include.target);
  if (to.empty() || to == from) return "";
  const auto to_rank = kRank.find(to);
  if (to_rank == kRank.end()) return "includes the unknown layer " + to;
  if (to_rank->second >= from_rank->second) return from + " may not include " + to;
  return "";
}

std::string dependency_fault(const Include& include) {
  const std::string_view target = include.target;
  const std::string layer = layer_of(include.path);
  const std::string extension = std::filesystem::path(include.path).extension().string();
  if (target == "torch/torch.h" || target == "torch/all.h" || target == "torch/extension.h" ||
      target == "ATen/ATen.h") {
    return "takes all of torch; include ATen/core/Tensor.h and ATen/ops/X.h";
  }
  if (is_torch(target) && (extension == ".cu" || extension == ".cuh"))
    return "a kernel file may not include torch";
  if (starts_with_any(target, {"spdlog/", "fmt/"}) && include.path != "src/base/log.cpp") {
    return "only src/base/log.cpp may include spdlog";
  }
  if (starts_with_any(target, {"gloo/"})) return "may not name gloo; use c10d's ProcessGroupGloo";
  if (target.starts_with("CLI/") && layer != "cli") return "only cli may include CLI11";
  return "";
}

std::vector<std::string> torch_faults(const std::vector<Include>& includes) {
  IncludesOfFile files;
  for (const Include& include : includes) files[include.path].push_back(include.target);
  std::vector<std::string> out;
  for (const auto& [path, targets] : files) {
    if (!must_be_torch_free(path)) continue;
    std::set<std::string> visited;
    std::string chain = chain_to_torch(files, path, visited);
    if (!chain.empty()) out.push_back(std::move(chain));
  }
  return out;
}

}  // namespace apus::layering
