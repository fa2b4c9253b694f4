#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apus/parallel/engine_options.h"
#include "apus/train/job_options.h"

namespace apus::train {

/// What --deepspeed says: a preset, a file or an object, with every key looked at (deepspeed_keys.h).
class DeepspeedConfig final {
 public:
  /// `flag` is the flag's value; empty: an empty configuration.
  /// Throws:      ConfigError, NotSupported as check_keys, and for a word that is no preset; the messages
  /// name
  ///              the file.
  explicit DeepspeedConfig(const std::string& flag);

  /// Whether the key is there, and not left to the flags.
  bool has(std::string_view path) const;
  /// Whether it is "auto".
  bool is_auto(std::string_view path) const;
  /// The value, if has().
  std::optional<bool> boolean(std::string_view path) const { return find<bool>(path); }
  std::optional<double> number(std::string_view path) const { return find<double>(path); }
  std::optional<std::string> text(std::string_view path) const { return find<std::string>(path); }
  /// Numbers without a fraction, as in 5e8. Throws ConfigError below `least`.
  std::optional<int64_t> integer(std::string_view path, int64_t least = 0) const;
  /// The object there; empty if there is none.
  nlohmann::json section(std::string_view path) const;

  /// "--deepspeed ds.json": what messages begin with.
  const std::string& source() const { return source_; }
  /// Keys without effect.
  const std::vector<std::string>& idle() const { return idle_; }
  /// The flag's value with a file's object in the place of its name.
  const std::string& settled() const { return settled_; }

 private:
  template <typename T>
  std::optional<T> find(std::string_view path) const {
    if (!has(path)) return std::nullopt;
    return at(path)->get<T>();
  }
  const nlohmann::json* at(std::string_view path) const;

  std::string source_ = "--deepspeed";
  std::string settled_;
  nlohmann::json json_ = nlohmann::json::object();
  std::vector<std::string> idle_;
};

/// Stage, offload and secondary partition. Throws ConfigError where they do not go together.
parallel::ShardPolicy shard_policy(const DeepspeedConfig& config);

/// Throws ConfigError unless zero_hpz_partition_size divides the ranks.
void check_secondary_partition(const DeepspeedConfig& config, int world);

/// What the engine is told besides its policy.
void tell_engine(const DeepspeedConfig& config, parallel::ShardedModelOptions& engine);

/// Carries what the configuration says into the options that flags set, for a job of `world` ranks.
/// Throws:      ConfigError where a flag or another key says otherwise, naming both, or where something that
///              is left open ("auto") follows from nothing.
void settle_deepspeed(JobOptions& options, const DeepspeedConfig& config, int world);

}  // namespace apus::train
