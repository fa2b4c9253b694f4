#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "apus/data/dpo_rows.h"
#include "apus/data/prepare.h"
#include "apus/data/sft_rows.h"
#include "apus/data/streamed_rows.h"

namespace apus::data {

/// Encodes a line as `encoder` does and makes it fit by `fit`.
template <typename Row, typename Encoder>
RowEncode<Row> fitting_row_encoder(std::shared_ptr<const Encoder> encoder, const RowReadOptions& read,
                                   RowFit (*fit)(Row&, std::optional<int64_t>, Truncation)) {
  return [encoder = std::move(encoder), length = read.max_length, how = read.truncation,
          fit](std::string_view text) {
    EncodedRow<Row> encoded;
    encoded.row = encoder->encode_line(text, encoded.notes);
    encoded.truncated = fit(encoded.row, length, how) == RowFit::kTruncated;
    return encoded;
  };
}

/// Preference rows.
inline RowEncode<DpoRow> dpo_row_encoder(std::shared_ptr<const DpoEncoder> encoder,
                                         const RowReadOptions& read) {
  return fitting_row_encoder<DpoRow>(std::move(encoder), read, &fit_dpo_row);
}

/// Rows of conversations and texts.
inline RowEncode<SftRow> sft_row_encoder(std::shared_ptr<const SftEncoder> encoder,
                                         const RowReadOptions& read) {
  return fitting_row_encoder<SftRow>(std::move(encoder), read, &fit_sft_row);
}

}  // namespace apus::data
