#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "apus/data/row_stream.h"

namespace apus::data {

/// Where scanning starts and stops.
struct RowScannerOptions {
  /// Names the file in errors.
  std::string name = {};
  /// 1-based line of the first byte.
  int64_t first_line = 1;
  /// As RowStreamOptions has them.
  int64_t block_bytes = 0;
  int64_t max_row_bytes = 0;
};

/// Finds rows in a text that arrives in pieces.
class RowScanner {
 public:
  virtual ~RowScanner() = default;
  /// Takes bytes off the front of `text`, appends the rows that end in them to `block`, and stops once that
  /// has block_bytes or `most_rows` rows. Returns how many bytes were taken.
  virtual size_t feed(std::string_view text, int64_t most_rows, RowBlock& block) = 0;
  /// After the last byte.
  virtual void finish(RowBlock& block) = 0;
};

/// For JSON Lines.
std::unique_ptr<RowScanner> make_line_scanner(const RowScannerOptions& options);

/// For a JSON array; the text must start with its bracket. Throws DataError with the line where it is broken.
std::unique_ptr<RowScanner> make_array_scanner(const RowScannerOptions& options);

/// A row of which some pieces have come; lets go of one that gets too long.
class PartialRow final {
 public:
  explicit PartialRow(int64_t max_bytes) : max_bytes_(static_cast<size_t>(max_bytes)) {}

  void append(std::string_view piece) {
    too_long_ = too_long_ || text_.size() + piece.size() > max_bytes_;
    too_long_ ? text_.clear() : void(text_.append(piece));
  }
  std::string_view text() const { return text_; }
  bool is_empty() const { return text_.empty() && !too_long_; }
  bool is_too_long() const { return too_long_; }
  /// Appends the row to the block, and starts anew.
  void move_to(RowBlock& block, int64_t line) {
    too_long_ ? block.add_too_long(line) : block.add(text_, line);
    clear();
  }
  void clear() {
    text_.clear();
    too_long_ = false;
  }

 private:
  size_t max_bytes_;
  std::string text_;
  bool too_long_ = false;
};

}  // namespace apus::data
