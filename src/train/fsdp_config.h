#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apus/parallel/shard_policy.h"
#include "apus/train/job_settings.h"
#include "train/config_keys.h"

namespace apus::train {

/// Every key of --fsdp_config (transformers 5.24, and accelerate's spellings), without the prefix "fsdp_".
std::span<const ConfigKey> fsdp_keys();

/// What --fsdp and --fsdp_config say.
class FsdpConfig final {
 public:
  /// Throws:      ConfigError, NotSupported naming the word or the key.
  explicit FsdpConfig(const JobOptions& options);

  /// hybrid_shard keeps a copy of the shards on each machine, or as many as dp_replicate says.
  parallel::ShardPolicy policy(const RankLayout& ranks) const;
  /// Class names of transformer_layer_cls_to_wrap and --fsdp_transformer_layer_cls.
  std::vector<std::string> layer_classes() const;
  /// Throws ConfigError unless the copies that dp_replicate asks for share `world` ranks evenly.
  void check_replicas(int world) const;
  /// Carries what concerns other flags into the options.
  void settle(JobOptions& options) const;
  /// Keys without effect.
  const std::vector<std::string>& idle() const { return idle_; }

 private:
  [[noreturn]] void contradict(const std::string& one, const std::string& other) const;
  void check_agreement() const;
  bool has_word(const std::string& word) const;
  bool is_on(const char* key) const;
  bool keeps_parameters() const;
  int replicas(const RankLayout& ranks) const;

  std::string flag_;
  std::string layer_class_;
  std::string source_;
  std::vector<std::string> words_;
  nlohmann::json json_ = nlohmann::json::object();
  std::vector<std::string> idle_;
};

}  // namespace apus::train
