#include "cli/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "cli/output.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

/// Follows symbolic links, also to where no file is yet.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;
  for (int links = 0; links < kMostLinks && fs::is_symlink(path); ++links) {
    const fs::path next = fs::read_symlink(path);
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code absent;
  return fs::equivalent(a, b, absent) && !absent;
}

bool is_in_folder(const fs::path& path, const fs::path& folder) {
  std::error_code unreadable;
  if (!fs::exists(path, unreadable)) return false;
  const fs::path whole = fs::weakly_canonical(folder, unreadable) / "";
  if (fs::weakly_canonical(path, unreadable).string().starts_with(whole.string())) return true;
  const fs::directory_iterator entries(folder, unreadable);  // may be links to files elsewhere
  return !unreadable && std::any_of(begin(entries), end(entries), [&](const fs::directory_entry& entry) {
    return is_same(path, entry.path());
  });
}

/// The number of a standard stream that writes into the file; -1 if none does.
int stream_of(const fs::path& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return -1;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open {};
    if (::fstat(stream, &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino)
      return stream;
  }
  return -1;
}

void check_inputs(const fs::path& path, const ReportInputs& inputs) {
  for (const fs::path& input : inputs.files)
    APUS_CHECK(!is_same(path, input), ConfigError, "--result_path ", path.string(),
               " would replace a file that is read (", input.string(), "); name another file");
  for (const fs::path& folder : inputs.folders)
    APUS_CHECK(!is_in_folder(path, folder), ConfigError, "--result_path ", path.string(),
               " would replace a file in ", folder.string(), "; name a file elsewhere");
}

}  // namespace

ReportFile::ReportFile(const std::string& path, const ReportInputs& inputs) {
  APUS_CHECK(!path.empty(), ConfigError, "--result_path is empty: expected the name of a file");
  std::error_code absent;
  const fs::file_status status = fs::status(path, absent);
  APUS_CHECK(!fs::is_directory(status), ConfigError, "--result_path ", path,
             " is a folder: expected the name of a file");
  check_inputs(path, inputs);
  path_ = path;
  stream_ = stream_of(path_);
  if (stream_ != kReplaced) return;
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    stream_ = kOpened;
    return;
  }
  path_ = target_of(path_);
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  APUS_CHECK(fs::is_directory(folder, absent) && path_.has_filename(), ConfigError, "--result_path ", path,
             ": there is no folder ", folder.string(), "; create it, or name a file elsewhere");
}

void ReportFile::write(std::string_view text) const {
  if (stream_ == kReplaced) return write_file_atomic(path_, text);
  if (stream_ != kOpened) return write_fully(stream_, path_, text);
  const int opened = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (opened < 0) throw FileError("open", path_, errno);
  try {
    write_fully(opened, path_, text);
  } catch (const FileError&) {
    ::close(opened);
    throw;
  }
  ::close(opened);
}

}  // namespace apus::cli
