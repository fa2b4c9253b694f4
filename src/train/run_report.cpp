#include "apus/train/run_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "apus/base/error.h"
#include "apus/train/log_line.h"

namespace apus::train {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
/// Narrower than this, values are not broken.
constexpr size_t kLeastColumn = 20;

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

/// "1,234,567".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

int64_t dropped(const ReportedRows& rows) {
  int64_t sum = 0;
  for (const auto& [reason, count] : rows.dropped) sum += count;
  return sum;
}

/// A name and what stands beside it; each value begins a line of its own.
struct TableRow {
  std::string name;
  std::vector<std::string> values;
};

class Table final {
 public:
  void add(std::string name, std::vector<std::string> values) {
    if (!values.empty()) rows_.push_back({std::move(name), std::move(values)});
  }

  std::string text(size_t width) const {
    size_t column = 0;
    for (const TableRow& row : rows_) column = std::max(column, row.name.size());
    std::string text;
    for (const TableRow& row : rows_) {
      std::string left = "  " + row.name + std::string(column - row.name.size() + 2, ' ');
      for (const std::string& value : row.values) {
        for (const std::string& line : broken(value, width, left.size())) {
          text += left + line + "\n";
          left.assign(left.size(), ' ');
        }
      }
    }
    return text;
  }

 private:
  /// The value in lines that fit beside `indent` columns, cut at ", "; words stay whole.
  static std::vector<std::string> broken(const std::string& value, size_t width, size_t indent) {
    if (width < indent + kLeastColumn) return {value};
    const size_t room = width - indent;
    std::vector<std::string> lines;
    std::string_view rest = value;
    while (rest.size() > room) {
      const size_t comma = rest.substr(0, room).rfind(", ");
      if (comma == rest.npos) break;
      lines.emplace_back(rest.substr(0, comma + 1));
      rest.remove_prefix(comma + 2);
    }
    lines.emplace_back(rest);
    return lines;
  }

  std::vector<TableRow> rows_;
};

std::string value_text(const ReportedValue& value) {
  return format("%.4f", value.value) + " (step " + grouped(value.step) + ")";
}

std::vector<std::string> skipped_text(const RunReport& report) {
  if (report.skipped == 0) return {};
  const std::string overflow = " whose gradients left fp16's range";
  if (report.skipped < report.steps) return {grouped(report.skipped) + " steps" + overflow};
  return {"all steps" + overflow +
          ": NOTHING was learnt; take --bf16 true, or a lower fp16.loss_scale or fp16.initial_scale_power"};
}

std::vector<std::string> loss_text(const RunReport& report) {
  std::vector<std::string> values;
  if (report.first_loss && report.last_loss) {
    values.push_back("first " + value_text(*report.first_loss) + ", last " + value_text(*report.last_loss));
  } else if (report.last_loss) {
    values.push_back("last " + value_text(*report.last_loss));
  }
  if (!report.loss_curve.empty()) values.push_back(report.loss_curve);
  return values;
}

std::vector<std::string> evaluation_text(const RunReport& report) {
  std::string text;
  if (report.best) text = "best " + report.best_metric + " " + value_text(*report.best);
  if (report.last_evaluation)
    text += (text.empty() ? "" : ", ") + std::string("last ") + value_text(*report.last_evaluation);
  return text.empty() ? std::vector<std::string>() : std::vector{text};
}

std::vector<std::string> speed_text(const RunReport& report) {
  if (report.tokens <= 0 || !(report.seconds > 0)) return {};
  const double rate = static_cast<double>(report.tokens) / report.seconds;
  std::string text = format("%.1f", rate) + " tokens/s";
  if (report.ranks > 1) text += ", " + format("%.1f", rate / report.ranks) + " a rank";
  return {text + ", " + grouped(report.tokens) + " tokens"};
}

std::vector<std::string> rows_text(const ReportedRows& rows) {
  std::string text = grouped(rows.input) + " read = " + grouped(rows.whole + rows.truncated) + " used";
  if (rows.truncated > 0) text += " (" + grouped(rows.truncated) + " of them truncated)";
  if (rows.held_out > 0) text += " + " + grouped(rows.held_out) + " held out for evaluation";
  text += " + " + grouped(dropped(rows)) + " dropped";
  std::vector<std::string> lines = {text};
  for (const auto& [reason, count] : rows.dropped)
    if (count > 0) lines.push_back("dropped: " + grouped(count) + " " + reason);
  return lines;
}

void check_rows(const ReportedRows& rows) {
  APUS_ASSERT(rows_add_up(rows), "rows of ", rows.name, ": ", rows.input, " were read, but ", rows.whole,
              " whole + ", rows.truncated, " truncated + ", rows.held_out, " held out + ", dropped(rows),
              " dropped are ", rows.whole + rows.truncated + rows.held_out + dropped(rows));
}

Table table_of(const RunReport& report) {
  Table table;
  table.add("steps", {grouped(report.steps) + " of " + grouped(report.max_steps) + ", " +
                      format("%.2f", report.epochs) + " epochs"});
  table.add("skipped", skipped_text(report));
  table.add("loss", loss_text(report));
  table.add("evaluation", evaluation_text(report));
  table.add("time", {duration_text(report.seconds)});
  table.add("speed", speed_text(report));
  if (report.memory_bytes > 0)
    table.add("memory",
              {format("%.2f", static_cast<double>(report.memory_bytes) / kGiB) + " GiB at most on a rank"});
  for (const ReportedRows& rows : report.rows) table.add(rows.name + " rows", rows_text(rows));
  for (const auto& [name, place] : report.places) table.add(name, {place});
  return table;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/._-+=:@%,").find(c) != std::string_view::npos;
}

std::string shell_quoted(const std::string& path) {
  if (!path.empty() && std::ranges::all_of(path, is_plain)) return path;
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

bool rows_add_up(const ReportedRows& rows) {
  return rows.input == rows.whole + rows.truncated + rows.held_out + dropped(rows);
}

std::string closing_table(const RunReport& report, const RunReportOptions& options) {
  for (const ReportedRows& rows : report.rows) check_rows(rows);
  const std::string head =
      report.finished ? "Training finished" : "Training stopped; the same command resumes it";
  std::string text = head + "\n" + table_of(report).text(static_cast<size_t>(std::max(options.width, 0)));
  if (!report.next.empty()) text += "Next: " + report.next + "\n";
  text.pop_back();
  return text;
}

std::string merge_command(const std::string& checkpoint) {
  return "apus merge --adapters " + shell_quoted(checkpoint);
}

std::string load_hint(const std::string& model) {
  const std::string folder = shell_quoted(model);
  return "load " + folder + " with transformers or vLLM, or train on with --model " + folder;
}

}  // namespace apus::train
