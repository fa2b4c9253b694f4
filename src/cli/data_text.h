#pragma once

#include <string>

#include "apus/train/data_look.h"

namespace apus::cli {

/// How a look is shown.
struct DataTextOptions {
  /// Colours for the trained and the other parts of rows.
  bool colours = false;
  /// Longest text of a row's part, in bytes; the rest is counted.
  size_t max_part_bytes = 2000;
};

/// A look as text for people: counts, lengths with a histogram, first rows with their masks, packing,
/// batches.
std::string data_text(const train::DataLook& look, const DataTextOptions& options = {});

}  // namespace apus::cli
