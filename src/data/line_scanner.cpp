#include "data/row_scanner.h"

namespace apus::data {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

class LineScanner final : public RowScanner {
 public:
  explicit LineScanner(const RowScannerOptions& options)
      : options_(options), line_(options.first_line), partial_(options.max_row_bytes) {}

  size_t feed(std::string_view text, int64_t most_rows, RowBlock& block) override {
    size_t at = 0;
    while (at < text.size() && block.size() < most_rows && block.bytes() < options_.block_bytes) {
      const size_t newline = text.find('\n', at);
      const std::string_view piece =
          text.substr(at, newline == std::string_view::npos ? newline : newline - at);
      at += piece.size();
      partial_.append(piece);
      if (newline == std::string_view::npos) break;
      end_line(block);
      ++at;
    }
    return at;
  }

  void finish(RowBlock& block) override { end_line(block); }

 private:
  void end_line(RowBlock& block) {
    if (partial_.is_too_long()) {
      block.add_too_long(line_);
    } else if (!is_blank(partial_.text())) {
      block.add(without_return(partial_.text()), line_);
    }
    partial_.clear();
    ++line_;
  }

  RowScannerOptions options_;
  int64_t line_;
  PartialRow partial_;
};

}  // namespace

std::unique_ptr<RowScanner> make_line_scanner(const RowScannerOptions& options) {
  return std::make_unique<LineScanner>(options);
}

}  // namespace apus::data
