#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/api.h"
#include "apus/base/clock.h"

namespace apus::train {

/// Numbers of one step under the names that TensorBoard shows.
struct APUS_API EventScalars {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

/// What a record of logging.jsonl says to TensorBoard, under transformers' names: "train/loss",
/// "train/rewards/margins", and "eval/loss" for what begins with "eval_". Left out are texts, nulls, and what
/// an evaluation repeats of the training line of its step (the epoch); a record without
/// "global_step/max_steps" gives no values. Throws: DataError if that is there and no "N/M".
APUS_API EventScalars event_scalars(const nlohmann::ordered_json& record);

/// Where the events of a run begin.
struct APUS_API EventFileOptions {
  /// The step after which the run goes on; 0: it is new.
  int64_t resume_step = 0;
};

/// A file of TensorBoard events in RUN_DIR/runs, new for each attempt of a run.
///
/// Earlier attempts' files lose what lies beyond `resume_step` (all of it where the run is new), and the new
/// file begins with the mark by which TensorBoard forgets such steps, so that nothing is shown twice. Every
/// call is on disk, as far as the system's cache is, when it returns: a killed run keeps its points. Files:
/// runs/events.out.tfevents.<unix seconds>.<host>.<process>.0, seconds later than any file's that is there
/// Format:  records of a length, its masked CRC-32C, a protobuf `Event`, its masked CRC-32C; scalars are
/// `Summary`
///          values in float32.
/// Throws:  FileError, also from the constructor.
/// Source:  TensorFlow's record format and event.proto, summary.proto (fields 1, 2, 3, 5, 7 of Event).
class APUS_API EventFile final {
 public:
  /// Creates the folder and the file. The clock outlives this object; its calendar time stamps the events.
  EventFile(const std::filesystem::path& run_dir, const Clock& clock, const EventFileOptions& options = {});
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Appends one event. Without values nothing is written.
  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  /// The same for a record of logging.jsonl.
  void add_record(const nlohmann::ordered_json& record);

  /// The file of this attempt.
  const std::filesystem::path& path() const { return path_; }

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  const Clock* clock_;
  int descriptor_ = -1;
};

}  // namespace apus::train
