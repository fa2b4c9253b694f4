#include "data/row_files.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/base/log.h"

namespace apus::data {
namespace {

/// Text is about so many times longer than its packed form.
constexpr int64_t kUsualRatio = 6;
/// For #N: rows are hardly longer.
constexpr int64_t kLongRowBytes = 16384;

int64_t text_bytes_of(const DatasetSource& source, const RowStream& stream) {
  const int64_t bytes =
      stream.file_bytes() * (stream.compression() == RowCompression::kNone ? 1 : kUsualRatio);
  return source.limit ? std::min(bytes / kLongRowBytes + 1, *source.limit) * kLongRowBytes : bytes;
}

}  // namespace

RowFiles::RowFiles(const RowReadOptions& options) : flag_(options.flag) {
  APUS_CHECK(!options.files.empty(), ConfigError, options.flag, " names no file");
  APUS_CHECK(!options.max_length || *options.max_length >= 2, ConfigError, "--max_length is ",
             *options.max_length, ", expected 2 or more");
  for (const std::string& text : options.files) {
    sources_.push_back(parse_dataset_source(text, options.flag));
    const RowStream stream(sources_.back(), stream_options());
    all_bytes_ += stream.file_bytes();
    text_bytes_ += text_bytes_of(sources_.back(), stream);
  }
  rows_read_.resize(sources_.size());
}

std::optional<FileBlock> RowFiles::next() {
  FileBlock block;
  while (!current_ || !current_->next(block.rows)) {
    if (current_) bytes_before_ += current_->file_bytes();
    current_.reset();
    if (file_ + 1 == static_cast<int32_t>(sources_.size())) return std::nullopt;
    current_.emplace(sources_[static_cast<size_t>(++file_)], stream_options());
  }
  block.file = file_;
  if (current_->layout() == RowLayout::kArray) block.first_element = current_->rows() - block.rows.size() + 1;
  rows_read_[static_cast<size_t>(file_)] += block.rows.size();
  return block;
}

std::vector<std::string> RowFiles::names() const {
  std::vector<std::string> names;
  for (const DatasetSource& source : sources_) names.push_back(source.path.string());
  return names;
}

double RowFiles::share_read() const {
  const int64_t read = bytes_before_ + (current_ ? current_->read_bytes() : 0);
  return all_bytes_ == 0 ? 1.0 : static_cast<double>(read) / static_cast<double>(all_bytes_);
}

void warn_of_short_files(const RowReadOptions& options, const std::vector<int64_t>& rows_read,
                         Logger& logger) {
  for (size_t f = 0; f < rows_read.size(); ++f) {
    const DatasetSource source = parse_dataset_source(options.files[f], options.flag);
    if (source.limit && rows_read[f] < *source.limit)
      logger.warning(options.flag + " " + options.files[f] + ": the file has only " +
                     std::to_string(rows_read[f]) + " rows");
  }
}

}  // namespace apus::data
