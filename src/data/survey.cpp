#include "apus/data/survey.h"

#include <algorithm>
#include <bit>

#include "apus/base/error.h"
#include "apus/data/prepare.h"
#include "apus/data/row_stream.h"

namespace apus::data {
namespace {

constexpr int64_t kMostBins = 16;
constexpr int kPercentiles[] = {50, 75, 90, 95, 99};

int64_t rows_of_file(const std::string& text, const std::string& flag) {
  RowStream stream(parse_dataset_source(text, flag), {.flag = flag});
  RowBlock block;
  while (stream.next(block)) {
  }
  return stream.rows();
}

/// What was read of each file, where the dataset knows.
std::vector<FileCounts> files_of(const DatasetOrigin& origin) {
  std::vector<FileCounts> counts;
  for (size_t f = 0; f < origin.rows_read.size(); ++f)
    counts.push_back({.file = origin.files.at(f), .read = origin.rows_read[f]});
  return counts;
}

std::vector<std::vector<int64_t>> ordinals_by_file(const Dataset& dataset, size_t files) {
  std::vector<std::vector<int64_t>> ordinals(files);
  for (int64_t i = 0; i < dataset.size(); ++i)
    ordinals.at(static_cast<size_t>(dataset.place(i).file)).push_back(i);
  return ordinals;
}

/// Answer tokens that something predicts.
int64_t trained_of(int64_t length, size_t answer) {
  const auto tokens = static_cast<int64_t>(answer);
  return tokens == length ? std::max<int64_t>(0, tokens - 1) : tokens;
}

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<LengthBin> histogram_of(const std::vector<int64_t>& sorted) {
  const int64_t first = sorted.front();
  const auto span = static_cast<uint64_t>(sorted.back() - first);
  const auto width = static_cast<int64_t>(std::bit_ceil(span / kMostBins + 1));
  std::vector<LengthBin> bins;
  for (int64_t begin = first; begin <= sorted.back(); begin += width)
    bins.push_back({begin, begin + width, 0});
  for (const int64_t length : sorted) ++bins[static_cast<size_t>((length - first) / width)].count;
  return bins;
}

/// The least length that `percent` of the sorted ones do not exceed.
int64_t percentile(const std::vector<int64_t>& sorted, int percent) {
  const size_t rank = (sorted.size() * static_cast<size_t>(percent) + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

/// One micro-batch's share of a survey.
void add_micro_batch(const Dataset& dataset, std::span<const RowLengths> rows,
                     std::span<const int64_t> ordinals, BatchSurvey& survey) {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t longest = 0;
  for (const int64_t ordinal : ordinals) {
    tokens += dataset.tokens(ordinal);
    if (rows.empty()) continue;
    const RowLengths& row = rows[static_cast<size_t>(ordinal)];
    sequences += row.second > 0 ? 2 : 1;
    longest = std::max({longest, row.first, row.second});
  }
  const int64_t padded = rows.empty() ? tokens : sequences * longest;
  survey.tokens += tokens;
  survey.padded_tokens += padded;
  survey.largest = std::max(survey.largest, tokens);
  survey.largest_padded = std::max(survey.largest_padded, padded);
}

/// The ordinals of each micro-batch of a step, over all ranks.
std::vector<std::vector<int64_t>> micro_batches_of(const Dataset& dataset, std::span<const int64_t> step,
                                                   const BatchSurveyOptions& options) {
  const StepPlanOptions& plan = options.plan.options();
  std::vector<std::vector<int64_t>> chunks;
  if (!options.balance) {
    const auto size = static_cast<size_t>(plan.micro_batch_rows);
    for (size_t begin = 0; begin < step.size(); begin += size) {
      const auto chunk = step.subspan(begin, std::min(size, step.size() - begin));
      chunks.emplace_back(chunk.begin(), chunk.end());
    }
    return chunks;
  }
  std::vector<double> costs;
  for (const int64_t ordinal : step) costs.push_back(row_cost(dataset, ordinal, *options.balance));
  chunks = balance_step(costs, {.micro_batch_rows = plan.micro_batch_rows, .world = plan.world});
  for (auto& chunk : chunks)
    for (int64_t& index : chunk) index = step[static_cast<size_t>(index)];
  return chunks;
}

}  // namespace

double LengthSummary::mean() const {
  return ratio(tokens, sequences);
}

double LengthSummary::trained_share() const {
  return ratio(trained_tokens, tokens);
}

double BatchSurvey::padding_share() const {
  return ratio(padded_tokens - tokens, padded_tokens);
}

std::vector<FileCounts> count_unusable_files(const RowReadOptions& options) {
  std::vector<FileCounts> counts;
  for (const std::string& file : options.files) {
    const int64_t read = rows_of_file(file, options.flag);
    counts.push_back({.file = file, .read = read, .dropped = read});
  }
  return counts;
}

std::vector<FileCounts> count_files(const Dataset& dataset, const RowReadOptions& options) {
  std::vector<FileCounts> counts = files_of(dataset.origin());
  if (counts.empty()) counts = count_unusable_files(options);
  const auto ordinals = ordinals_by_file(dataset, counts.size());
  for (size_t f = 0; f < counts.size(); ++f) {
    const RowReport part = dataset.origin().report.part(ordinals[f]);
    counts[f].whole = part.whole();
    counts[f].truncated = part.truncated();
    counts[f].dropped = counts[f].read - part.trained();
  }
  return counts;
}

std::vector<FileCounts> counts_of_part(std::vector<FileCounts> whole, const Dataset& part) {
  const auto ordinals = ordinals_by_file(part, whole.size());
  for (size_t f = 0; f < whole.size(); ++f) {
    const RowReport kept = part.origin().report.part(ordinals[f]);
    FileCounts& file = whole[f];
    file.held_out += file.whole + file.truncated - kept.trained();
    file.whole = kept.whole();
    file.truncated = kept.truncated();
  }
  return whole;
}

std::vector<RowLengths> measure_rows(const DpoDataset& dataset) {
  std::vector<RowLengths> rows;
  rows.reserve(static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const DpoRow row = dataset.row(i);
    const int64_t chosen = row.chosen_length();
    const int64_t rejected = row.rejected_length();
    rows.push_back(
        {chosen, rejected,
         trained_of(chosen, row.chosen_ids.size()) + trained_of(rejected, row.rejected_ids.size())});
  }
  return rows;
}

std::vector<RowLengths> measure_rows(const SftDataset& dataset) {
  std::vector<RowLengths> rows;
  rows.reserve(static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const SftRow row = dataset.row(i);
    rows.push_back({row.length(), 0, row.trained_tokens()});
  }
  return rows;
}

LengthSummary summarize_lengths(std::span<const RowLengths> rows) {
  LengthSummary summary;
  std::vector<int64_t> lengths;
  for (const RowLengths& row : rows) {
    lengths.push_back(row.first);
    if (row.second > 0) lengths.push_back(row.second);
    summary.tokens += row.tokens();
    summary.trained_tokens += row.trained;
  }
  if (lengths.empty()) return summary;
  std::ranges::sort(lengths);
  summary.sequences = static_cast<int64_t>(lengths.size());
  summary.shortest = lengths.front();
  summary.longest = lengths.back();
  for (const int percent : kPercentiles)
    summary.percentiles.emplace_back(percent, percentile(lengths, percent));
  summary.histogram = histogram_of(lengths);
  return summary;
}

BatchSurvey survey_batches(const Dataset& dataset, std::span<const RowLengths> rows,
                           const BatchSurveyOptions& options) {
  APUS_CHECK(rows.empty() || static_cast<int64_t>(rows.size()) == dataset.size(), ShapeError, "lengths of ",
             rows.size(), " rows for a dataset of ", dataset.size());
  APUS_CHECK(
      options.plan.options().rows == dataset.size() && options.sampler.options().rows == dataset.size(),
      ConfigError, "the plan has ", options.plan.options().rows, " rows, the sampler ",
      options.sampler.options().rows, ", the dataset ", dataset.size());
  BatchSurvey survey{.steps = options.plan.steps_per_epoch()};
  const std::vector<int64_t> order = options.sampler.order(0);
  for (int64_t step = 0; step < survey.steps; ++step) {
    const OrderRange range = options.plan.step_range(step);
    const std::span<const int64_t> ordinals =
        std::span(order).subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
    survey.rows += range.count;
    survey.micro_batches += options.plan.micro_batches(step) * options.plan.options().world;
    for (const auto& chunk : micro_batches_of(dataset, ordinals, options))
      add_micro_batch(dataset, rows, chunk, survey);
  }
  return survey;
}

std::vector<RowLengths> lengths_of_part(const Dataset& part, const Dataset& whole,
                                        std::span<const RowLengths> lengths) {
  APUS_CHECK(static_cast<int64_t>(lengths.size()) == whole.size(), ShapeError, "lengths of ", lengths.size(),
             " rows for a dataset of ", whole.size());
  std::vector<RowLengths> found;
  int64_t at = 0;
  for (int64_t i = 0; i < part.size(); ++i, ++at) {
    while (at < whole.size() && whole.place(at) != part.place(i)) ++at;
    APUS_CHECK(at < whole.size(), ShapeError, "row ", i, " of the part (", part.place_text(i),
               ") does not follow in the whole dataset");
    found.push_back(lengths[static_cast<size_t>(at)]);
  }
  return found;
}

}  // namespace apus::data
