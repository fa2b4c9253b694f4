#include "apus/data/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "apus/base/clock.h"
#include "apus/data/jinja.h"
#include "tests/support/case_folder.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The time of the reference, on this machine's calendar.
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

/// What became of one case.
struct Outcome {
  bool passed = false;
  std::string unsupported;  // the feature that is missing
  std::string difference;
};

/// Renders cases and compares; templates of files are parsed once.
class CaseRunner {
 public:
  Outcome run(const Json& line, const std::string& source, const std::string& name) const {
    std::optional<JinjaTemplate> jinja;
    try {
      jinja = JinjaTemplate::parse(source, name);
    } catch (const JinjaError& error) {
      return judge_error(line, error, "parsing");
    }
    try {
      return judge_text(line, jinja->render(line.at("context"), {.clock = &clock_}));
    } catch (const JinjaError& error) {
      return judge_error(line, error, "rendering");
    }
  }

 private:
  ManualClock clock_{reference_time()};

  static Outcome judge_error(const Json& line, const JinjaError& error, const std::string& when) {
    const std::string kind(jinja_error_kind_name(error.kind()));
    if (error.kind() == JinjaErrorKind::kNotSupported && when == "parsing")
      return {.unsupported = error.reason()};
    if (!line.contains("error_kind"))
      return {.difference = kind + " error while " + when + ": " + error.what()};
    if (line["error_kind"] != kind) {
      return {.difference = "expected " + line["error_kind"].get<std::string>() + ", got " + kind + ": " +
                            error.what()};
    }
    const bool exact = error.kind() == JinjaErrorKind::kRaiseException;
    if (exact && line["error"] != error.what())
      return {.difference = std::string("message: ") + error.what()};
    return {.passed = true};
  }

  static Outcome judge_text(const Json& line, const RenderResult& result) {
    if (!line.contains("expected")) return {.difference = "no error, but the text: " + result.text};
    const auto expected = line["expected"].get<std::string>();
    if (result.text != expected) return {.difference = "expected:\n" + expected + "\ngot:\n" + result.text};
    if (!line.contains("generation")) return {.passed = true};
    const Json spans(result.generation_spans);
    if (spans != line["generation"]) {
      return {.difference = "spans " + spans.dump() + ", expected " + line["generation"].dump()};
    }
    return {.passed = true};
  }
};

bool is_case_file(const fs::path& path) {
  return path.extension() == ".jsonl";
}

/// The template that a file of conversations is rendered with.
fs::path template_of(const fs::path& file) {
  const fs::path name = file.stem().string() + ".jinja";
  if (auto beside = cases::find_for_case(file.parent_path(), fs::path("templates") / name)) return *beside;
  return cases::require_for_case(file.parent_path(), name);
}

TEST(ChatTemplateParity, RendersEveryCaseOfEveryFile) {
  const auto files = cases::find_case_files("chat_template", is_case_file);
  if (files.empty()) GTEST_SKIP() << "no chat_template cases in " << cases::cases_root();
  cases::NotRunCases not_run;
  const CaseRunner runner;
  int passed = 0;
  for (const fs::path& file : files) {
    std::ifstream in(file);
    std::map<std::string, std::string> sources;
    for (std::string text; std::getline(in, text);) {
      if (text.empty()) continue;
      const Json line = Json::parse(text);
      const std::string name = cases::case_name(file) + ":" + line.at("id").get<std::string>();
      const bool own = line.contains("template");
      if (!own && sources.empty()) sources["file"] = read_file(template_of(file));
      const Outcome outcome =
          runner.run(line, own ? line["template"].get<std::string>() : sources["file"], name);
      if (!outcome.unsupported.empty()) {
        not_run.add(name, outcome.unsupported);
      } else {
        EXPECT_TRUE(outcome.passed) << name << ": " << outcome.difference;
        passed += outcome.passed ? 1 : 0;
      }
    }
  }
  std::cout << passed << " cases of " << files.size() << " files passed, " << not_run.count() << " not run\n";
  EXPECT_GT(passed, 0);
}

TEST(ChatTemplateParity, CommittedConversationsAreAllSupported) {
  const fs::path root = cases::committed_cases_root() / "chat_template";
  int lines = 0;
  for (const char* name :
       {"qwen25", "qwen3", "chatml_oneline", "chatml_generation", "coder_xml", "harmony_ts"}) {
    const std::string source = read_file(root / "templates" / (std::string(name) + ".jinja"));
    ASSERT_FALSE(source.empty()) << name;
    EXPECT_NO_THROW(JinjaTemplate::parse(source, name)) << name;
    std::ifstream in(root / (std::string(name) + ".jsonl"));
    for (std::string text; std::getline(in, text);) lines += text.empty() ? 0 : 1;
  }
  EXPECT_GE(lines, 130);
}

/// A context split into what ChatTemplate takes must give the same text as the whole of it.
TEST(ChatTemplateParity, BuildsTheContextThatTransformersBuilds) {
  const fs::path root = cases::committed_cases_root() / "chat_template";
  const ManualClock clock(reference_time());
  for (const char* name : {"qwen25", "harmony_ts"}) {
    const auto jinja =
        JinjaTemplate::parse(read_file(root / "templates" / (std::string(name) + ".jinja")), name);
    std::ifstream in(root / (std::string(name) + ".jsonl"));
    int compared = 0;
    for (std::string text; std::getline(in, text);) {
      const Json line = Json::parse(text);
      if (!line.contains("expected")) continue;
      Json rest = line["context"];
      const auto token = [&](const char* key) {
        std::optional<std::string> value;
        if (rest.contains(key)) value = rest[key].get<std::string>();
        rest.erase(key);
        return value;
      };
      const SpecialTokens tokens = {token("bos_token"), token("eos_token"), token("pad_token"),
                                    token("unk_token")};
      const Json messages = rest["messages"];
      const Json tools = rest["tools"];
      const bool prompt = rest["add_generation_prompt"].get<bool>();
      for (const char* key : {"messages", "tools", "documents", "add_generation_prompt"}) rest.erase(key);
      const std::string rendered = ChatTemplate(jinja, tokens)
                                       .render(messages, {.add_generation_prompt = prompt,
                                                          .tools = &tools,
                                                          .extra = &rest,
                                                          .render = {.clock = &clock}});
      EXPECT_EQ(rendered, line["expected"].get<std::string>()) << line["id"];
      ++compared;
    }
    EXPECT_GT(compared, 10) << name;
  }
}

}  // namespace
}  // namespace apus::data
