#include "apus/checkpoint/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/base/json.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;

void sync_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw FileError("open", path, errno);
  const int result = ::fsync(descriptor);
  const int code = errno;
  ::close(descriptor);
  if (result != 0) throw FileError("write", path, code);
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != kManifestName) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void sync_folders(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) sync_directory(entry.path());
  }
  sync_directory(folder);
}

/// A file name out of an untrusted manifest must stay inside the folder.
bool is_inside(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

const ManifestEntry& Manifest::at(const fs::path& folder, const std::string& name) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& entry) { return entry.name == name; });
  if (found == files.end()) {
    throw CheckpointError((folder / kManifestName).string(), "", "does not list '" + name + "'");
  }
  return *found;
}

Manifest write_manifest(const fs::path& folder, int world) {
  Manifest manifest{.world = world};
  nlohmann::ordered_json json = {{"format", kFormat}, {"world_size", world}, {"files", nlohmann::ordered_json::array()}};
  for (const fs::path& file : files_below(folder)) {
    sync_file(file);
    manifest.files.push_back({fs::relative(file, folder).generic_string(),
                              static_cast<int64_t>(fs::file_size(file)), sha256_file(file)});
    const ManifestEntry& entry = manifest.files.back();
    json["files"].push_back({{"name", entry.name}, {"bytes", entry.bytes}, {"sha256", entry.sha256}});
  }
  write_file_atomic(folder / kManifestName, dump_json(json, {.indent = 2}) + "\n");
  sync_folders(folder);
  return manifest;
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (!fs::exists(path)) {
    throw CheckpointError(folder.string(), "", detail::concat("holds no ", kManifestName,
                                                              ": the checkpoint was never finished"));
  }
  const nlohmann::json json = load_json_file(path);
  const JsonView view(json, path.string());
  Manifest manifest{.world = view.require<int>("world_size")};
  if (view.require<int64_t>("format") != kFormat) {
    throw CheckpointError(path.string(), "", "is of another format; use the apus version that wrote it");
  }
  for (const nlohmann::json& item : view.require<nlohmann::json>("files")) {
    const JsonView file(item, path.string(), "files");
    ManifestEntry entry{file.require<std::string>("name"), file.require<int64_t>("bytes"),
                        file.require<std::string>("sha256")};
    if (!is_inside(entry.name)) throw CheckpointError(path.string(), "", "names '" + entry.name + "' outside its folder");
    const fs::path target = folder / entry.name;
    std::error_code code;
    const auto size = fs::file_size(target, code);
    if (code) throw CheckpointError(target.string(), "", "is missing from its checkpoint");
    if (static_cast<int64_t>(size) != entry.bytes) {
      throw CheckpointError(target.string(), "", detail::concat("has ", size, " bytes, the checkpoint was written with ",
                                                                entry.bytes));
    }
    manifest.files.push_back(std::move(entry));
  }
  return manifest;
}

void verify_file(const fs::path& folder, const Manifest& manifest, const std::string& name) {
  const ManifestEntry& entry = manifest.at(folder, name);
  const std::string actual = sha256_file(folder / name);
  if (actual != entry.sha256) {
    throw CheckpointError((folder / name).string(), "", detail::concat("has SHA-256 ", actual, ", the checkpoint was written with ",
                                                                       entry.sha256, "; the file was damaged"));
  }
}

}  // namespace apus::checkpoint
