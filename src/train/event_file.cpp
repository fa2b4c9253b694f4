#include "apus/train/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "train/event_record.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "events.out.tfevents.";

double seconds_of(Clock::WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string().starts_with(kPrefix))
      files.push_back(entry.path());
  }
  return files;
}

/// The number that the text begins with, of up to 18 digits; `rest` gets what follows.
std::optional<int64_t> leading_number(std::string_view text, std::string_view& rest) {
  int64_t number = 0;
  size_t digits = 0;
  for (; digits < text.size() && digits < 18 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
    number = number * 10 + (text[digits] - '0');
  rest = text.substr(digits);
  return digits > 0 ? std::optional(number) : std::nullopt;
}

/// TensorBoard reads files in the order of their names: a later attempt's comes later, whatever the clock
/// says.
fs::path next_path(const fs::path& folder, Clock::WallTime time) {
  auto seconds = static_cast<int64_t>(seconds_of(time));
  for (const fs::path& file : event_files(folder)) {
    const std::string name = file.filename().string();
    std::string_view rest;
    const auto taken = leading_number(std::string_view(name).substr(std::string_view(kPrefix).size()), rest);
    seconds = std::max(seconds, taken.value_or(-1) + 1);
  }
  return folder / detail::concat(kPrefix, seconds, ".", host_name(), ".", ::getpid(), ".0");
}

/// Removes what earlier attempts wrote beyond the step that the run goes on from.
void cut_back(const fs::path& folder, int64_t resume_step) {
  for (const fs::path& file : event_files(folder)) {
    std::error_code code;
    const uint64_t kept = resume_step > 0 ? kept_bytes(read_file(file), resume_step) : 0;
    if (kept == 0) {
      fs::remove(file, code);
    } else if (kept < fs::file_size(file)) {
      fs::resize_file(file, kept, code);
    }
    if (code) throw FileError("cut back", file, code.value());
  }
}

/// N of "N/M".
int64_t step_of(const std::string& text) {
  std::string_view rest;
  const auto step = leading_number(text, rest);
  if (!step || !rest.starts_with('/'))
    throw DataError("logging.jsonl", 0, "global_step/max_steps is '" + text + "', expected N/M");
  return *step;
}

}  // namespace

EventScalars event_scalars(const nlohmann::ordered_json& record) {
  constexpr std::string_view kEvaluation = "eval_";
  EventScalars scalars;
  const auto step = record.find("global_step/max_steps");
  if (step == record.end() || !step->is_string()) return scalars;
  scalars.step = step_of(step->get<std::string>());
  bool evaluates = false;
  for (const auto& [key, value] : record.items()) evaluates = evaluates || key.starts_with(kEvaluation);
  for (const auto& [key, value] : record.items()) {
    const bool is_evaluation = key.starts_with(kEvaluation);
    if (!value.is_number() || (evaluates && !is_evaluation)) continue;
    std::string tag = is_evaluation ? "eval/" + key.substr(kEvaluation.size()) : "train/" + key;
    scalars.values.emplace_back(std::move(tag), value.get<double>());
  }
  return scalars;
}

EventFile::EventFile(const fs::path& run_dir, const Clock& clock, const EventFileOptions& options)
    : clock_(&clock) {
  const fs::path folder = run_dir / "runs";
  ensure_directory(folder);
  cut_back(folder, options.resume_step);
  path_ = next_path(folder, clock.wall_now());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw FileError("create", path_, errno);
  const double now = seconds_of(clock.wall_now());
  this->append(encode_version(now));
  if (options.resume_step > 0) this->append(encode_restart(now, options.resume_step + 1));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::append(std::string_view event) {
  const std::string record = framed(event);
  for (size_t done = 0; done < record.size();) {
    const ssize_t count = ::write(descriptor_, record.data() + done, record.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw FileError("write", path_, errno);
    done += static_cast<size_t>(count);
  }
}

void EventFile::add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (!values.empty()) this->append(encode_scalars(seconds_of(clock_->wall_now()), step, values));
}

void EventFile::add_record(const nlohmann::ordered_json& record) {
  const EventScalars scalars = event_scalars(record);
  this->add_scalars(scalars.step, scalars.values);
}

}  // namespace apus::train
