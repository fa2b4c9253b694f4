#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/data/rows_report.h"
#include "apus/data/streamed_rows.h"
#include "data/row_files.h"

namespace apus::data {

/// A row that can be used, or why not; one of the two.
template <typename Row>
struct RowOutcome {
  EncodedRow<Row> encoded = {};
  std::optional<RowProblem> problem = {};
};

/// The problem of a row whose text was left out.
RowProblem too_long_row();

/// Encodes row `index` of a block; a refusal is put into the outcome, or under `strict` thrown with its
/// place.
template <typename Row>
RowOutcome<Row> encode_row(const FileBlock& block, int64_t index, const std::string& file, bool strict,
                           const RowEncode<Row>& encode) {
  const int64_t line = block.rows.line(index);
  const int64_t element = block.first_element == 0 ? 0 : block.first_element + index;
  try {
    if (block.rows.is_too_long(index)) throw RowRefused(too_long_row());
    RowOutcome<Row> outcome{.encoded = encode(block.rows.text(index))};
    outcome.encoded.row.place = {block.file, line};
    return outcome;
  } catch (const RowRefused& refused) {
    if (strict && element == 0) throw DataError(file, line, refused.what());
    if (strict) throw DataError(row_place_text(file, line, element), 0, refused.what());
    RowOutcome<Row> outcome{.problem = refused.problem()};
    outcome.problem->element = element;
    return outcome;
  } catch (const NotSupported& error) {
    throw NotSupported(row_place_text(file, line, element) + ": " + error.what());
  }
}

}  // namespace apus::data
