#include "train/job_folder.h"

#include <string>
#include <system_error>
#include <utility>

#include "apus/base/error.h"
#include "apus/comm/agreed_phase.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArgs = "args.json";
constexpr const char* kLock = ".lock";
constexpr const char* kLog = "logging.jsonl";

/// The folder and those around it that are not there.
std::vector<fs::path> absent_folders(fs::path folder) {
  std::vector<fs::path> absent;
  std::error_code unreadable;
  while (!folder.empty() && !fs::exists(folder, unreadable)) {
    absent.push_back(folder);
    folder = folder.parent_path();
  }
  return absent;
}

/// Whether nothing lies in the folder but what open_run puts there.
bool is_untouched(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const fs::path name = entry->path().filename();
    const bool is_empty_log = name == kLog && fs::file_size(entry->path(), code) == 0;
    if (name != kArgs && name != kLock && !is_empty_log) return false;
  }
  return !code;
}

}  // namespace

const RunDecision& JobFolder::decide(const nlohmann::ordered_json& args) {
  args_ = args;
  std::string text;
  comm::run_agreed(world_, "choosing the output directory", [&] {
    if (!is_first()) return;
    decision_ = decide_run(args_, options_, clock_);
    if (!decision_.was_complete && fs::is_directory(decision_.run_dir)) take();
    text = nlohmann::json{{"run_dir", decision_.run_dir.string()},
                          {"checkpoint", decision_.checkpoint.value_or("").string()},
                          {"checked", decision_.is_checked},
                          {"complete", decision_.was_complete}}
               .dump();
  });
  follow(nlohmann::json::parse(comm::broadcast_text(world_, text)));
  return decision_;
}

void JobFolder::follow(const nlohmann::json& agreed) {
  decision_.run_dir = agreed.at("run_dir").get<std::string>();
  decision_.was_complete = agreed.at("complete").get<bool>();
  decision_.is_checked = agreed.at("checked").get<bool>();
  const auto checkpoint = agreed.at("checkpoint").get<std::string>();
  if (!checkpoint.empty()) decision_.checkpoint = checkpoint;
}

void JobFolder::take() {
  is_new_ = !fs::exists(decision_.run_dir / kArgs);
  made_ = absent_folders(decision_.run_dir);
  lock_.emplace(decision_.run_dir);
}

/// The folder was not there when the run was chosen: somebody may have begun the same run since.
void JobFolder::claim() {
  const RunDecision now = decide_run(args_, options_, clock_);
  if (fs::exists(now.run_dir / kArgs)) {
    const RunLock other(now.run_dir);  // throws while that one runs
    throw ConfigError(detail::concat(now.run_dir.string(),
                                     " was begun by another process while this one was "
                                     "loading; start the same command again to go on with it"));
  }
  decision_.run_dir = now.run_dir;
  take();
}

void JobFolder::open() {
  std::string run_dir;
  comm::run_agreed(world_, "opening the output directory", [&] {
    if (!is_first()) return;
    if (!lock_) claim();
    open_run(decision_, args_);
    if (decision_.checkpoint) tidy_checkpoints(decision_.run_dir, tidy_);
    run_dir = decision_.run_dir.string();
  });
  decision_.run_dir = comm::broadcast_text(world_, run_dir);
}

void JobFolder::discard() noexcept {
  std::error_code ignored;
  if (lock_ && is_new_ && is_untouched(decision_.run_dir)) {
    for (const char* file : {kLog, kArgs, kLock}) fs::remove(decision_.run_dir / file, ignored);
  }
  lock_.reset();
  for (const fs::path& folder : std::exchange(made_, {})) fs::remove(folder, ignored);  // if it is empty
}

}  // namespace apus::train
