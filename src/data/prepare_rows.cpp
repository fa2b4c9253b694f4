#include "data/prepare_rows.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace apus::data {
namespace {

/// The first exception by index, from any thread.
class FirstError {
 public:
  void record(int64_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_ || index < index_) {
      index_ = index;
      error_ = std::move(error);
    }
    seen_ = true;
  }
  bool seen() const { return seen_; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> seen_ = false;
  int64_t index_ = 0;
  std::exception_ptr error_;
};

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

void run_in_parallel(int64_t count, int64_t workers, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  FirstError first;
  // Indices are taken in order, so once one has failed all smaller ones are already being worked on.
  const auto run = [&] {
    for (int64_t i = next++; i < count && !first.seen(); i = next++) {
      try {
        work(i);
      } catch (...) {
        first.record(i, std::current_exception());
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t t = 1; t < std::min(workers, count); ++t) threads.emplace_back(run);
  run();
  threads.clear();
  first.rethrow();
}

std::vector<JsonlFile> open_files(const RowReadOptions& options, DatasetOrigin& origin, Hash64& hash,
                                  Logger& logger) {
  APUS_CHECK(!options.files.empty(), ConfigError, options.flag, " names no file");
  APUS_CHECK(!options.max_length || *options.max_length >= 2, ConfigError, "--max_length is ",
             *options.max_length, ", expected 2 or more");
  std::vector<JsonlFile> files;
  for (const std::string& text : options.files) {
    const DatasetSource source = parse_dataset_source(text, options.flag);
    const JsonlFile& file = files.emplace_back(source, options.flag);
    if (!file.limit_reached())
      logger.warning(options.flag + " " + text + ": the file has only " + std::to_string(file.size()) +
                     " rows");
    origin.files.push_back(file.name());
    add_number(hash, file.size());
    add_text(hash, file.used_bytes());
  }
  add_number(hash, options.max_length.value_or(-1));
  add_number(hash, static_cast<int64_t>(options.truncation));
  return files;
}

void finish_report(const RowReadOptions& options, const DatasetOrigin& origin, Logger& logger) {
  const std::string files = joined(origin.files);
  if (origin.report.trained() == 0) {
    std::string reasons = origin.report.input() == 0 ? "no row at all in it" : origin.report.summary();
    for (const std::string& line : origin.report.details()) reasons += "\n" + line;
    throw DataError(files, 0, "no usable row (" + options.flag + "): " + reasons);
  }
  logger.info(files + ": " + origin.report.summary());
  for (const std::string& line : origin.report.details()) logger.warning(line);
}

}  // namespace apus::data
