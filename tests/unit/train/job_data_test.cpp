#include "train/job_data.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/log.h"
#include "tests/support/job_case.h"

namespace apus::testing {
namespace {

using train::JobOptions;

class JobData : public ::testing::Test {
 protected:
  train::JobRows rows(const JobOptions& given) {
    const JobOptions options = train::resolve_job(given, 1);
    tokenizer_ = train::load_job_tokenizer(options, logger_);
    return train::prepare_job_rows(options, {.task = train::job_data_task(options),
                                             .tokenizer = &tokenizer_,
                                             .max_length = 64,
                                             .clock = &clock_,
                                             .logger = &logger_});
  }

  JobBench bench_;
  CaptureLogger logger_;
  SystemClock clock_;
  data::TokenizerFolder tokenizer_;
};

TEST_F(JobData, EachTaskGetsItsRows) {
  EXPECT_TRUE(rows(bench_.options({"dpo", "lora"})).all.pairs);
  EXPECT_TRUE(rows(bench_.options({"sft", "lora"})).all.texts);
  EXPECT_EQ(rows(bench_.options({"pt", "lora"})).task, data::DataTask::kPretrain);
  JobOptions ids = bench_.options({"sft", "lora"});
  ids.dataset = {bench_
                     .put("ids.jsonl", R"({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]})"
                                       "\n")
                     .string()};
  EXPECT_EQ(rows(ids).task, data::DataTask::kTokenRows);
}

TEST_F(JobData, SplitsThenPacks) {
  JobOptions options = bench_.options({"sft", "lora"});
  options.split_dataset_ratio = 0.25;
  options.packing = true;
  options.max_length = 64;
  const train::JobRows found = rows(options);
  EXPECT_EQ(found.held_out->size(), 2);
  EXPECT_EQ(found.unpacked->size(), 6);
  ASSERT_TRUE(found.packing);
  EXPECT_EQ(found.packing->rows, 6);
  EXPECT_LT(found.train->size(), 6);
  EXPECT_NE(found.fingerprint(), rows(bench_.options({"sft", "lora"})).fingerprint());
}

TEST_F(JobData, TheRecordNamesEachFile) {
  JobOptions options = bench_.options({"sft", "lora"});
  options.val_dataset = {bench_.put("val.jsonl", "{\"text\": \"one two\"}\n").string()};
  const nlohmann::ordered_json files = rows(options).files();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].at("file"), options.dataset[0]);
  EXPECT_EQ(files[0].at("rows"), 8);
  EXPECT_EQ(files[1].at("flag"), "--val_dataset");
  EXPECT_EQ(files[1].at("rows"), 1);
  EXPECT_EQ(files[0].at("fingerprint").get<std::string>().size(), 16u);
}

TEST_F(JobData, TheTemplateFollowsTheFlag) {
  JobOptions options = bench_.options({"sft", "lora"});
  const std::string own = train::load_job_tokenizer(options, logger_).chat_template.value_or("");
  options.chat_template =
      bench_.put("my.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}").string();
  EXPECT_NE(train::load_job_tokenizer(options, logger_).chat_template.value_or(""), own);
  options.chat_template = "no_such_template";
  EXPECT_THROW(train::load_job_tokenizer(options, logger_), ConfigError);
}

TEST_F(JobData, TheLossScaleReachesTheRows) {
  JobOptions options = bench_.options({"sft", "lora"});
  options.chat_template =
      bench_
          .put("my.jinja",
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
          .string();
  options.dataset = {bench_
                         .put("chat.jsonl", R"({"messages": [{"role": "user", "content": "a"}, )"
                                            R"({"role": "assistant", "content": "b"}]})"
                                            "\n")
                         .string()};
  const auto trained = [](const train::JobRows& found) {
    const std::vector<int32_t> labels = found.all.texts->row(0).labels;
    return std::count_if(labels.begin(), labels.end(), [](int32_t id) { return id >= 0; });
  };
  const auto turns = trained(rows(options));
  options.loss_scale = "all";
  EXPECT_GT(trained(rows(options)), turns);
}

TEST_F(JobData, LimitsComeFromTheFlagsBeforeTheModel) {
  JobOptions options = bench_.options({"sft", "lora"});
  const data::TokenizerFolder tokenizer = train::load_job_tokenizer(options, logger_);
  EXPECT_EQ(train::read_model_limits(options, tokenizer, logger_).max_length, 128);
  EXPECT_EQ(train::read_model_limits(options, tokenizer, logger_).hidden_size, 40);
  options.max_length = 200;
  EXPECT_EQ(train::read_model_limits(options, tokenizer, logger_).max_length, 200);
  EXPECT_EQ(logger_.count("--max_length 200 is above"), 1);
  options.max_model_len = 256;
  train::read_model_limits(options, tokenizer, logger_);
  EXPECT_EQ(logger_.count("--max_length 200 is above"), 1) << "the model is told of longer rows";
}

}  // namespace
}  // namespace apus::testing
