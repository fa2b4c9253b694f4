#include "data/row_cache_key.h"

#include <set>

#include "apus/base/clock.h"
#include "tests/unit/data/support/packed.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using RowCacheKeyTest = RowsTest;
using Json = nlohmann::json;

TEST_F(RowCacheKeyTest, AFilesBytesCount) {
  const Json first = content_in_key({write("a.jsonl", "{1}\n{2}\n"), {}}, "--dataset");
  EXPECT_EQ(content_in_key({write("b.jsonl", "{1}\n{2}\n"), {}}, "--dataset"), first);
  EXPECT_NE(content_in_key({write("b.jsonl", "{1}\n{3}\n"), {}}, "--dataset"), first);
}

TEST_F(RowCacheKeyTest, OfALimitedFileTheFirstRowsCount) {
  const Json first = content_in_key({write("a.jsonl", "{1}\n{2}\n{3}\n"), 2}, "--dataset");
  EXPECT_EQ(content_in_key({write("b.jsonl", "{1}\n{2}\n{4}\n"), 2}, "--dataset"), first);
  EXPECT_EQ(content_in_key({write("b.gz", gzipped("{1}\n{2}\n")), 2}, "--dataset"), first);
  EXPECT_NE(content_in_key({write("b.jsonl", "{1}\n{2}\n{3}\n"), 3}, "--dataset"), first);
  EXPECT_NE(content_in_key({write("b.jsonl", "{1}\n\n{2}\n"), 2}, "--dataset"), first) << "another line";
}

TEST_F(RowCacheKeyTest, ATokenizerIsItsFileAndItsSpecialTokens) {
  const std::filesystem::path original = APUS_SOURCE_DIR "/tests/data/cases/dpo/tokenizer";
  std::filesystem::copy(original, folder() / "t");
  TokenizerFolder loaded = load_tokenizer_folder(folder() / "t");
  const Json first = tokenizer_in_key(loaded);
  EXPECT_EQ(tokenizer_in_key(load_tokenizer_folder(original)), first);
  loaded.config.eos_token = "<eos>";
  EXPECT_NE(tokenizer_in_key(loaded), first);
  loaded = load_tokenizer_folder(original);
  loaded.config.add_bos_token = true;
  EXPECT_NE(tokenizer_in_key(loaded), first);
  std::ofstream(folder() / "t" / "tokenizer.json", std::ios::app) << " ";
  EXPECT_NE(tokenizer_in_key(load_tokenizer_folder(folder() / "t")), first);
  loaded = load_tokenizer_folder(folder() / "t");
  std::filesystem::remove(folder() / "t" / "tokenizer.json");
  EXPECT_TRUE(tokenizer_in_key(loaded).is_null());
}

TEST_F(RowCacheKeyTest, ATemplateThatAsksForTheDayCountsForTheDay) {
  ManualClock clock(Clock::WallTime(std::chrono::hours(24 * 365 * 50)));
  const std::string day = "{{ strftime_now('%d %b %Y') }}";
  EXPECT_TRUE(time_in_template("{{ messages }}", &clock).day.is_null());
  EXPECT_TRUE(time_in_template(day, nullptr).day.is_null()) << "asking is an error then";
  const Json today = time_in_template(day, &clock).day;
  EXPECT_FALSE(today.is_null());
  EXPECT_FALSE(time_in_template(day, &clock).is_finer);
  clock.advance(std::chrono::hours(25));
  EXPECT_NE(time_in_template(day, &clock).day, today);
  EXPECT_TRUE(time_in_template("{{ strftime_now('%H:%M') }}", &clock).is_finer);
}

TEST_F(RowCacheKeyTest, EveryOptionOfEncodingCounts) {
  const TokenizerFolder folder_without{.chat_template = {}}, folder_with{.chat_template = "{{ x }}"};
  std::set<std::string> keys;
  const auto add = [&](const Json& key) { EXPECT_TRUE(keys.insert(key.dump()).second) << key.dump(); };
  add(encode_options_in_key(folder_without, DpoEncodeOptions()));
  add(encode_options_in_key(folder_with, DpoEncodeOptions()));
  add(encode_options_in_key(folder_with, DpoEncodeOptions{.use_chat_template = false}));
  add(encode_options_in_key(folder_with, DpoEncodeOptions{.system = ""}));
  add(encode_options_in_key(folder_with, DpoEncodeOptions{.system = "s"}));
  add(encode_options_in_key(folder_with,
                            DpoEncodeOptions{.columns = ColumnMap::parse(R"({"a": "prompt"})")}));
  add(encode_options_in_key(folder_with, DpoEncodeOptions{.template_kwargs = {{"a", 1}}}));
  add(encode_options_in_key(folder_without, SftEncodeOptions()));
  add(encode_options_in_key(folder_with, SftEncodeOptions()));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.task = SftTask::kPretrain}));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.system = "s"}));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.loss_scale = LossScale::kAll}));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.columns = ColumnMap::parse(R"({"a": "query"})")}));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.template_kwargs = {{"a", 1}}}));
  add(encode_options_in_key(folder_with, SftEncodeOptions{.template_kwargs = {{"a", 2}}}));
  add(read_options_in_key({}));
  add(read_options_in_key({.max_length = 5}));
  add(read_options_in_key({.truncation = Truncation::kLeft}));
  EXPECT_NE(text_in_key("ab"), text_in_key("ba"));
  EXPECT_NE(text_in_key(std::nullopt), text_in_key(""));
}

TEST_F(RowCacheKeyTest, NamesAreShortAndDiffer) {
  const std::string name = entry_name({{"kind", "dpo"}, {"x", 1}});
  EXPECT_TRUE(name.starts_with("dpo-")) << name;
  EXPECT_TRUE(name.ends_with(".rows")) << name;
  EXPECT_EQ(name.size(), 4u + 32 + 5);
  EXPECT_NE(entry_name({{"kind", "dpo"}, {"x", 2}}), name);
}

}  // namespace
}  // namespace apus::data
