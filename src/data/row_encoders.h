#pragma once

#include <memory>

#include "apus/data/dpo_rows.h"
#include "apus/data/prepare.h"
#include "apus/data/sft_rows.h"
#include "apus/data/streamed_rows.h"

namespace apus::data {

/// Encodes a line as `encoder` does and makes it fit.
inline RowEncode<DpoRow> dpo_row_encoder(std::shared_ptr<const DpoEncoder> encoder,
                                         const RowReadOptions& read) {
  return
      [encoder = std::move(encoder), length = read.max_length, how = read.truncation](std::string_view text) {
        EncodedRow<DpoRow> encoded;
        encoded.row = encoder->encode_line(text, encoded.notes);
        encoded.truncated = fit_dpo_row(encoded.row, length, how) == RowFit::kTruncated;
        return encoded;
      };
}

/// As above.
inline RowEncode<SftRow> sft_row_encoder(std::shared_ptr<const SftEncoder> encoder,
                                         const RowReadOptions& read) {
  return
      [encoder = std::move(encoder), length = read.max_length, how = read.truncation](std::string_view text) {
        EncodedRow<SftRow> encoded;
        encoded.row = encoder->encode_line(text, encoded.notes);
        encoded.truncated = fit_sft_row(encoded.row, length, how) == RowFit::kTruncated;
        return encoded;
      };
}

}  // namespace apus::data
