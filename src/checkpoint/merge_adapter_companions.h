#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace apus::checkpoint {

/// A file that a merged model has beside its weights and config.json.
struct Companion {
  /// Where it is copied from.
  std::filesystem::path source;
  /// Its name in the model's folder.
  std::filesystem::path name;
  int64_t bytes = 0;
};

/// Which they are, and what to say about them.
struct Companions {
  std::vector<Companion> files;
  std::vector<std::string> notes;
};

/// The base's settings, tokenizer, templates, code and licences. Tokenizer files beside the adapter go before
/// the base's: all of the base's of the same kind then stay away.
Companions companions_of(const std::filesystem::path& base, const std::filesystem::path& adapter);

/// Copies a companion into the folder, durably.
/// Throws: FileError.
void copy_companion(const Companion& companion, const std::filesystem::path& folder);

}  // namespace apus::checkpoint
