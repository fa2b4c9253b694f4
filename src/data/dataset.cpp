#include "apus/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "apus/base/error.h"
#include "apus/data/collator.h"
#include "apus/data/sampler.h"

namespace apus::data {
Dataset::~Dataset() = default;

std::string Dataset::place_text(int64_t ordinal) const {
  const RowPlace at = place(ordinal);
  const auto& files = origin().files;
  if (at.line == 0 || at.file < 0 || static_cast<size_t>(at.file) >= files.size())
    return "row " + std::to_string(ordinal);
  return files[static_cast<size_t>(at.file)] + ":" + std::to_string(at.line);
}

int64_t Dataset::rows_in(int64_t ordinal) const {
  APUS_CHECK(ordinal >= 0 && ordinal < size(), ShapeError, "row ", ordinal, " is outside the dataset of ",
             size(), " rows");
  return 1;
}

double Dataset::squared_tokens(int64_t ordinal) const {
  const auto count = static_cast<double>(tokens(ordinal));
  return count * count;
}

DpoDataset::DpoDataset(std::vector<DpoRow> rows, DatasetOrigin origin)
    : DpoDataset(in_memory(std::move(rows)), std::move(origin)) {}

DpoDataset::DpoDataset(std::shared_ptr<const RowTable<DpoRow>> rows, DatasetOrigin origin)
    : rows_(std::move(rows)), origin_(std::move(origin)) {}

DpoDataset::~DpoDataset() = default;

Batch DpoDataset::collate(std::span<const int64_t> ordinals, const CollateOptions& options) const {
  std::vector<DpoRow> rows;
  for (const int64_t ordinal : ordinals) rows.push_back(rows_->row(ordinal));
  return collate_dpo(rows, ordinals, options);
}

SftDataset::SftDataset(std::vector<SftRow> rows, DatasetOrigin origin) : origin_(std::move(origin)) {
  std::set<std::string> channels;
  for (const SftRow& row : rows)
    if (!row.channel.empty()) channels.insert(row.channel);
  origin_.channels.assign(channels.begin(), channels.end());
  rows_ = in_memory(std::move(rows));
}

SftDataset::SftDataset(std::shared_ptr<const RowTable<SftRow>> rows, DatasetOrigin origin)
    : rows_(std::move(rows)), origin_(std::move(origin)) {}

SftDataset::~SftDataset() = default;

Batch SftDataset::collate(std::span<const int64_t> ordinals, const CollateOptions& options) const {
  std::vector<SftRow> rows;
  for (const int64_t ordinal : ordinals) rows.push_back(rows_->row(ordinal));
  return collate_sft(rows, ordinals, options);
}

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> ordinals)
    : whole_(std::move(whole)), ordinals_(std::move(ordinals)), origin_(whole_->origin()) {
  for (const int64_t ordinal : ordinals_)
    APUS_CHECK(ordinal >= 0 && ordinal < whole_->size(), ShapeError, "row ", ordinal,
               " is outside the dataset of ", whole_->size(), " rows");
  if (origin_.report.trained() == whole_->size()) origin_.report = origin_.report.part(ordinals_);
}

SubsetDataset::~SubsetDataset() = default;

Batch SubsetDataset::collate(std::span<const int64_t> ordinals, const CollateOptions& options) const {
  std::vector<int64_t> inside;
  for (const int64_t ordinal : ordinals) inside.push_back(inner(ordinal));
  Batch batch = whole_->collate(inside, options);
  if (batch.ordinals == inside) batch.ordinals.assign(ordinals.begin(), ordinals.end());
  return batch;
}

int64_t SubsetDataset::inner(int64_t ordinal) const {
  APUS_CHECK(ordinal >= 0 && ordinal < size(), ShapeError, "row ", ordinal, " is outside the dataset of ",
             size(), " rows");
  return ordinals_[static_cast<size_t>(ordinal)];
}

RowPlace SubsetDataset::place(int64_t ordinal) const {
  return whole_->place(inner(ordinal));
}

int64_t SubsetDataset::tokens(int64_t ordinal) const {
  return whole_->tokens(inner(ordinal));
}

int64_t SubsetDataset::rows_in(int64_t ordinal) const {
  return whole_->rows_in(inner(ordinal));
}

double SubsetDataset::squared_tokens(int64_t ordinal) const {
  return whole_->squared_tokens(inner(ordinal));
}

DatasetSplit split_dataset(std::shared_ptr<const Dataset> dataset, const DatasetSplitOptions& options) {
  APUS_CHECK(options.ratio > 0 && options.ratio < 1, ConfigError, "split_dataset_ratio is ", options.ratio,
             ", expected a number between 0 and 1");
  const int64_t rows = dataset->size();
  const auto share = static_cast<int64_t>(std::floor(static_cast<double>(rows) * options.ratio));
  const int64_t held_out = std::max<int64_t>(1, share);
  APUS_CHECK(held_out < rows, ConfigError, "split_dataset_ratio ", options.ratio, " of ", rows,
             " rows holds out ", held_out, " and leaves none to train on");
  std::vector<int64_t> order = Sampler({.rows = rows, .seed = options.seed}).order(0);
  const auto border = order.begin() + static_cast<std::ptrdiff_t>(held_out);
  std::sort(order.begin(), border);
  std::sort(border, order.end());
  return {std::make_shared<SubsetDataset>(dataset, std::vector<int64_t>(border, order.end())),
          std::make_shared<SubsetDataset>(dataset, std::vector<int64_t>(order.begin(), border))};
}

}  // namespace apus::data
