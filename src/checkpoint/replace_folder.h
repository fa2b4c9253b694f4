#pragma once

#include <filesystem>

namespace apus::checkpoint {

/// How a folder takes the place of another.
enum class ReplaceMethod {
  kExchange,    ///< in one step where the file system can; otherwise as below
  kTwoRenames,  ///< a kill between the two leaves only TARGET.old, which recover_replaced() puts back
};

/// Renames `fresh` to `target`; a folder that is there goes once the new one has its place.
/// Throws: FileError; `target` is then whole: the old folder, or the new one if the old could not be removed.
void replace_folder(const std::filesystem::path& fresh, const std::filesystem::path& target,
                    ReplaceMethod method = ReplaceMethod::kExchange);

/// Where a replaced folder waits between two renames.
std::filesystem::path replaced_name(const std::filesystem::path& target);

/// Puts TARGET.old back where TARGET is gone. What cannot be renamed stays as it is.
void recover_replaced(const std::filesystem::path& target) noexcept;

}  // namespace apus::checkpoint
