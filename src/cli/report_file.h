#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace apus::cli {

/// What a report must not replace.
struct ReportInputs {
  /// Files that the command reads.
  std::vector<std::filesystem::path> files = {};
  /// Folders whose files it reads.
  std::vector<std::filesystem::path> folders = {};
};

/// The file that --result_path names. A regular file is replaced at once, or not at all; through a symbolic
/// link it is the link's target. What exists and is no regular file (a device, a pipe, /dev/stdout) is
/// written to as it is.
class ReportFile final {
 public:
  /// Looks whether it can be written; changes nothing.
  /// Throws: ConfigError for an empty name, a folder, a folder that is missing, a file among the inputs.
  ReportFile(const std::string& path, const ReportInputs& inputs);

  /// Throws: FileError.
  void write(std::string_view text) const;

 private:
  static constexpr int kReplaced = -1;
  static constexpr int kOpened = -2;

  std::filesystem::path path_;
  int stream_ = kReplaced;  // or a standard stream that is open on the same file
};

}  // namespace apus::cli
