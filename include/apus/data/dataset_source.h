#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus::data {

/// A file of rows as `--dataset` names it.
struct APUS_API DatasetSource {
  /// The file.
  std::filesystem::path path;
  /// Only the first so many rows; none = all.
  std::optional<int64_t> limit = {};

  /// The name as it was given.
  std::string text() const;
};

/// Reads "FILE" or "FILE#N". A '#' that is part of an existing file's name is left in it.
/// Throws:  ConfigError if N is not a positive whole number; `flag` is named in the message.
APUS_API DatasetSource parse_dataset_source(std::string_view text, std::string_view flag = "--dataset");

}  // namespace apus::data
