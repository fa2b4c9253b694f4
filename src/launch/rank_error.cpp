#include "apus/launch/rank_error.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apus/base/env.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"

namespace apus::launch {
namespace {

constexpr const char* kTorchrunVariable = "TORCHELASTIC_ERROR_FILE";

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kOwn:
      return "own";
    case ErrorKind::kConfiguration:
      return "configuration";
    case ErrorKind::kConsequence:
      return "consequence";
  }
  return "own";
}

ErrorKind kind_from(const std::string& name) {
  for (ErrorKind kind : {ErrorKind::kConfiguration, ErrorKind::kConsequence}) {
    if (name == kind_name(kind)) return kind;
  }
  return ErrorKind::kOwn;
}

/// The form in which torchrun's agent reads a worker's error; what its report shows is the call stack.
nlohmann::json torchrun_form(const RankError& error) {
  const std::string seconds = std::to_string(error.time_ns / 1'000'000'000);
  const nlohmann::json details = {{"py_callstack", error.message}, {"timestamp", seconds}};
  return {{"message", {{"message", error.message}, {"extraInfo", details}}}};
}

nlohmann::json own_form(const RankError& error) {
  return {{"rank", error.rank},
          {"time_ns", error.time_ns},
          {"kind", kind_name(error.kind)},
          {"message", error.message}};
}

void write_quietly(const std::filesystem::path& path, const nlohmann::json& form) noexcept {
  try {
    write_file_atomic(path, dump_json(form) + "\n");
  } catch (const std::exception&) {
    return;  // a full disk, say: the rank's log still has the error
  }
}

std::optional<RankError> read_error(const std::filesystem::path& path) {
  try {
    const nlohmann::json json = load_json_file(path);
    const JsonView view(json, path.string());
    return RankError{.rank = view.require<int>("rank"),
                     .time_ns = view.require<int64_t>("time_ns"),
                     .kind = kind_from(view.require<std::string>("kind")),
                     .message = view.require<std::string>("message")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ErrorKind error_kind(const std::exception& error) {
  if (dynamic_cast<const CommError*>(&error) != nullptr) return ErrorKind::kConsequence;
  const bool configuration = dynamic_cast<const ConfigError*>(&error) != nullptr ||
                             dynamic_cast<const NotSupported*>(&error) != nullptr ||
                             dynamic_cast<const DataError*>(&error) != nullptr ||
                             dynamic_cast<const CheckpointError*>(&error) != nullptr;
  return configuration ? ErrorKind::kConfiguration : ErrorKind::kOwn;
}

RankError describe_error(int rank, const std::exception& error, const Clock& clock) {
  const auto since_epoch = clock.wall_now().time_since_epoch();
  return {.rank = rank,
          .time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count(),
          .kind = error_kind(error),
          .message = error.what()};
}

void leave_error(const Environment& environment, const RankError& error) noexcept {
  const std::string folder = environment.get_or(kErrorFolderVariable, "");
  const std::string torchrun_file = environment.get_or(kTorchrunVariable, "");
  if (!folder.empty()) {
    write_quietly(std::filesystem::path(folder) / ("rank-" + std::to_string(error.rank) + ".json"),
                  own_form(error));
  }
  if (!torchrun_file.empty()) write_quietly(torchrun_file, torchrun_form(error));
}

bool collects_errors(const Environment& environment) {
  return !environment.get_or(kErrorFolderVariable, "").empty() ||
         !environment.get_or(kTorchrunVariable, "").empty();
}

std::vector<RankError> collect_errors(const std::filesystem::path& folder) {
  std::vector<RankError> errors;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (entry.path().extension() != ".json") continue;
    if (std::optional<RankError> error = read_error(entry.path())) errors.push_back(std::move(*error));
  }
  std::ranges::sort(errors, [](const RankError& a, const RankError& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.rank < b.rank;
  });
  return errors;
}

}  // namespace apus::launch
