#include "apus/train/curve.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "apus/base/file.h"
#include "train/curve_series.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// Keys of a panel, in the order in which they are drawn.
struct PanelKeys {
  const char* title;
  std::vector<const char*> keys;
};

std::vector<PanelKeys> panel_keys() {
  return {{"loss", {"loss", "eval_loss"}}, {"reward margins", {"rewards/margins", "eval_rewards/margins"}}};
}

/// N of "N/M"; nothing for another text.
std::optional<int64_t> step_of(const std::string& text) {
  int64_t step = 0;
  char slash = 0;
  const bool whole = std::sscanf(text.c_str(), "%" SCNd64 "%c", &step, &slash) == 2;
  return whole && slash == '/' ? std::optional(step) : std::nullopt;
}

/// Takes the step and the drawn keys out of one record without building it: a run may log 100,000 of them,
/// and the curve is drawn at every save.
class RecordReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RecordReader(const std::set<std::string>& keys) : keys_(keys) {}

  std::optional<int64_t> step;
  std::vector<std::pair<std::string, double>> values;

  /// JSON has no NaN: the log has null.
  bool null() override { return this->number(std::nan("")); }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return this->number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return this->number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return this->number(value); }
  bool string(string_t& value) override {
    if (depth_ == 1 && key_ == "global_step/max_steps") step = step_of(value);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return this->enter(); }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = name;
    return true;
  }
  bool end_object() override { return this->leave(); }
  bool start_array(std::size_t) override { return depth_ > 0 && this->enter(); }
  bool end_array() override { return this->leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool number(double value) {
    if (depth_ == 1 && keys_.contains(key_)) values.emplace_back(key_, value);
    return true;
  }
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const std::set<std::string>& keys_;
  std::string key_;
  int depth_ = 0;
};

using Values = std::map<std::string, std::map<int64_t, double>, std::less<>>;

void take_line(std::string_view line, const std::set<std::string>& keys, Values& values) {
  RecordReader record(keys);
  if (!nlohmann::json::sax_parse(line, &record) || !record.step) return;
  for (const auto& [key, value] : record.values) values[key][*record.step] = value;
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string value_at(const char* what, const CurvePoint& point) {
  return std::string(what) + " " + number_text(point.value) + " (step " + std::to_string(point.step) + ")";
}

bool is_lower(const CurvePoint& a, const CurvePoint& b) {
  return a.value < b.value;
}

/// Numbers of a series for curve_text, each a column.
std::vector<std::string> facts_of(const CurveSeries& series) {
  const std::vector<CurvePoint> finite = finite_points(series.points);
  const size_t left_out = series.points.size() - finite.size();
  std::vector<std::string> facts;
  if (!finite.empty()) {
    facts = {value_at("first", finite.front()), value_at("last", finite.back()),
             value_at("min", *std::ranges::min_element(finite, is_lower)),
             value_at("max", *std::ranges::max_element(finite, is_lower))};
  }
  if (left_out > 0) facts.push_back(std::to_string(left_out) + " not finite");
  return facts;
}

/// Columns of a text, two spaces between; characters beyond ASCII count as one.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  const auto width = [](const std::string& text) {
    return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  };
  std::vector<std::ptrdiff_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(static_cast<size_t>(widths[i] - width(row[i]) + 2), ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::vector<CurvePanel> read_curves(const fs::path& log) {
  Values values;
  std::set<std::string> drawn;
  for (const PanelKeys& panel : panel_keys()) drawn.insert(panel.keys.begin(), panel.keys.end());
  if (fs::exists(log)) {
    const MappedFile file(log);
    for (std::string_view rest = file.text(); !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      take_line(rest.substr(0, end), drawn, values);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::vector<CurvePanel> panels;
  for (const PanelKeys& keys : panel_keys()) {
    CurvePanel panel{.title = keys.title, .series = {}};
    for (const char* key : keys.keys) {
      if (!values.contains(key)) continue;
      CurveSeries& series = panel.series.emplace_back(CurveSeries{.name = key, .points = {}});
      for (const auto& [step, value] : values.find(key)->second) series.points.push_back({step, value});
    }
    if (!panel.series.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

std::string sparkline(const std::vector<CurvePoint>& points, const SparklineOptions& options) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<const char*, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const std::vector<CurveBin> bins = binned(points, static_cast<size_t>(std::max(options.width, 1)));
  if (bins.empty()) return "";
  const auto [least, largest] = std::ranges::minmax(bins, {}, &CurveBin::mean);
  const double span = largest.mean - least.mean;
  std::string line;
  for (const CurveBin& bin : bins) {
    const double height = span > 0 ? (bin.mean - least.mean) / span : 0.0;
    const auto level = static_cast<size_t>(std::clamp(std::lround(height * 7), 0L, 7L));
    line += (options.unicode ? kBlocks : kAscii)[level];
  }
  return line;
}

std::string curve_text(const std::vector<CurvePanel>& panels, const SparklineOptions& options) {
  std::vector<std::vector<std::string>> rows;
  for (const CurvePanel& panel : panels) {
    for (const CurveSeries& series : panel.series) {
      std::vector<std::string>& row = rows.emplace_back();
      row = {series.name, sparkline(series.points, options)};
      std::ranges::move(facts_of(series), std::back_inserter(row));
    }
  }
  return aligned(rows);
}

void write_curves(const fs::path& run_dir) {
  const std::vector<CurvePanel> panels = read_curves(run_dir / "logging.jsonl");
  if (panels.empty()) return;
  write_file_atomic(run_dir / "loss.png", curve_png(panels));
  write_file_atomic(run_dir / "loss.txt", curve_text(panels));
}

}  // namespace apus::train
