#include "cli/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

constexpr int kLeastBar = 6;
constexpr int kMostBar = 40;
constexpr const char* kFilled = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

std::string formatted(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

double share_done(const ProgressFigures& figures) {
  if (figures.max_steps <= 0) return 0;
  return std::clamp(static_cast<double>(figures.step) / static_cast<double>(figures.max_steps), 0.0, 1.0);
}

/// A field of the line; `rank` says when it goes: the highest first.
struct Field {
  int rank = 0;
  std::string text;
};

std::vector<Field> fields_of(const ProgressFigures& figures) {
  std::vector<Field> fields = {{1, detail::concat(figures.step, "/", figures.max_steps)}};
  if (figures.loss) fields.push_back({2, "loss " + formatted("%.4f", *figures.loss)});
  if (figures.learning_rate) fields.push_back({5, "lr " + formatted("%.2e", *figures.learning_rate)});
  if (figures.tokens_per_second)
    fields.push_back({4, formatted("%.0f", *figures.tokens_per_second) + " tokens/s"});
  const std::string left = figures.remaining_seconds ? clock_text(*figures.remaining_seconds) : "?";
  fields.push_back({3, clock_text(figures.elapsed_seconds) + "<" + left});
  return fields;
}

int width_of(const std::vector<Field>& fields) {
  int width = 4;  // the percentage
  for (const Field& field : fields) width += 2 + static_cast<int>(field.text.size());
  return width;
}

void drop_least_needed(std::vector<Field>& fields) {
  fields.erase(std::ranges::max_element(fields, {}, &Field::rank));
}

/// `width` columns of which `share` are filled.
std::string bar(double share, int width, const ProgressLook& look) {
  const std::array<const char*, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int parts = static_cast<int>(std::floor(share * width * 8));
  std::string filled;
  int used = parts / 8;
  for (int i = 0; i < used; ++i) filled += look.unicode ? "█" : "#";
  if (look.unicode && parts % 8 != 0) {
    filled += eighths[static_cast<size_t>(parts % 8)];
    ++used;
  }
  const std::string shown = look.colours && !filled.empty() ? kFilled + filled + kPlain : filled;
  return "|" + shown + std::string(static_cast<size_t>(width - used), ' ') + "|";
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::clamp(seconds, 0.0, 3.0e9));
  std::array<char, 64> buffer{};
  if (whole >= 3600) {
    std::snprintf(buffer.data(), buffer.size(), "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%02lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  }
  return buffer.data();
}

std::string progress_line(const ProgressFigures& figures, const ProgressLook& look) {
  const int columns = std::max(look.columns - 1, 1);
  std::vector<Field> fields = fields_of(figures);
  while (!fields.empty() && width_of(fields) > columns) drop_least_needed(fields);
  const double share = share_done(figures);
  std::string line = formatted("%3.0f%%", std::floor(share * 100));
  const int room = columns - width_of(fields) - 3;  // a space and the bar's two ends
  if (room >= kLeastBar) line += " " + bar(share, std::min(room, kMostBar), look);
  for (const Field& field : fields) line += "  " + field.text;
  if (columns < 4) line.resize(static_cast<size_t>(columns));
  return line;
}

}  // namespace apus::cli
