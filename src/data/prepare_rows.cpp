#include "data/prepare_rows.h"

#include <set>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/log.h"
#include "data/encode_block.h"
#include "data/ordered_pipeline.h"
#include "data/prepared_report.h"
#include "data/row_cache.h"
#include "data/row_cache_key.h"
#include "data/row_file.h"
#include "data/row_files.h"
#include "data/row_fingerprint.h"
#include "data/row_json.h"

namespace apus::data {
namespace {

constexpr RowKind kind_of(const SftRow*) {
  return RowKind::kSft;
}
constexpr RowKind kind_of(const DpoRow*) {
  return RowKind::kDpo;
}

void add_channel(const SftRow& row, std::set<std::string>& channels) {
  if (!row.channel.empty() && !channels.contains(row.channel)) channels.insert(row.channel);
}
void add_channel(const DpoRow& /*row*/, std::set<std::string>& /*channels*/) {}

/// The command that takes a row which this task does not; empty if its shape is no other task's.
std::string remedy_for(std::string_view text, const ColumnMap& columns, DataTask task) {
  std::optional<DataTask> other;
  try {
    nlohmann::ordered_json row = parse_row(text);
    columns.apply(row);
    other = row.is_object() ? task_of_row(row) : std::nullopt;
  } catch (const RowRefused&) {
    return "";  // broken, which is said of it already
  }
  if (!other || *other == task) return "";
  if (*other == DataTask::kTokenRows) return "such rows are token ids: train them in a run of their own";
  const std::string command = detail::concat("`apus ", data_task_name(*other), "` takes such rows");
  return task == DataTask::kTokenRows ? command + ", in a run without token ids" : command;
}

/// What a worker makes of a block of text.
struct PreparedBlock {
  int32_t file = 0;
  RowRecords records;
  std::vector<uint64_t> hashes;       // of each row that was read: its text, and what became of it
  std::vector<uint64_t> text_hashes;  // of its text alone
  std::vector<std::pair<RowPlace, RowProblem>> dropped;
  std::string first_remedy;  // for the first row that is dropped
  NoteLog notes;
  std::set<std::string> channels;
  std::string first_text;    // of the first row that is used
  std::string unknown_text;  // of the first row of no known shape
};

/// Collects what becomes of each file.
class OutcomeLog {
 public:
  explicit OutcomeLog(size_t files) : outcomes_(files), hashes_(files) {}

  void add(const PreparedBlock& block) {
    const auto file = static_cast<size_t>(block.file);
    hashes_[file].update(std::as_bytes(std::span(block.text_hashes)));
    if (outcomes_[file].first_drop || block.dropped.empty()) return;
    const auto& [place, problem] = block.dropped.front();
    outcomes_[file].first_drop = {.line = place.line, .problem = problem, .remedy = block.first_remedy};
  }

  std::vector<FileOutcome> finish(const std::vector<int64_t>& rows_read) {
    for (size_t f = 0; f < outcomes_.size(); ++f) {
      outcomes_[f].read = rows_read[f];
      outcomes_[f].fingerprint = to_hex(hashes_[f].digest());
    }
    return std::move(outcomes_);
  }

 private:
  std::vector<FileOutcome> outcomes_;
  std::vector<Hash64> hashes_;
};

/// The number of the layout of what is stored beside the rows; counts up when refusals change, too.
constexpr int kDescriptionVersion = 4;

/// "3 MiB", or less in KiB.
std::string size_text(int64_t bytes) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  return bytes >= kMiB ? detail::concat(bytes / kMiB, " MiB") : detail::concat((bytes + 1023) / 1024, " KiB");
}

/// Says every few seconds how far preparing has come.
class ProgressLine {
 public:
  ProgressLine(const Clock& clock, Logger& logger)
      : clock_(clock), logger_(logger), start_(clock.steady_now()), next_(start_ + kInterval) {}

  void tick(int64_t rows, double share) {
    const Clock::Duration now = clock_.steady_now();
    if (now < next_) return;
    next_ = now + kInterval;
    const double seconds = seconds_between(start_, now);
    logger_.info("preparing rows: " + std::to_string(rows) + " so far, " +
                 std::to_string(static_cast<int>(100 * share)) + " % of the files read, " +
                 std::to_string(static_cast<int64_t>(static_cast<double>(rows) / seconds)) + " rows/s");
  }

 private:
  static constexpr Clock::Duration kInterval = std::chrono::seconds(5);
  const Clock& clock_;
  Logger& logger_;
  Clock::Duration start_;
  Clock::Duration next_;
};

template <typename Row>
class Preparation {
 public:
  Preparation(const RowReadOptions& options, const RowsPlan<Row>& plan, Logger& logger)
      : options_(options), plan_(plan), logger_(logger), files_(options), names_(files_.names()) {}

  PreparedRows<Row> run() {
    std::shared_ptr<const RowFile> file;
    if (options_.cache_folder && plan_.not_cached)
      logger_.info("rows are not taken from or put into the cache: " + *plan_.not_cached);
    else if (options_.cache_folder)
      file = through_cache(*options_.cache_folder / "rows");
    NullLogger quiet;  // a folder that takes no temporary file was told for the first of them
    if (!file) file = build(temporary_sink(logger_), nullptr, quiet);
    return finish(std::move(file));
  }

 private:
  /// None, with a warning, if the folder cannot be used.
  std::shared_ptr<const RowFile> through_cache(const std::filesystem::path& folder) {
    try {
      return through_cache_or_throw({.folder = folder, .max_bytes = options_.max_cache_bytes});
    } catch (const FileError& error) {
      if (!error.path().string().starts_with(folder.string())) throw;
      logger_.warning(std::string("rows are not cached: ") + error.what());
      return nullptr;
    }
  }

  std::shared_ptr<const RowFile> through_cache_or_throw(const RowCacheOptions& cache_options) {
    const RowCacheKey key = cache_key();
    const RowCache cache(cache_options, key, kKind);
    if (auto file = cache.find(logger_)) return said_cached(std::move(file));
    const auto lock = cache.lock(clock_, logger_);
    NullLogger quiet;  // what is wrong with an entry was said
    if (auto file = cache.find(quiet)) return said_cached(std::move(file));
    if (!has_room(cache_options.folder)) return nullptr;
    cache.remove_leftovers();
    auto file = build(named_sink(cache.path()), key, logger_);
    logger_.info(
        detail::concat("prepared rows are kept in ", file->name(), " (", size_text(file->bytes()), ")"));
    cache.evict(logger_);
    return file;
  }

  RowCacheKey cache_key() const {
    RowCacheKey key = plan_.key_only;
    key["layout"] = kRowFileVersion;
    key["description"] = kDescriptionVersion;
    key["version"] = APUS_VERSION;
    key["kind"] = kKind == RowKind::kSft ? "sft" : "dpo";
    key["options"] = plan_.options;
    key["strict"] = options_.strict;
    for (const DatasetSource& source : files_.sources())
      key["files"].push_back(content_in_key(source, options_.flag));
    return key;
  }

  std::shared_ptr<const RowFile> said_cached(std::shared_ptr<const RowFile> file) {
    logger_.info("prepared rows come from the cache: " + file->name());
    return file;
  }

  bool has_room(const std::filesystem::path& folder) {
    const int64_t wanted = files_.text_bytes() + files_.text_bytes() / 2;
    const int64_t there = free_bytes(folder);
    if (there >= wanted) return true;
    logger_.warning(detail::concat("rows are not cached: ", folder.string(), " has ", there >> 20,
                                   " MiB left, about ", wanted >> 20,
                                   " MiB are needed; free space there or set "
                                   "APUS_CACHE_DIR"));
    return false;
  }

  /// Prepares all rows. Reads the files from the start, as often as it is called.
  std::shared_ptr<const RowFile> build(std::unique_ptr<RowSink> sink, const RowCacheKey& key,
                                       Logger& index_logger) {
    RowFiles files(options_);
    RowFileWriter writer(std::move(sink), kKind, index_logger);
    PreparedDescription description{.key = key};
    Hash64 fingerprint;
    add_text(fingerprint, text_of_key(plan_.options));
    OutcomeLog outcomes(names_.size());
    std::optional<std::string> first_text;
    std::string unknown_text;
    ProgressLine progress(clock_, logger_);
    int64_t rows = 0;
    OrderedPipeline<FileBlock, PreparedBlock> pipeline(
        {.workers = plan_.workers}, [&] { return read_block(files); },
        [&](FileBlock block) { return prepare_block(block); });
    while (std::optional<PreparedBlock> block = pipeline.next()) {
      if (!first_text && !block->records.entries.empty()) first_text = std::move(block->first_text);
      if (unknown_text.empty()) unknown_text = std::move(block->unknown_text);
      description.notes.add(block->notes);
      description.channels.merge(block->channels);
      writer.append(block->records);
      fingerprint.update(std::as_bytes(std::span(block->hashes)));
      outcomes.add(*block);
      for (auto& [place, problem] : block->dropped) description.dropped.add(place, std::move(problem));
      rows += static_cast<int64_t>(block->hashes.size());
      progress.tick(rows, files.share_read());
    }
    description.files = outcomes.finish(files.rows_read());
    if (!first_text) fail_without_rows(description, unknown_text);
    for (const FileOutcome& file : description.files) add_number(fingerprint, file.read);
    description.fingerprint = to_hex(fingerprint.digest());
    description.note = plan_.note(*first_text);
    return std::make_shared<const RowFile>(writer.finish(description.text()), kKind);
  }

  static std::optional<PipelineItem<FileBlock>> read_block(RowFiles& files) {
    std::optional<FileBlock> block = files.next();
    if (!block) return std::nullopt;
    const int64_t bytes = block->rows.bytes();
    return PipelineItem<FileBlock>{std::move(*block), bytes};
  }

  PreparedBlock prepare_block(const FileBlock& block) const {
    PreparedBlock out{.file = block.file};
    const std::string& name = names_[static_cast<size_t>(block.file)];
    for (int64_t i = 0; i < block.rows.size(); ++i) {
      Hash64 hash;
      add_text(hash, block.rows.text(i));
      out.text_hashes.push_back(hash.digest());
      RowOutcome<Row> outcome = encode_row<Row>(block, i, name, options_.strict, plan_.encode);
      if (outcome.problem) {
        if (out.unknown_text.empty() && outcome.problem->code == "unknown_form")
          out.unknown_text = block.rows.text(i);
        if (out.dropped.empty()) out.first_remedy = remedy_for(block.rows.text(i), plan_.columns, plan_.task);
        out.dropped.emplace_back(RowPlace{block.file, block.rows.line(i)}, std::move(*outcome.problem));
      } else {
        if (out.records.entries.empty()) out.first_text = block.rows.text(i);
        out.notes.add(outcome.encoded.notes);
        add_channel(outcome.encoded.row, out.channels);
        out.records.add(outcome.encoded.row, outcome.encoded.truncated);
        add_row(hash, outcome.encoded.row);
      }
      out.hashes.push_back(hash.digest());
    }
    return out;
  }

  [[noreturn]] void fail_without_rows(const PreparedDescription& description,
                                      const std::string& unknown_text) const {
    RowReport report;
    description.dropped.add_to(report, names_);
    if (options_.none_usable) *options_.none_usable = report;
    for (const std::string& line : report.details()) logger_.warning(line);
    const bool has_hint = !plan_.columns.empty() && !unknown_text.empty();
    throw_no_usable_row({names_, options_.flag}, report, description.files,
                        has_hint ? plan_.columns.inversion_hint(parse_row(unknown_text)) : "");
  }

  PreparedRows<Row> finish(std::shared_ptr<const RowFile> file) {
    PreparedDescription description = PreparedDescription::parse(file->description(), file->name());
    DatasetOrigin origin{.files = names_,
                         .report = report_of(*file, description.dropped, names_),
                         .fingerprint = std::move(description.fingerprint),
                         .note = std::move(description.note),
                         .channels = {description.channels.begin(), description.channels.end()}};
    for (const FileOutcome& outcome : description.files) {
      origin.rows_read.push_back(outcome.read);
      origin.file_fingerprints.push_back(outcome.fingerprint);
    }
    const std::vector<DataError> unusable = unusable_files({names_, options_.flag}, *file, description.files);
    for (const DataError& error : unusable) origin.unusable.emplace_back(error.what());
    warn_of_short_files(options_, origin.rows_read, logger_);
    log_report(names_, origin.report, logger_);
    log_notes(names_, description.notes, plan_.columns, logger_);
    // Half of the data would be lost with no more than a warning.
    if (!unusable.empty() && !options_.none_usable) throw DataError(unusable.front());
    return {std::make_shared<RowFileTable<Row>>(std::move(file)), std::move(origin)};
  }

  static constexpr RowKind kKind = kind_of(static_cast<const Row*>(nullptr));
  const RowReadOptions& options_;
  const RowsPlan<Row>& plan_;
  Logger& logger_;
  RowFiles files_;
  std::vector<std::string> names_;
  SystemClock system_clock_;
  const Clock& clock_ = options_.clock ? *options_.clock : system_clock_;
};

}  // namespace

template <typename Row>
PreparedRows<Row> prepare_rows(const RowReadOptions& options, const RowsPlan<Row>& plan, Logger& logger) {
  APUS_CHECK(plan.workers >= 1, ConfigError, "workers is ", plan.workers, ", expected 1 or more");
  return Preparation<Row>(options, plan, logger).run();
}

template PreparedRows<SftRow> prepare_rows(const RowReadOptions&, const RowsPlan<SftRow>&, Logger&);
template PreparedRows<DpoRow> prepare_rows(const RowReadOptions&, const RowsPlan<DpoRow>&, Logger&);

}  // namespace apus::data
