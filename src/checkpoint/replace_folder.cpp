#include "checkpoint/replace_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "apus/base/file.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

void move(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) throw FileError("replace", to, code.value());
}

void remove_folder(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) throw FileError("remove", path, code.value());
}

/// False if the kernel or the file system has no exchange.
bool exchanged(const fs::path& fresh, const fs::path& target) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP) return false;
  throw FileError("replace", target, errno);
}

void rename_twice(const fs::path& fresh, const fs::path& target) {
  const fs::path old = replaced_name(target);
  remove_folder(old);
  move(target, old);
  try {
    move(fresh, target);
  } catch (const FileError&) {
    recover_replaced(target);
    throw;
  }
  sync_directory(target.parent_path());
  remove_folder(old);
}

}  // namespace

fs::path replaced_name(const fs::path& target) {
  return target.string() + ".old";
}

void recover_replaced(const fs::path& target) noexcept {
  std::error_code ignored;
  if (!fs::exists(target, ignored)) fs::rename(replaced_name(target), target, ignored);
}

void replace_folder(const fs::path& fresh, const fs::path& target, ReplaceMethod method) {
  if (!fs::exists(target)) {
    move(fresh, target);
    sync_directory(target.parent_path());
  } else if (method == ReplaceMethod::kExchange && exchanged(fresh, target)) {
    sync_directory(target.parent_path());
    remove_folder(fresh);  // the old one
  } else {
    rename_twice(fresh, target);
  }
}

}  // namespace apus::checkpoint
