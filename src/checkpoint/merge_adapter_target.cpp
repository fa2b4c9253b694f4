#include "checkpoint/merge_adapter_target.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "checkpoint/replace_folder.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Absolute, without links and without a slash at the end, whether it exists or not.
fs::path resolved(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(path));
  return whole.has_filename() ? whole : whole.parent_path();
}

bool contains(const fs::path& folder, const fs::path& inner) {
  const auto [end, at] = std::mismatch(folder.begin(), folder.end(), inner.begin(), inner.end());
  return end == folder.end();
}

bool is_model_folder(const fs::path& path) {
  return fs::is_directory(path) && (fs::is_empty(path) || fs::is_regular_file(path / "config.json"));
}

void check_rules(const fs::path& target, const MergeTarget::Rules& rules) {
  for (const fs::path& input : rules.inputs) {
    APUS_CHECK(!contains(target, resolved(input)), ConfigError, "the merged model cannot be written to ",
               target.string(), ": ", input.string(),
               " lies there, which is read; choose another --output_dir");
  }
  if (!fs::exists(fs::symlink_status(target))) return;
  APUS_CHECK(rules.overwrite, ConfigError, target.string(),
             " exists already; give --overwrite true to replace it, or another --output_dir");
  APUS_CHECK(
      is_model_folder(target), ConfigError, target.string(),
      " holds no model (no config.json), so --overwrite does not replace it; choose another --output_dir");
}

/// Whether the open folder is still the one of that name.
bool is_same(int descriptor, const fs::path& path) {
  struct stat open_one {
  }, named{};
  return ::fstat(descriptor, &open_one) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

void empty_folder(const fs::path& path) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(path)) {
    fs::remove_all(entry.path(), code);
    if (code) throw FileError("remove", entry.path(), code.value());
  }
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw FileError("open", folder, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 && is_same(descriptor_, folder)) return;
  ::close(descriptor_);
  throw ConfigError(folder.string() +
                    " is being written by another merge; wait for it, or choose another --output_dir");
}

FolderLock::~FolderLock() {
  ::close(descriptor_);
}

MergeTarget::MergeTarget(const fs::path& target, const Rules& rules)
    : target_(resolved(target)), partial_(target_.string() + ".partial") {
  recover_replaced(target_);
  check_rules(target_, rules);
  ensure_directory(partial_);
  lock_ = std::make_unique<FolderLock>(partial_);
  empty_folder(partial_);
}

MergeTarget::~MergeTarget() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

void MergeTarget::publish() {
  for (const auto& entry : fs::recursive_directory_iterator(partial_))
    if (entry.is_directory()) sync_directory(entry.path());
  sync_directory(partial_);
  replace_folder(partial_, target_);
  partial_.clear();
}

}  // namespace apus::checkpoint
