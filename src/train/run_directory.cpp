#include "apus/train/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/parse_value.h"
#include "apus/checkpoint/checkpoint.h"
#include "apus/checkpoint/manifest.h"
#include "train/args_differences.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArgs = "args.json";
constexpr const char* kLog = "logging.jsonl";
constexpr const char* kFinished = "run.json";
constexpr const char* kWorldKey = "world_size";

/// An earlier run below output_dir.
struct Version {
  int64_t number = -1;
  fs::path path;
  nlohmann::json args;
  bool finished = false;
};

/// N of "vN-...", or nothing.
std::optional<int64_t> version_number(const std::string& name) {
  const size_t dash = name.find('-');
  if (name.size() < 3 || name[0] != 'v' || dash == std::string::npos || dash < 2 || dash > 10)
    return std::nullopt;
  const std::string digits = name.substr(1, dash - 1);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoll(digits);
}

std::optional<Version> read_version(const fs::path& path, int64_t number) {
  if (!fs::exists(path / kArgs)) return std::nullopt;
  return Version{number, path, load_json_file(path / kArgs), fs::exists(path / kFinished)};
}

/// Earlier runs, newest first.
std::vector<Version> versions(const RunDirectoryOptions& options) {
  std::vector<Version> found;
  if (!fs::is_directory(options.output_dir)) return found;
  if (!options.add_version) {
    if (auto version = read_version(options.output_dir, 0)) found.push_back(std::move(*version));
    return found;
  }
  for (const auto& entry : fs::directory_iterator(options.output_dir)) {
    const auto number = version_number(entry.path().filename().string());
    if (!number || !entry.is_directory()) continue;
    if (auto version = read_version(entry.path(), *number)) found.push_back(std::move(*version));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  return found;
}

/// The highest number in use, also by folders without args.json.
int64_t last_number(const fs::path& output_dir) {
  int64_t last = -1;
  if (!fs::is_directory(output_dir)) return last;
  for (const auto& entry : fs::directory_iterator(output_dir)) {
    last = std::max(last, version_number(entry.path().filename().string()).value_or(-1));
  }
  return last;
}

/// An error if the world is all that changed (and what is derived from it).
void refuse_other_world(const Version& version, const nlohmann::json& now) {
  if (!version.args.contains(kWorldKey) || version.args.at(kWorldKey) == now.at(kWorldKey)) return;
  nlohmann::json same_world = now;
  for (const char* key : {kWorldKey, "gradient_accumulation_steps"}) {
    if (version.args.contains(key)) same_world[key] = version.args.at(key);
  }
  if (!args_differences(version.args, same_world).empty()) return;
  throw ConfigError(detail::concat(version.path.string(), " was started with ",
                                   dump_json(version.args.at(kWorldKey)),
                                   " ranks and is not finished, this run has ", dump_json(now.at(kWorldKey)),
                                   "; start it with as many ranks, take its weights alone "
                                   "(--resume_from_checkpoint CHECKPOINT --resume_only_model true), or begin "
                                   "anew (--resume_from_checkpoint none)"));
}

fs::path new_run_dir(const RunDirectoryOptions& options, Clock& clock) {
  if (!options.add_version) return options.output_dir;
  const std::time_t now = std::chrono::system_clock::to_time_t(clock.wall_now());
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local);
  return options.output_dir / detail::concat("v", last_number(options.output_dir) + 1, "-", stamp.data());
}

void refuse_foreign_folder(const RunDirectoryOptions& options, bool has_version) {
  const bool is_used = fs::is_directory(options.output_dir) && !fs::is_empty(options.output_dir);
  APUS_CHECK(options.add_version || options.overwrite || has_version || !is_used, ConfigError,
             options.output_dir.string(),
             " holds files of something else; choose another --output_dir, or give "
             "--add_version true or --overwrite true");
}

/// The newest checkpoint of the run whose bytes are what was written.
void resume_at(RunDecision& decision) {
  auto checkpoints = checkpoint::whole_checkpoints(decision.run_dir);
  for (; !checkpoints.empty(); checkpoints.pop_back()) {
    const auto& newest = checkpoints.back();
    const std::optional<std::string> damage = checkpoint::damage_of(newest.path);
    if (!damage) {
      decision.checkpoint = newest.path;
      decision.step = newest.step;
      decision.is_checked = true;
      return;
    }
    decision.damaged.push_back(*damage);
  }
}

/// Starts from a checkpoint that the user names. It may be another job's: what differs is listed.
void start_from(RunDecision& decision, const fs::path& named, const nlohmann::json& now) {
  APUS_CHECK(fs::exists(named / checkpoint::kManifestName), ConfigError, "--resume_from_checkpoint ",
             named.string(),
             fs::is_directory(named) ? " is not a finished checkpoint (it holds no "
                                     : " is no folder (it would hold ",
             checkpoint::kManifestName, "); name a checkpoint-N folder of an earlier run, auto or none");
  checkpoint::read_manifest(named);
  decision.checkpoint = fs::canonical(named);
  if (fs::exists(named / kArgs))
    decision.named_differences = args_differences(load_json_file(named / kArgs), now);
  const fs::path state = *decision.checkpoint / "trainer_state.json";
  const nlohmann::json json = load_json_file(state);
  decision.step = JsonView(json, state.string()).require<int64_t>("global_step");
}

bool names_folder(const std::string& resume) {
  return resume != "auto" && resume != "none";
}

/// Whether an unfinished version is the one that this command would continue.
bool continues(const Version& version, const nlohmann::json& now, const RunDirectoryOptions& options) {
  if (version.finished || !args_differences(version.args, now).empty()) return false;
  return !names_folder(options.resume) || version.args.value("resume_from_checkpoint", "") == options.resume;
}

/// The step of a log record, or nothing.
std::optional<int64_t> step_of(const nlohmann::json& record) {
  const auto found = record.find("global_step/max_steps");
  if (found == record.end() || !found->is_string()) return std::nullopt;
  const auto text = found->get<std::string>();
  return parse_int("global_step/max_steps", text.substr(0, text.find('/')));
}

/// Records of logging.jsonl; a torn last line is left out.
std::vector<std::pair<std::string, nlohmann::json>> log_records(const fs::path& run_dir) {
  std::vector<std::pair<std::string, nlohmann::json>> records;
  if (!fs::exists(run_dir / kLog)) return records;
  std::istringstream lines(read_file(run_dir / kLog));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (record.is_object()) records.emplace_back(line, std::move(record));
  }
  return records;
}

void point(const fs::path& link, const fs::path& target) {
  const fs::path fresh = link.string() + ".new";
  fs::remove(fresh);
  fs::create_directory_symlink(target, fresh);
  fs::rename(fresh, link);
}

}  // namespace

const std::vector<std::string>& uncompared_keys() {
  static const std::vector<std::string> keys = {"output_dir",
                                                "overwrite",
                                                "report_to",
                                                "logging_steps",
                                                "save_steps",
                                                "save_total_limit",
                                                "ddp_timeout",
                                                "dataloader_num_workers",
                                                "dataloader_prefetch_factor",
                                                "resume_from_checkpoint",
                                                "add_version",
                                                "data_files",
                                                kModelFolderKey};
  return keys;
}

RunDecision decide_run(const nlohmann::ordered_json& args, const RunDirectoryOptions& options, Clock& clock) {
  const nlohmann::json now = nlohmann::json::parse(args.dump());
  const std::vector<Version> earlier = versions(options);
  refuse_foreign_folder(options, !earlier.empty());
  RunDecision decision;
  const bool starts_elsewhere = names_folder(options.resume) && !options.resume_only_model;
  const bool looks_back = options.resume != "none" && !earlier.empty();
  const auto unfinished =
      std::find_if(earlier.begin(), earlier.end(), [](const Version& version) { return !version.finished; });
  if (looks_back && unfinished != earlier.end() && continues(*unfinished, now, options)) {
    decision.run_dir = unfinished->path;
    resume_at(decision);
    if (!decision.checkpoint && starts_elsewhere) start_from(decision, options.resume, now);
    return decision;
  }
  if (options.resume == "auto" && looks_back) {
    const Version& newest = earlier.front();
    const auto began = newest.args.value("resume_from_checkpoint", std::string("auto"));
    std::vector<std::string> from_newest = args_differences(newest.args, now);
    const bool is_same = from_newest.empty();
    if (newest.finished && is_same && names_folder(began)) {
      // Its weights come from another job: not what this command asks for.
      decision.differences = {detail::concat("resume_from_checkpoint: was ", began, ", is auto")};
    } else if (newest.finished && !options.overwrite && is_same) {
      decision.run_dir = newest.path;
      decision.was_complete = true;
      return decision;
    }
    if (unfinished != earlier.end()) {
      if (!options.overwrite) refuse_other_world(*unfinished, now);
      decision.differences = args_differences(unfinished->args, now);
    } else if (!is_same && !options.overwrite) {
      decision.differences = std::move(from_newest);
    }
  }
  APUS_CHECK(options.add_version || options.overwrite || earlier.empty(), ConfigError,
             options.output_dir.string(), " holds another run",
             decision.differences.empty() ? "" : " (" + decision.differences[0] + ")",
             "; choose another --output_dir, or give --overwrite true");
  decision.run_dir = new_run_dir(options, clock);
  if (starts_elsewhere) start_from(decision, options.resume, now);
  return decision;
}

void open_run(const RunDecision& decision, const nlohmann::ordered_json& args) {
  ensure_directory(decision.run_dir);
  const bool goes_on =
      decision.checkpoint && fs::equivalent(decision.checkpoint->parent_path(), decision.run_dir);
  const int64_t step = goes_on ? decision.step : 0;
  std::error_code ignored;
  for (const char* stale : {kFinished, "last", "best"}) fs::remove(decision.run_dir / stale, ignored);
  checkpoint::sweep_leftovers(decision.run_dir);
  for (const auto& found : checkpoint::whole_checkpoints(decision.run_dir)) {
    if (found.step > step) fs::remove_all(found.path);
  }
  std::string kept;
  for (const auto& [line, record] : log_records(decision.run_dir)) {
    if (step_of(record).value_or(0) <= step) kept += line + "\n";
  }
  write_file_atomic(decision.run_dir / kLog, step > 0 ? kept : "");
  write_file_atomic(decision.run_dir / kArgs, dump_json(args, {.indent = 2}) + "\n");
}

void append_log(const fs::path& run_dir, const nlohmann::ordered_json& record) {
  std::ofstream log(run_dir / kLog, std::ios::app);
  log << dump_json(record) << "\n" << std::flush;
  if (!log) throw FileError("write", run_dir / kLog, errno);
}

void finish_run(const fs::path& run_dir, int64_t steps) {
  const nlohmann::ordered_json json = {{"finished", true}, {"steps", steps}};
  write_file_atomic(run_dir / kFinished, dump_json(json, {.indent = 2}) + "\n");
}

void require_writable(const fs::path& output_dir) {
  fs::path existing = output_dir.empty() ? fs::path(".") : output_dir;
  while (!fs::exists(existing) && existing.has_parent_path() && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  if (!fs::exists(existing)) existing = ".";
  const auto refuse = [&](const FileError& error) {
    throw ConfigError(detail::concat("--output_dir ", output_dir.string(), ": ", error.what()));
  };
  if (!fs::is_directory(existing)) refuse(FileError("create", output_dir, ENOTDIR));
  const fs::path probe = existing / detail::concat(".apus-probe-", ::getpid());
  const int descriptor = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) refuse(FileError("write into", existing, errno));
  ::close(descriptor);
  std::error_code ignored;
  fs::remove(probe, ignored);
}

std::optional<int64_t> best_step(const fs::path& run_dir, const std::vector<int64_t>& steps,
                                 const std::string& metric) {
  const std::string key = metric.starts_with("eval_") ? metric : "eval_" + metric;
  const bool smaller = key.ends_with("loss") || key.starts_with("eval_loss");
  std::optional<int64_t> best;
  double best_value = 0.0;
  for (const auto& [line, record] : log_records(run_dir)) {
    const auto step = step_of(record);
    const auto found = record.find(key);
    if (!step || found == record.end() || !found->is_number()) continue;
    if (std::find(steps.begin(), steps.end(), *step) == steps.end()) continue;
    const double value = found->get<double>();
    if (!best || (smaller ? value < best_value : value > best_value)) {
      best = step;
      best_value = value;
    }
  }
  return best;
}

fs::path tidy_checkpoints(const fs::path& run_dir, const TidyOptions& options) {
  const auto checkpoints = checkpoint::whole_checkpoints(run_dir);
  if (checkpoints.empty()) return {};
  std::vector<int64_t> steps;
  for (const auto& found : checkpoints) steps.push_back(found.step);
  const std::optional<int64_t> best = best_step(run_dir, steps, options.metric);
  const int64_t last = options.last_is_best && best ? *best : steps.back();
  const auto count = static_cast<int64_t>(checkpoints.size());
  int64_t surplus = count - options.save_total_limit.value_or(count);
  fs::path last_path;
  for (const auto& found : checkpoints) {
    if (best && found.step == *best) point(run_dir / "best", found.path.filename());
    if (found.step == last) last_path = found.path;
    const bool keep = found.step == steps.back() || (best && found.step == *best);
    if (surplus <= 0 || keep) continue;
    fs::remove_all(found.path);
    --surplus;
  }
  point(run_dir / "last", last_path.filename());
  return last_path;
}

}  // namespace apus::train
