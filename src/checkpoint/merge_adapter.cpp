#include "apus/checkpoint/merge_adapter.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/base/sharded_safetensors.h"
#include "apus/models/rope_config.h"
#include "apus/peft/merge.h"
#include "checkpoint/merge_adapter_companions.h"
#include "checkpoint/merge_adapter_layout.h"
#include "checkpoint/merge_adapter_target.h"
#include "checkpoint/merge_adapter_values.h"
#include "checkpoint/size_text.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kTied = "tie_word_embeddings";
constexpr const char* kHead = "lm_head.weight";
/// What a tensor's name, type and place take in a file, about.
constexpr int64_t kHeaderBytes = 160;
/// Merged tensors that are computed twice under MergeCheck::kSample.
constexpr size_t kSample = 8;

/// The base's config.json: its text, and what it says.
struct BaseConfig {
  std::string text;
  nlohmann::ordered_json json;
};

BaseConfig read_config(const fs::path& base) {
  const fs::path path = base / kConfigName;
  APUS_CHECK(fs::is_regular_file(path), ConfigError, "the base model ", base.string(), " has no config.json",
             fs::exists(base / "adapter_config.json") ? ": it is an adapter itself, name its base by --model"
                                                      : "; name a folder in Hugging Face layout by --model");
  BaseConfig config{.text = read_file(path), .json = {}};
  config.json = parse_ordered_json(config.text, path.string());
  if (!config.json.is_object()) throw DataError(path.string(), 0, "expected a JSON object at the top");
  APUS_CHECK(!config.json.contains("quantization_config") || config.json["quantization_config"].is_null(),
             NotSupported, path.string(),
             ": quantization_config is present; an adapter cannot be merged into a quantised base, name the "
             "original "
             "weights by --model");
  return config;
}

/// Without a word in config.json the weights tell.
bool is_tied(const BaseConfig& config, const ShardedSafetensors& base) {
  const auto found = config.json.find(kTied);
  return found != config.json.end() && found->is_boolean() ? found->get<bool>() : !base.has(kHead);
}

peft::AdapterMerge open_adapter(const fs::path& adapter, const ShardedSafetensors& base,
                                const BaseConfig& config) {
  peft::MergeBase facts{.shapes = {}, .tied_head = is_tied(config, base)};
  for (const std::string& name : base.names()) facts.shapes[name] = base.at(name).shape;
  return peft::AdapterMerge(adapter, facts);
}

/// The base's text as it is, unless the head is no longer the embedding or training had another rotary rule.
std::string merged_config(const BaseConfig& config, const peft::AdapterMerge& merge,
                          const MergeOptions& options, std::vector<std::string>& notes) {
  std::string text = config.text;
  if (!options.rope_scaling.empty()) {
    text = models::override_rope(
               text, {.rope_scaling = options.rope_scaling, .max_model_len = options.max_model_len},
               (options.base / kConfigName).string())
               .config_json;
    notes.push_back("config.json has the rotary scaling that the adapter was trained with: " +
                    options.rope_scaling);
  }
  if (merge.added().empty()) return text;
  nlohmann::ordered_json json = parse_ordered_json(text, kConfigName);
  json[kTied] = false;
  notes.push_back(
      detail::concat(kTied, " is false now: the adapter has a head or an embedding of its own, stored as ",
                     merge.added().front().name));
  return dump_json(json, {.indent = 2}) + "\n";
}

/// What is not weights: config, index, and copies.
struct OtherFiles {
  std::string config;
  std::string index;
  Companions companions;

  int64_t bytes() const {
    auto sum = static_cast<int64_t>(config.size() + index.size());
    for (const Companion& file : companions.files) sum += file.bytes;
    return sum;
  }
};

void check_space(const MergeOptions& options, const MergeTarget& target, int64_t needed) {
  const fs::path& folder = target.partial();
  const int64_t free = options.free_space ? options.free_space(folder) : free_bytes(folder);
  if (needed <= free) return;
  throw CheckpointError(
      target.path().string(), "",
      detail::concat(
          "the merged model takes ", size_text(needed), " (", needed, " bytes), ", size_text(free), " (",
          free, " bytes) are free",
          fs::exists(target.path()) ? " (an earlier model goes only once the new one is whole)" : "",
          "; make room, or name another disk by --output_dir"));
}

std::set<std::string> tensors_to_recompute(const MergedValues& values, MergeCheck check) {
  const std::vector<std::string> names = values.merged_names();
  if (check == MergeCheck::kAll || names.size() <= kSample) return {names.begin(), names.end()};
  std::set<std::string> sample;
  for (size_t i = 0; i < kSample; ++i) sample.insert(names[i * (names.size() - 1) / (kSample - 1)]);
  return sample;
}

void write_others(const OtherFiles& others, const MergedLayout& layout, const fs::path& folder) {
  for (const Companion& file : others.companions.files) copy_companion(file, folder);
  if (layout.has_index) write_file_atomic(folder / kIndexName, others.index);
  write_file_atomic(folder / kConfigName, others.config);
}

/// Writes and checks the weights, file by file.
int64_t write_weights(const MergedLayout& layout, const MergedValues& values, const MergeOptions& options,
                      const fs::path& folder, Logger& logger) {
  const std::set<std::string> recomputed = tensors_to_recompute(values, options.check);
  int64_t compared = 0;
  for (size_t i = 0; i < layout.files.size(); ++i) {
    const MergedFile& file = layout.files[i];
    if (layout.files.size() > 1)
      logger.info(detail::concat("Merging ", file.name, " (", i + 1, " of ", layout.files.size(), ")"));
    const TensorHashes hashes = write_merged_file(folder, file, values);
    compared += check_merged_file(folder, file, values, hashes, recomputed);
  }
  return compared;
}

MergeReport report_of(const MergedLayout& layout, const MergedValues& values, const MergeTarget& target) {
  MergeReport report{.target = target.path(), .bytes = layout.bytes};
  report.merged = static_cast<int64_t>(values.merged_names().size());
  for (const MergedFile& file : layout.files) {
    report.tensors += static_cast<int64_t>(file.tensors.size());
    report.files.push_back(file.name);
  }
  return report;
}

}  // namespace

MergeReport merge_adapter(const MergeOptions& options, Logger& logger) {
  const BaseConfig config = read_config(options.base);
  const ShardedSafetensors base(options.base);
  const peft::AdapterMerge merge = open_adapter(options.adapter, base, config);
  const MergedValues values(base, merge);
  const MergedLayout layout = merged_layout(base, merge.added(), options.max_shard_bytes);

  MergeTarget target(options.target,
                     {.overwrite = options.overwrite, .inputs = {options.base, options.adapter}});
  MergeReport report = report_of(layout, values, target);
  report.notes = merge.warnings();
  const OtherFiles others{.config = merged_config(config, merge, options, report.notes),
                          .index = layout.has_index ? index_text(layout) : "",
                          .companions = companions_of(options.base, options.adapter)};
  std::ranges::copy(others.companions.notes, std::back_inserter(report.notes));
  check_space(options, target, layout.bytes + others.bytes() + kHeaderBytes * report.tensors);
  report.checked = write_weights(layout, values, options, target.partial(), logger);
  write_others(others, layout, target.partial());
  target.publish();
  return report;
}

std::string merge_text(const MergeReport& report) {
  const size_t files = report.files.size();
  return detail::concat("Merged ", report.merged, " of ", report.tensors, " tensors, ",
                        size_text(report.bytes), " in ", files, files == 1 ? " file" : " files",
                        "; all read back as written, ", report.checked,
                        " computed twice\nMerged model: ", report.target.string());
}

}  // namespace apus::checkpoint
