#include "apus/data/prepare.h"

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/data/tokenizer_config.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using PrepareDpo = RowsTest;

const TokenizerFolder& tokenizer() {
  static const TokenizerFolder kFolder =
      load_tokenizer_folder(APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer");
  return kFolder;
}

std::string pair_line(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  return R"({"prompt": ")" + prompt + R"(", "chosen": ")" + chosen + R"(", "rejected": ")" + rejected +
         "\"}\n";
}

std::string good_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += pair_line("question " + std::to_string(i), "yes " + std::to_string(i), "no");
  return text;
}

/// Raw text, unless a test says otherwise.
DpoPrepareOptions options_for(std::vector<std::string> files) {
  return {.read = {.files = std::move(files)}, .encode = {.use_chat_template = false}};
}

std::shared_ptr<const DpoDataset> prepared(const DpoPrepareOptions& options) {
  NullLogger logger;
  return prepare_dpo(tokenizer(), options, logger);
}

TEST_F(PrepareDpo, CountsEveryRowOnce) {
  DpoPrepareOptions options = options_for({write(
      "a.jsonl",
      good_lines(3) + "{broken\n" + pair_line("p", "", "b") + "\n" + R"({"prompt": "p", "chosen": "a"})" +
          "\n" + pair_line("a long prompt, longer than twelve tokens, certainly so", "a", "b") +
          pair_line("p", "an answer of many, many, many, many tokens", "b") + pair_line("p", "", "b"))});
  options.read.max_length = 12;
  options.read.truncation = Truncation::kRight;
  CaptureLogger logger;
  const auto dataset = prepare_dpo(tokenizer(), options, logger);
  const RowReport& report = dataset->origin().report;
  EXPECT_EQ(report.whole(), 3);
  EXPECT_EQ(report.truncated(), 1);
  EXPECT_EQ(report.input(), 9);
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(report.reasons().at("empty chosen").count, 2);
  EXPECT_EQ(report.reasons().at("broken JSON").count, 1);
  EXPECT_EQ(report.reasons().at("missing key 'rejected'").count, 1);
  EXPECT_EQ(report.reasons().at("prompt of max_length tokens or more").count, 1);
  EXPECT_EQ(dataset->row(dataset->size() - 1).chosen_length(), 12);
  EXPECT_EQ(dataset->place(dataset->size() - 1), (RowPlace{0, 9}));
  EXPECT_TRUE(logger.contains("rows: 9 read = 3 trained whole + 1 truncated + 5 dropped (2 empty chosen"));
  EXPECT_TRUE(logger.contains("a.jsonl:5: empty chosen"));
}

TEST_F(PrepareDpo, StrictStopsAtTheFirstBadRowWithTheMessageThatIsCountedOtherwise) {
  const std::string path = write("a.jsonl", good_lines(16) + "{\"prompt\": \"p\", }\n" + good_lines(3) +
                                                pair_line("p", "", "b") + good_lines(5));
  DpoPrepareOptions options = options_for({path});
  const auto counted = prepared(options)->origin().report.reasons().at("broken JSON").examples.at(0);
  EXPECT_TRUE(counted.starts_with(path + ":17: broken JSON: column ")) << counted;
  options.read.strict = true;
  for (const int64_t workers : {1, 4}) {
    options.workers = workers;
    EXPECT_EQ(message_of<DataError>([&] { prepared(options); }), counted);
  }
}

TEST_F(PrepareDpo, EveryBadRowHasItsMessageUnderStrictAndInTheCount) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "p", "chosen": "a"})", "missing key 'rejected': has: prompt, chosen"},
      {R"({"prompt": "p", "chosen": "", "rejected": "b"})", "empty chosen"},
      {R"({"prompt": "p", "chosen": "a", "rejected": ""})", "empty rejected"},
      {R"({"prompt": "p", "chosen": "a", "rejected": 1})",
       "wrong type: rejected is a number, expected a string or a list of messages"},
      {R"({"prompt": "ppppppppppppppppp", "chosen": "a", "rejected": "b"})",
       "prompt of max_length tokens or more: prompt has 17 tokens, max_length is 12"},
      {R"({"prompt": "ppp", "chosen": "aaaaaaaaaaaa", "rejected": "b"})",
       "longer than max_length: prompt 3 + chosen 13 = 16 tokens, max_length is 12 (truncation_strategy "
       "delete)"},
      {R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "a"}],)"
       R"( "rejected": [{"role": "assistant", "content": "b"}]})",
       "message lists need a chat template: use_chat_template is false; give plain strings"},
      {R"({"messages": []})",
       "no preference row: has: messages; expected prompt, chosen and rejected, or messages and "
       "rejected_response (--columns renames keys)"},
      {R"({"messages": [{"role": "user", "content": "q"}], "rejected_response": "b"})",
       "the conversation does not end in an assistant message: its last role is 'user'"},
  };
  for (const auto& [line, reason] : cases) {
    const std::string path = write("a.jsonl", good_lines(1) + "\n" + line + "\n" + good_lines(1));
    DpoPrepareOptions options = options_for({path});
    options.read.max_length = 12;
    options.read.strict = true;
    const std::string message = path + ":3: " + reason;
    EXPECT_EQ(message_of<DataError>([&] { prepared(options); }), message);
    options.read.strict = false;
    const auto dataset = prepared(options);
    EXPECT_EQ(dataset->size(), 2) << reason;
    ASSERT_EQ(dataset->origin().report.reasons().size(), 1u) << reason;
    EXPECT_EQ(dataset->origin().report.reasons().begin()->second.examples.at(0), message);
  }
}

TEST_F(PrepareDpo, NamesTheFileAndTheReasonsWhereNoRowIsUsable) {
  const std::string path = write("a.jsonl", pair_line("p", "", "b") + pair_line("p", "", "c") + "{}\n");
  const std::string message = message_of<DataError>([&] { prepared(options_for({path})); });
  EXPECT_TRUE(message.starts_with(path + ": no usable row (--dataset): rows: 3 read")) << message;
  EXPECT_NE(message.find("2 empty chosen, 1 no preference row"), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("; the first: " + path + ":1: empty chosen")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << "the cause is the last line: " << message;
  CaptureLogger logger;
  EXPECT_THROW(prepare_dpo(tokenizer(), options_for({path}), logger), DataError);
  EXPECT_TRUE(logger.contains("2 rows dropped, empty chosen:"));
  const std::string empty = write("b.jsonl", "\n");
  EXPECT_EQ(message_of<DataError>([&] { prepared(options_for({empty})); }),
            empty + ": no usable row (--dataset): no row at all in it");
}

TEST_F(PrepareDpo, AFileWithoutAUsableRowIsAnErrorBesideGoodOnes) {
  const std::string bad = pair_line("p", "", "b");
  const std::string good =
      write("good.jsonl", good_lines(3) + bad + bad + bad);  // all examples of the reason
  const std::string chat =
      write("chat.jsonl",
            R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
            "\n");
  const std::string empty = write("empty.jsonl", bad + bad);
  DpoPrepareOptions options = options_for({good, chat});
  options.read.cache_folder = folder() / "cache";
  for (const char* from : {"the files", "the cache"}) {
    const std::string message = message_of<DataError>([&] { prepared(options); });
    EXPECT_TRUE(message.starts_with(
        chat + ": no usable row (--dataset): 1 row read, all dropped; the first: " + chat +
        ":1: no preference row"))
        << from << ": " << message;
    EXPECT_NE(message.find("; `apus sft` takes such rows"), std::string::npos) << from << ": " << message;
  }
  const std::string message = message_of<DataError>([&] { prepared(options_for({good, empty})); });
  EXPECT_TRUE(message.starts_with(
      empty + ": no usable row (--dataset): 2 rows read, all dropped; the first: " + empty +
      ":1: empty chosen; leave the file out"))
      << message;
  std::optional<RowReport> none;
  options.read.none_usable = &none;
  const auto looked = prepared(options);
  EXPECT_EQ(looked->size(), 3);
  ASSERT_EQ(looked->origin().unusable.size(), 1u);
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(prepared(options_for({good, write("blank.jsonl", "\n")}))->size(), 3) << "nothing is lost of it";
}

TEST_F(PrepareDpo, EachFileHasAFingerprintOfItsText) {
  const std::string a = write("a.jsonl", good_lines(3)), b = write("b.jsonl", good_lines(2));
  const auto prints = [](const DpoPrepareOptions& options) {
    return prepared(options)->origin().file_fingerprints;
  };
  const auto before = prints(options_for({a, b}));
  ASSERT_EQ(before.size(), 2u);
  EXPECT_NE(before[0], before[1]);
  EXPECT_EQ(prints(options_for({b}))[0], before[1]) << "whatever other files there are";
  DpoPrepareOptions shorter = options_for({a, b});
  shorter.read.max_length = 100;
  EXPECT_EQ(prints(shorter), before) << "of the text, not of what becomes of it";
  write("b.jsonl", good_lines(1) + pair_line("question 1", "yes 1", "NO"));
  const auto after = prints(options_for({a, b}));
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
}

TEST_F(PrepareDpo, TheResultDoesNotDependOnTheNumberOfThreads) {
  DpoPrepareOptions options =
      options_for({write("a.jsonl", good_lines(300)), write("b.jsonl", good_lines(50) + "{}\n")});
  const auto one = prepared(options);
  options.workers = 7;
  const auto seven = prepared(options);
  ASSERT_EQ(one->size(), 350);
  ASSERT_EQ(seven->size(), one->size());
  for (int64_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ(one->row(i).prompt_ids, seven->row(i).prompt_ids);
    EXPECT_EQ(one->place(i), seven->place(i));
  }
  EXPECT_EQ(one->origin().fingerprint, seven->origin().fingerprint);
  EXPECT_EQ(seven->place_text(349), options.read.files[1] + ":50");
}

TEST_F(PrepareDpo, TheFingerprintChangesWithWhateverDecidesAboutTheRows) {
  const std::string path = write("a.jsonl", good_lines(5));
  const DpoPrepareOptions base = options_for({path});
  const std::string first = prepared(base)->origin().fingerprint;
  EXPECT_EQ(prepared(options_for({write("copy.jsonl", good_lines(5))}))->origin().fingerprint, first);
  std::vector<DpoPrepareOptions> others(6, base);
  others[0].read.files = {path + "#4"};
  others[1].read.files = {write("b.jsonl", good_lines(4) + pair_line("question 4", "yes 4", "NO"))};
  others[2].read.max_length = 100;
  others[3].read.truncation = Truncation::kLeft;
  others[4].encode.use_chat_template = true;
  others[5].encode = {.use_chat_template = true, .system = "s"};
  std::vector<std::string> all = {first};
  for (const auto& other : others) all.push_back(prepared(other)->origin().fingerprint);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
}

TEST_F(PrepareDpo, WarnsWhereAFileHasFewerRowsThanAskedFor) {
  CaptureLogger logger;
  const std::string path = write("a.jsonl", good_lines(2)) + "#5";
  EXPECT_EQ(prepare_dpo(tokenizer(), options_for({path}), logger)->size(), 2);
  EXPECT_TRUE(logger.contains(path + ": the file has only 2 rows"));
}

TEST_F(PrepareDpo, SaysWhichRuleWasTaken) {
  DpoPrepareOptions options = options_for({write("a.jsonl", good_lines(1))});
  EXPECT_NE(prepared(options)->origin().note.find("raw text, because use_chat_template is false"),
            std::string::npos);
  options.encode.use_chat_template = true;
  EXPECT_NE(prepared(options)->origin().note.find("one user turn"), std::string::npos);
  options.read.files = {write("b.jsonl", R"({"prompt": [{"role": "user", "content": "q"}],
 "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})")};
  // three lines are three broken rows; a conversation is one line
  EXPECT_THROW(prepared(options), DataError);
  options.read.files = {write("c.jsonl", R"({"prompt": [{"role": "user", "content": "q"}], )"
                                         R"("chosen": [{"role": "assistant", "content": "a"}], )"
                                         R"("rejected": [{"role": "assistant", "content": "b"}]})")};
  EXPECT_EQ(prepared(options)->origin().note, "conversations went through the chat template");
}

TEST_F(PrepareDpo, RefusesOptionsThatDoNotFit) {
  DpoPrepareOptions options = options_for({});
  EXPECT_NE(message_of<ConfigError>([&] { prepared(options); }).find("--dataset names no file"),
            std::string::npos);
  options = options_for({write("a.jsonl", good_lines(1))});
  options.workers = 0;
  EXPECT_THROW(prepared(options), ConfigError);
  options.workers = 1;
  options.read.max_length = 1;
  EXPECT_THROW(prepared(options), ConfigError);
  options = options_for({(folder() / "none.jsonl").string()});
  options.read.flag = "--val_dataset";
  EXPECT_NE(message_of<ConfigError>([&] { prepared(options); }).find("no such file; check --val_dataset"),
            std::string::npos);
}

/// Whether the rows came from the cache.
bool is_cached(const TokenizerFolder& folder, const DpoPrepareOptions& options) {
  CaptureLogger logger;
  prepare_dpo(folder, options, logger);
  return logger.contains("prepared rows come from the cache");
}

TEST_F(PrepareDpo, TheCacheServesOnlyWhatWouldBePreparedAlike) {
  DpoPrepareOptions base = options_for({write("a.jsonl", good_lines(5))});
  base.read.cache_folder = folder() / "cache";
  base.encode.use_chat_template = true;
  EXPECT_FALSE(is_cached(tokenizer(), base));
  EXPECT_TRUE(is_cached(tokenizer(), base));
  base.workers = 3;
  EXPECT_TRUE(is_cached(tokenizer(), base));
  std::vector<DpoPrepareOptions> others(6, base);
  others[0].read.max_length = 1000;
  others[1].read.truncation = Truncation::kRight;
  others[2].read.strict = true;
  others[3].encode.use_chat_template = false;
  others[4].encode.system = "s";
  others[5].encode.columns = ColumnMap::parse(R"({"question": "prompt"})");
  for (const DpoPrepareOptions& other : others) EXPECT_FALSE(is_cached(tokenizer(), other));
  for (const DpoPrepareOptions& other : others) EXPECT_TRUE(is_cached(tokenizer(), other));
  TokenizerFolder changed = tokenizer();
  *changed.chat_template += " ";
  EXPECT_FALSE(is_cached(changed, base));
  changed = tokenizer();
  changed.config.eos_token = "<|endoftext|>";
  EXPECT_FALSE(is_cached(changed, base));
  EXPECT_TRUE(is_cached(tokenizer(), base));
}

TEST_F(PrepareDpo, ATemplateThatAsksForTheDayIsCachedForTheDay) {
  ManualClock clock(Clock::WallTime(std::chrono::hours(24 * 365 * 50 + 12)));
  DpoPrepareOptions options = options_for({write("a.jsonl", good_lines(2))});
  options.read.cache_folder = folder() / "cache";
  options.encode = {.clock = &clock};
  TokenizerFolder dated = tokenizer();
  dated.chat_template = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_FALSE(is_cached(dated, options));
  EXPECT_TRUE(is_cached(dated, options));
  clock.advance(std::chrono::hours(24));
  EXPECT_FALSE(is_cached(dated, options));
  dated.chat_template = "{{ strftime_now('%H') }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_FALSE(is_cached(dated, options));
  EXPECT_FALSE(is_cached(dated, options));
}

TEST_F(PrepareDpo, WarnsOfPairsThatTeachNothingAndOfKeysThatNoRowHas) {
  DpoPrepareOptions options = options_for(
      {write("a.jsonl", good_lines(2) + pair_line("p", "same", "same") + pair_line("q", "b", "b"))});
  options.encode.columns = ColumnMap::parse(R"({"questoin": "prompt"})");
  options.read.cache_folder = folder() / "cache";
  for (const char* run : {"prepared", "cached"}) {
    CaptureLogger logger;
    EXPECT_EQ(prepare_dpo(tokenizer(), options, logger)->size(), 4);
    EXPECT_TRUE(logger.contains("a.jsonl: 2 pairs have the same tokens as chosen and rejected")) << run;
    EXPECT_TRUE(logger.contains("no row that is used has a key that --columns renames: 'questoin'")) << run;
  }
}

TEST_F(PrepareDpo, NamesTheElementOfAnArrayOnOneLine) {
  const std::string good = R"({"prompt": "p", "chosen": "a", "rejected": "b"})";
  DpoPrepareOptions options =
      options_for({write("a.json", "[" + good + ", " + good + R"(, {"prompt": "p", "chosen": "a"}])")});
  const std::string message =
      options.read.files[0] + ":1 (element 3): missing key 'rejected': has: prompt, chosen";
  EXPECT_EQ(prepared(options)->origin().report.reasons().begin()->second.examples.at(0), message);
  options.read.strict = true;
  EXPECT_EQ(message_of<DataError>([&] { prepared(options); }), message);
}

TEST_F(PrepareDpo, WarnsOfCallsThatTheTemplateDoesNotPrint) {
  TokenizerFolder folder = tokenizer();
  folder.chat_template = "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '\n' }}{% endfor %}";
  DpoPrepareOptions options = options_for({write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", )"
      R"("tool_calls": [{"function": {"name": "get_weather", "arguments": {}}}]}], "rejected_response": "b"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], )"
      R"("tools": [{"name": "get_time"}], "rejected_response": "b"})"
      "\n"
      R"({"prompt": "p", "chosen": "a", "rejected": "b"})")});
  options.encode.use_chat_template = true;
  CaptureLogger logger;
  EXPECT_EQ(prepare_dpo(folder, options, logger)->size(), 3);
  EXPECT_TRUE(logger.contains("2 rows hold tool calls or tools that the chat template does not print"));
}

using PrepareSft = RowsTest;

TEST_F(PrepareSft, WarnsOnceOfCallsThatTheTemplateDropsOrQuotes) {
  TokenizerFolder folder = tokenizer();
  const std::string call = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )"
                           R"("content": "", "tool_calls": [{"function": {"name": "get_weather", )"
                           R"("arguments": )";
  const std::string path =
      write("a.jsonl", call + R"("{\"x\": 1}"}}]}]})" + "\n" + call + R"({"x": 1}}}]}]})" + "\n" +
                           R"({"query": "q", "response": "a"})" + "\n");
  const std::string turn = "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content }}";
  const std::string end =
      "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\n' }}{% endif %}";
  const std::string calls =
      "{% for c in m.tool_calls or [] %}{{ c.function.name ~ ' ' ~ "
      "(c.function.arguments | tojson) }}{% endfor %}";
  const SftPrepareOptions options{.read = {.files = {path}}};
  CaptureLogger dropping, quoting;
  folder.chat_template = "{% for m in messages %}" + turn + end;
  EXPECT_EQ(prepare_sft(folder, options, dropping)->size(), 3);
  EXPECT_TRUE(dropping.contains("a.jsonl: 2 rows hold tool calls or tools that the chat template does not"));
  folder.chat_template = "{% for m in messages %}" + turn + calls + end;
  EXPECT_EQ(prepare_sft(folder, options, quoting)->size(), 3);
  EXPECT_FALSE(quoting.contains("does not print"));
  EXPECT_TRUE(quoting.contains("a.jsonl: 1 row holds tool calls whose arguments are a JSON string"));
}

TEST_F(PrepareSft, SaysWhereColumnsAreTheWrongWayRound) {
  SftPrepareOptions options{.read = {.files = {write("a.jsonl", R"({"question": "q", "answer": "a"})")}}};
  options.encode.columns = ColumnMap::parse(R"({"query": "question", "response": "answer"})");
  NullLogger logger;
  const std::string message = message_of<DataError>([&] { prepare_sft(tokenizer(), options, logger); });
  EXPECT_TRUE(
      message.ends_with("; --columns is the wrong way round: it maps the file's key to our key, so give "
                        R"({"answer":"response","question":"query"})"))
      << message;
}

TEST_F(PrepareSft, PreparesConversationsOnceAndTakesThemFromTheCache) {
  const std::string path = write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "an answer"}]})"
      "\n{\"messages\": []}\n"
      R"({"query": "q", "response": "another"})"
      "\n");
  SftPrepareOptions options{.read = {.files = {path}, .cache_folder = folder() / "cache"}};
  CaptureLogger first_log, second_log;
  const auto first = prepare_sft(tokenizer(), options, first_log);
  const auto second = prepare_sft(tokenizer(), options, second_log);
  ASSERT_EQ(first->size(), 2);
  EXPECT_GT(first->row(0).trained_tokens(), 0);
  EXPECT_EQ(first->place(1), (RowPlace{0, 3}));
  EXPECT_TRUE(first_log.contains("rows: 3 read = 2 trained whole + 0 truncated + 1 dropped"));
  EXPECT_TRUE(second_log.contains("prepared rows come from the cache"));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(second->row(i).input_ids, first->row(i).input_ids);
    EXPECT_EQ(second->row(i).labels, first->row(i).labels);
    EXPECT_EQ(second->row(i).weights, first->row(i).weights);
  }
  EXPECT_EQ(second->origin().fingerprint, first->origin().fingerprint);
  EXPECT_EQ(second->origin().note, first->origin().note);
  EXPECT_FALSE(first->origin().note.empty());
  options.encode.loss_scale = LossScale::kAll;
  CaptureLogger third_log;
  EXPECT_NE(prepare_sft(tokenizer(), options, third_log)->origin().fingerprint, first->origin().fingerprint);
  EXPECT_FALSE(third_log.contains("prepared rows come from the cache"));
}

TEST_F(PrepareSft, CutsRowsToMaxLength) {
  SftPrepareOptions options{
      .read = {.files = {write("a.jsonl", R"({"text": "a text of more than eight tokens, surely"})"
                                          "\n")},
               .max_length = 8,
               .truncation = Truncation::kRight},
      .encode = {.task = SftTask::kPretrain},
      .workers = 2};
  NullLogger logger;
  const auto dataset = prepare_sft(tokenizer(), options, logger);
  EXPECT_EQ(dataset->row(0).length(), 8);
  EXPECT_EQ(dataset->origin().report.truncated(), 1);
  options.read.truncation = Truncation::kDelete;
  EXPECT_THROW(prepare_sft(tokenizer(), options, logger), DataError);
}

}  // namespace
}  // namespace apus::data
