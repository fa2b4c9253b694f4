#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/log.h"

namespace apus::train {

/// What decides about a reference's log-probabilities, field by field, as texts that are equal on every
/// machine.
struct APUS_API ReferenceKey {
  std::string model;            ///< model_fingerprint() of the folder that the reference's weights come from
  std::string adapter = "off";  ///< adapter_fingerprint() of its adapter
  std::string dtype;            ///< in which its products are computed
  std::string quantisation = "none";
  std::string attention = "default";  ///< which kernels
  std::string rope = "config";        ///< rope_scaling, max_model_len, rope_batch_length where given
  std::string max_length;
  std::string truncation;
  std::string chat_template;      ///< whether it is used, and its hash
  std::string tokenizer;          ///< hash of tokenizer.json
  std::string part = "training";  ///< of the job's data; filled in by precompute_reference
  std::string ld_alpha = "none";  ///< filled in by precompute_reference
  std::string data;               ///< hash over the rows' hashes; filled in by precompute_reference
  std::string library;            ///< version of apus; filled in by precompute_reference

  /// All of them with their names, in this order.
  std::vector<std::pair<std::string, std::string>> fields() const;
  /// One line of JSON.
  std::string text() const;
};

/// Log-probabilities of a dataset's pairs, in the order of its ordinals.
struct APUS_API ReferenceTable {
  std::vector<uint64_t> row_hashes;  ///< pair_hashes() of each pair
  std::vector<float> chosen;
  std::vector<float> rejected;

  int64_t size() const { return static_cast<int64_t>(row_hashes.size()); }
  /// The bytes of a cache file, see docs/design/dpo.md.
  std::string encode(const std::string& key_text) const;
};

/// A cache file's content.
struct APUS_API ReferenceFile {
  std::string key_text;
  ReferenceTable table;

  /// Throws: DataError naming `source` if the bytes are of another kind or version, cut short or damaged.
  static ReferenceFile decode(std::string_view bytes, const std::string& source);
};

/// Files of reference log-probabilities in a folder, one for each key.
///
/// A file appears whole, is never changed and may be removed at any time. It holds 16 bytes a pair.
class APUS_API ReferenceCache final {
 public:
  /// Creates the folder. Throws FileError.
  explicit ReferenceCache(std::filesystem::path folder);

  /// The key's table; nothing if there is none, or if it is damaged or another's, which the log names.
  std::optional<ReferenceTable> find(const ReferenceKey& key, Logger& logger) const;
  /// Writes it. Throws FileError.
  void store(const ReferenceKey& key, const ReferenceTable& table) const;
  /// In which fields the nearest entry of the same part differs: "max_length (4096, now 2048)"; empty without
  /// such entries.
  std::string difference(const ReferenceKey& key) const;
  /// Where the key's file lies.
  std::filesystem::path path(const ReferenceKey& key) const;

 private:
  std::filesystem::path folder_;
};

/// Fingerprint of a model folder: config.json whole, of each safetensors file its size, its first 64 KiB and
/// 1,024 evenly spaced pieces of 4 KiB (smaller files whole). Throws: FileError.
APUS_API std::string model_fingerprint(const std::filesystem::path& folder);

/// Fingerprint of an adapter folder: its two files, whole.
/// Throws: FileError.
APUS_API std::string adapter_fingerprint(const std::filesystem::path& folder);

}  // namespace apus::train
