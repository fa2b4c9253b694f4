#include "cli/merge_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/checkpoint/merge_adapter.h"
#include "apus/cli/flag_values.h"
#include "apus/comm/launch_environment.h"
#include "apus/train/run_directory.h"
#include "cli/console.h"
#include "cli/flag_groups.h"
#include "cli/model_folder.h"
#include "cli/output.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;
using enum FlagKind;

std::vector<Flag> flags_of_merge() {
  return grouped(
      "merge",
      {acts("adapters", kText, "-",
            "the adapter: a checkpoint-N, a run's folder (its newest checkpoint), or a PEFT folder"),
       acts("model", kText, "the adapter's",
            "its base: a folder or the hub id of a model in the local caches"),
       acts("output_dir", kText, "RUN/merges", "folder of the merged model; outside of a run ADAPTER-merged"),
       acts("overwrite", kBoolean, "false", "replace an earlier merged model"),
       acts("max_shard_size", kText, "the base's files", "cut the weights anew, such as 5GB"),
       among({"sample", "all"}, acts("merge_check", kText, "sample",
                                     "merged tensors that are computed twice; all are read back anyway")),
       acts("config", kText, "none", "JSON file of flags; flags of the command line win")});
}

std::string text_of(const FlagValues& values, const FlagTable& table, const char* name) {
  const FlagValue* value = values.find(name);
  return value && !says_default(*table.find(name), *value) ? value->text() : "";
}

/// A name of the base and where it was read.
struct BaseName {
  std::string name;
  std::string file;
};

/// What a JSON file says under a key; nothing where the file or the key is not there.
void add_name(std::vector<BaseName>& names, const fs::path& file, const char* key) {
  std::error_code unreadable;
  if (!fs::is_regular_file(file, unreadable)) return;
  const nlohmann::json json = load_json_file(file);
  const auto name = JsonView(json, file.string()).find<std::string>(key);
  if (name && !name->empty()) names.push_back({*name, file.string()});
}

std::vector<BaseName> names_of_base(const checkpoint::AdapterPlace& place) {
  std::vector<BaseName> names;
  for (const fs::path& folder : {place.adapter, place.run_dir}) {
    if (folder.empty()) continue;
    // What --model said may have been relative to the folder that the run was started in.
    add_name(names, folder / "args.json", train::kModelFolderKey);
    add_name(names, folder / "args.json", "model");
  }
  add_name(names, place.adapter / "adapter_config.json", "base_model_name_or_path");
  return names;
}

/// The folder that a name in a file means, if it is there.
std::optional<fs::path> folder_of(const BaseName& base, const fs::path& adapter,
                                  const Environment& environment) {
  std::error_code unreadable;
  const fs::path beside = adapter / base.name;
  if (fs::is_regular_file(fs::path(base.name) / "config.json", unreadable)) return base.name;
  if (fs::is_regular_file(beside / "config.json", unreadable)) return beside;
  try {
    fs::path found = resolve_model_folder(base.name, environment);
    if (fs::is_regular_file(found / "config.json", unreadable)) return found;
  } catch (const ConfigError&) {
    return std::nullopt;  // in no cache: the caller says what else was tried
  }
  return std::nullopt;
}

/// The rotary rule that args.json says the adapter was trained with.
void add_rope(const checkpoint::AdapterPlace& place, checkpoint::MergeOptions& options) {
  for (const fs::path& folder : {place.adapter, place.run_dir}) {
    const fs::path file = folder / "args.json";
    std::error_code unreadable;
    if (folder.empty() || !fs::is_regular_file(file, unreadable)) continue;
    const nlohmann::json json = load_json_file(file);
    const JsonView args(json, file.string());
    options.rope_scaling = args.get_or<std::string>("rope_scaling", "");
    options.max_model_len = args.find<int64_t>("max_model_len");
    return;
  }
}

checkpoint::MergeOptions options_of(const FlagValues& values, const FlagTable& table) {
  checkpoint::MergeOptions options;
  if (const FlagValue* overwrite = values.find("overwrite")) options.overwrite = overwrite->boolean();
  const std::string size = text_of(values, table, "max_shard_size");
  if (!size.empty()) options.max_shard_bytes = parse_shard_size(size);
  if (text_of(values, table, "merge_check") == "all") options.check = checkpoint::MergeCheck::kAll;
  return options;
}

int merge_with(const Call& call, const FlagTable& table, const FlagValues& values) {
  if (comm::resolve_launch(call.environment).rank > 0)
    return 0;  // one model, however many ranks were started
  const std::string named = text_of(values, table, "adapters");
  APUS_CHECK(
      !named.empty(), ConfigError,
      "--adapters is missing: name the adapter to merge, such as --adapters output/v0-.../checkpoint-100");
  checkpoint::MergeOptions options = options_of(values, table);
  const checkpoint::AdapterPlace place = checkpoint::find_adapter(named);
  const FoundBase base = find_base(text_of(values, table, "model"), place, call.environment);
  std::error_code unreadable;
  APUS_CHECK(fs::is_directory(base.folder, unreadable), ConfigError, "--model ", base.folder.string(),
             ": there is no such folder; it would hold the adapter's base");
  options.base = base.folder;
  options.adapter = place.adapter;
  add_rope(place, options);
  options.target = find_target(text_of(values, table, "output_dir"), place);

  const std::shared_ptr<Logger> console = make_rank_console(0);
  console->info("Merging " + place.adapter.string() + " into " + base.folder.string() + " (" + base.named_by +
                ")");
  const checkpoint::MergeReport report = checkpoint::merge_adapter(options, *console);
  if (report.target == checkpoint::merge_target(place)) checkpoint::link_newest_merge(place);
  for (const std::string& note : report.notes) console->info("Note: " + note);
  write_output(checkpoint::merge_text(report));
  return 0;
}

}  // namespace

FlagTable merge_flags() {
  return FlagTable(flags_of_merge());
}

FlagTable export_flags() {
  std::vector<Flag> flags = flags_of_merge();
  Flag merge =
      acts("merge_lora", kBoolean, "false", "true: do what `apus merge` does; nothing else is exported yet");
  merge.group = flags.front().group;
  flags.insert(flags.begin(), std::move(merge));
  return FlagTable(std::move(flags));
}

int run_merge(const Call& call) {
  const FlagTable table = merge_flags();
  return merge_with(call, table, parse_flags(call.flags(), table));
}

int run_export(const Call& call) {
  const FlagTable table = export_flags();
  const FlagValues values = parse_flags(call.flags(), table);
  const FlagValue* merge = values.find("merge_lora");
  APUS_CHECK(merge && merge->boolean(), NotSupported,
             "apus export does nothing but merging yet: give --merge_lora true (or call `apus merge`)");
  return merge_with(call, table, values);
}

FoundBase find_base(const std::string& model, const checkpoint::AdapterPlace& place,
                    const Environment& environment) {
  if (!model.empty()) return {resolve_model_folder(model, environment), "--model"};
  std::string tried;
  for (const BaseName& base : names_of_base(place)) {
    if (const auto folder = folder_of(base, place.adapter, environment))
      return {*folder, "named by " + base.file};
    tried += (tried.empty() ? "" : ", ") + base.name + " (named by " + base.file + ")";
  }
  throw ConfigError(detail::concat("the base of ", place.adapter.string(), " is not known: ",
                                   tried.empty() ? "neither args.json nor adapter_config.json names it"
                                                 : tried + " is neither a folder nor in the local caches",
                                   "; name it by --model"));
}

fs::path find_target(const std::string& output_dir, const checkpoint::AdapterPlace& place) {
  std::error_code missing;
  const auto is_same = [&](const fs::path& folder) {
    return !folder.empty() && fs::equivalent(output_dir, folder, missing);
  };
  if (output_dir.empty() || is_same(place.output_dir) || is_same(place.run_dir))
    return checkpoint::merge_target(place);
  return output_dir;
}

int64_t parse_shard_size(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 8> kUnits = {{{"", 1},
                                                                           {"b", 1},
                                                                           {"kb", 1'000},
                                                                           {"mb", 1'000'000},
                                                                           {"gb", 1'000'000'000},
                                                                           {"kib", int64_t{1} << 10},
                                                                           {"mib", int64_t{1} << 20},
                                                                           {"gib", int64_t{1} << 30}}};
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  std::erase(unit, ' ');
  std::ranges::transform(unit, unit.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::ranges::find(kUnits, unit, &std::pair<std::string_view, int64_t>::first);
  const double bytes = found == kUnits.end() ? 0 : number * static_cast<double>(found->second);
  APUS_CHECK(code == std::errc() && bytes >= 1 && bytes < 9e18, ConfigError, "--max_shard_size is '", text,
             "', expected a size such as 5GB, 500MB or 2GiB");
  return static_cast<int64_t>(bytes);
}

}  // namespace apus::cli
