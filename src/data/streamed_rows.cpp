#include "apus/data/streamed_rows.h"

#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "data/encode_block.h"
#include "data/ordered_pipeline.h"
#include "data/row_encoders.h"

namespace apus::data {

RowProblem too_long_row() {
  const int64_t mebibytes = RowStreamOptions().max_row_bytes >> 20;
  return {"row of more than " + std::to_string(mebibytes) + " MiB", {}, "row_too_big"};
}

namespace {

template <typename Row>
struct EncodedBlock {
  int32_t file = 0;
  std::vector<int64_t> lines;
  std::vector<RowOutcome<Row>> rows;
};

std::optional<PipelineItem<FileBlock>> read_block(RowFiles& files) {
  std::optional<FileBlock> block = files.next();
  if (!block) return std::nullopt;
  const int64_t bytes = block->rows.bytes();
  return PipelineItem<FileBlock>{std::move(*block), bytes};
}

}  // namespace

template <typename Row>
struct StreamedRows<Row>::State {
  State(StreamedRowsOptions stream_options, RowEncode<Row> row_encode)
      : options(std::move(stream_options)),
        encode(std::move(row_encode)),
        files(options.read),
        names(files.names()),
        buffer(options.shuffle),
        pipeline(
            {.workers = options.workers}, [this] { return read_block(files); },
            [this](FileBlock block) { return encode_block(block); }) {}

  EncodedBlock<Row> encode_block(const FileBlock& block) const {
    EncodedBlock<Row> out{.file = block.file};
    for (int64_t i = 0; i < block.rows.size(); ++i) {
      out.lines.push_back(block.rows.line(i));
      const std::string& name = names[static_cast<size_t>(block.file)];
      out.rows.push_back(encode_row<Row>(block, i, name, options.read.strict, encode));
    }
    return out;
  }

  /// The next row in the order of the files; none after the last.
  std::optional<Row> next_in_order() {
    while (true) {
      if (at == block.rows.size()) {
        std::optional<EncodedBlock<Row>> more = pipeline.next();
        if (!more) return std::nullopt;
        block = std::move(*more);
        at = 0;
        continue;
      }
      RowOutcome<Row>& outcome = block.rows[at];
      const int64_t line = block.lines[at++];
      if (outcome.problem) {
        report.add_dropped(names[static_cast<size_t>(block.file)], line, *outcome.problem);
        continue;
      }
      outcome.encoded.truncated ? report.add_truncated_in_stream() : report.add_whole();
      return std::move(outcome.encoded.row);
    }
  }

  StreamedRowsOptions options;
  RowEncode<Row> encode;
  RowFiles files;
  std::vector<std::string> names;
  RowReport report;
  ShuffleBuffer<Row> buffer;
  EncodedBlock<Row> block;
  size_t at = 0;
  OrderedPipeline<FileBlock, EncodedBlock<Row>> pipeline;  // last: its threads use the others
};

template <typename Row>
StreamedRows<Row>::StreamedRows(StreamedRowsOptions options, RowEncode<Row> encode) {
  APUS_CHECK(options.workers >= 1, ConfigError, "workers is ", options.workers, ", expected 1 or more");
  state_ = std::make_unique<State>(std::move(options), std::move(encode));
}

template <typename Row>
StreamedRows<Row>::~StreamedRows() = default;

template <typename Row>
std::optional<Row> StreamedRows<Row>::next() {
  while (std::optional<Row> row = state_->next_in_order()) {
    std::optional<Row> out = state_->buffer.push(std::move(*row));
    if (out) return out;
  }
  return state_->buffer.drain();
}

template <typename Row>
const RowReport& StreamedRows<Row>::report() const {
  return state_->report;
}

template class APUS_API StreamedRows<DpoRow>;
template class APUS_API StreamedRows<SftRow>;

std::unique_ptr<StreamedRows<DpoRow>> stream_dpo(const TokenizerFolder& tokenizer,
                                                 const DpoPrepareOptions& options,
                                                 const ShuffleBufferOptions& shuffle) {
  return std::make_unique<StreamedRows<DpoRow>>(
      StreamedRowsOptions{.read = options.read, .workers = options.workers, .shuffle = shuffle},
      dpo_row_encoder(std::make_shared<DpoEncoder>(tokenizer, options.encode), options.read));
}

std::unique_ptr<StreamedRows<SftRow>> stream_sft(const TokenizerFolder& tokenizer,
                                                 const SftPrepareOptions& options,
                                                 const ShuffleBufferOptions& shuffle) {
  return std::make_unique<StreamedRows<SftRow>>(
      StreamedRowsOptions{.read = options.read, .workers = options.workers, .shuffle = shuffle},
      sft_row_encoder(std::make_shared<SftEncoder>(tokenizer, options.encode), options.read));
}

}  // namespace apus::data
