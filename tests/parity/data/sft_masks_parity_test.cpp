#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apus/base/clock.h"
#include "apus/base/file.h"
#include "apus/data/conversation.h"
#include "apus/data/rows_report.h"
#include "apus/data/sft_rows.h"
#include "tests/parity/data/support/case_tokenizer.h"
#include "tests/support/case_folder.h"

/// Rows of training data against recorded ids, labels, weights and codes: every line of every file of
/// cases/sft_masks. A file is named after its tokenizer.
namespace apus::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

/// The eos that the rows of all files were made with.
constexpr const char* kEos = "<|im_end|>";

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> lines;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(Json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

/// What became of a row.
struct Outcome {
  SftRow row;
  bool is_truncated = false;
  std::string code;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.code == b.code && a.row.input_ids == b.row.input_ids && a.row.labels == b.row.labels &&
           a.row.weights == b.row.weights;
  }
};

Clock::WallTime reference_time() {
  std::tm local{};
  local.tm_year = 126;
  local.tm_mon = 10;
  local.tm_mday = 30;
  local.tm_hour = 7;
  local.tm_min = 41;
  local.tm_sec = 20;
  local.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(std::mktime(&local));
}

/// All rows of one file.
class MaskFile {
 public:
  explicit MaskFile(const fs::path& path) : path_(path), tokenizer_(case_tokenizer(path.stem().string())) {
    tokenizer_.config.bos_token.reset();
    tokenizer_.config.eos_token = kEos;
    tokenizer_.eos_id = tokenizer_.tokenizer->token_to_id(kEos);
  }

  Outcome run(const Json& line) {
    const Json& options = line.at("options");
    Outcome outcome;
    try {
      outcome.row = encoder(line).encode_line(line.at("row").dump());
      std::optional<int64_t> limit;
      if (options.contains("max_length")) limit = options["max_length"].get<int64_t>();
      const std::string strategy = options.value("truncation_strategy", "delete");
      const Truncation truncation = strategy == "left"    ? Truncation::kLeft
                                    : strategy == "right" ? Truncation::kRight
                                                          : Truncation::kDelete;
      outcome.is_truncated = fit_sft_row(outcome.row, limit, truncation) == RowFit::kTruncated;
    } catch (const RowRefused& refused) {
      outcome.row = {};
      outcome.code = refused.problem().code;
    }
    return outcome;
  }

  /// Runs of trained tokens, decoded.
  std::vector<std::string> trained_texts(const SftRow& row) const {
    std::vector<std::string> texts;
    Ids run;
    for (size_t i = 0; i <= row.labels.size(); ++i) {
      if (i < row.labels.size() && row.labels[i] != kIgnoredLabel) {
        run.push_back(row.labels[i]);
        continue;
      }
      if (!run.empty()) texts.push_back(tokenizer_.tokenizer->decode(run));
      run.clear();
    }
    return texts;
  }

 private:
  std::optional<std::string> template_of(const Json& line) const {
    if (line.contains("template_source")) return line["template_source"].get<std::string>();
    if (line.at("template").is_null()) return std::nullopt;
    const auto name = line["template"].get<std::string>() + ".jinja";
    return read_file(
        cases::require_for_case(path_.parent_path(), fs::path("chat_template/templates") / name));
  }

  /// One encoder for all rows of a template with the same options, as in a run.
  const SftEncoder& encoder(const Json& line) {
    const Json& options = line.at("options");
    TokenizerFolder folder = tokenizer_;
    folder.chat_template = template_of(line);
    SftEncodeOptions encode{.clock = &clock_};
    if (options.value("task", "") == "pt") encode.task = SftTask::kPretrain;
    if (options.contains("template_kwargs")) encode.template_kwargs = options["template_kwargs"];
    const std::string key = folder.chat_template.value_or("") + encode.template_kwargs.dump() +
                            (encode.task == SftTask::kPretrain ? "pt" : "");
    auto& slot = encoders_[key];
    if (!slot) slot = std::make_unique<SftEncoder>(std::move(folder), std::move(encode));
    return *slot;
  }

  fs::path path_;
  TokenizerFolder tokenizer_;
  ManualClock clock_{reference_time()};
  std::map<std::string, std::unique_ptr<SftEncoder>> encoders_;
};

std::string first_difference(const Ids& got, const Ids& expected) {
  size_t at = 0;
  while (at < std::min(got.size(), expected.size()) && got[at] == expected[at]) ++at;
  const auto item = [&](const Ids& list) { return at < list.size() ? std::to_string(list[at]) : "nothing"; };
  return std::to_string(got.size()) + " for " + std::to_string(expected.size()) + ", at " +
         std::to_string(at) + " " + item(got) + " for " + item(expected);
}

/// The weights of a row or a line, one a token.
std::vector<float> all_weights(const std::vector<float>& weights, const Ids& labels) {
  if (!weights.empty()) return weights;
  std::vector<float> all;
  for (const int32_t label : labels) all.push_back(label == kIgnoredLabel ? 0.0f : 1.0f);
  return all;
}

void expect_row(const Json& line, const Outcome& outcome, const MaskFile& file) {
  const auto ids = line.at("ids").get<Ids>();
  const auto labels = line.at("labels").get<Ids>();
  EXPECT_EQ(outcome.row.input_ids, ids) << first_difference(outcome.row.input_ids, ids);
  EXPECT_EQ(outcome.row.labels, labels) << first_difference(outcome.row.labels, labels);
  const auto weights = line.value("weights", std::vector<float>{});
  EXPECT_EQ(outcome.row.weights.empty(), weights.empty());
  EXPECT_EQ(all_weights(outcome.row.weights, outcome.row.labels), all_weights(weights, labels));
  EXPECT_EQ(outcome.is_truncated, line.value("truncated", false));
  EXPECT_EQ(file.trained_texts(outcome.row), line.at("spans_text").get<std::vector<std::string>>());
}

void expect_form(const Json& line) {
  if (line.at("form").is_null()) {
    EXPECT_THROW(make_conversation(line.at("row")), RowRefused);
    return;
  }
  try {
    EXPECT_EQ(make_conversation(line.at("row")).form, line["form"]);
  } catch (const RowRefused& refused) {
    EXPECT_EQ(refused.problem().code, line.value("refused", ""));
  }
}

TEST(SftMasksParity, EveryRowHasItsIdsLabelsWeightsOrCode) {
  const auto files =
      cases::find_case_files("sft_masks", [](const fs::path& p) { return p.extension() == ".jsonl"; });
  int rows = 0;
  for (const fs::path& path : files) {
    MaskFile file(path);
    std::map<std::string, std::pair<std::string, Outcome>> groups;
    std::set<std::string> ids;
    for (const Json& line : lines_of(path)) {
      const auto id = line.at("id").get<std::string>();
      SCOPED_TRACE(id);
      EXPECT_TRUE(ids.insert(id).second);
      const Outcome outcome = file.run(line);
      const std::string code =
          line.contains("refused") ? line["refused"].get<std::string>() : line.value("dropped", "");
      EXPECT_EQ(outcome.code, code);
      expect_form(line);
      if (code.empty() && outcome.code.empty()) expect_row(line, outcome, file);
      if (line.contains("group")) {
        const auto key = line["group"].get<std::string>() + "/" + line["template"].dump();
        const auto& [first, expected] = groups.emplace(key, std::pair(id, outcome)).first->second;
        EXPECT_TRUE(outcome == expected) << "differs from " << first << " of its group " << key;
      }
      ++rows;
    }
  }
  RecordProperty("rows", rows);
  EXPECT_GT(rows, files.empty() ? -1 : 0);
}

}  // namespace
}  // namespace apus::data
