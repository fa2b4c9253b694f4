#include <gtest/gtest.h>

#include "tests/support/apus_program.h"
#include "tests/unit/cli/support/program_call.h"

namespace apus::program_tests {
namespace {

/// A row of some shape, and the command that trains on it; `apus train` must find the same.
struct Shape {
  const char* name;
  const char* command;
  const char* row;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"strings", "dpo", R"({"prompt": "What is a swift?", "chosen": " A bird.", "rejected": " No."})"},
      {"message lists", "dpo",
       R"({"prompt": [{"role": "user", "content": "Hi"}], "chosen": [{"role": "assistant", "content": "Hello."}],
           "rejected": [{"role": "assistant", "content": "No."}]})"},
      {"whole conversations", "dpo",
       R"({"chosen": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
           "rejected": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No."}]})"},
      {"messages and rejected_response", "dpo",
       R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
           "rejected_response": "No."})"},
      {"messages and rejected_messages", "dpo",
       R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
           "rejected_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No."}]})"},
      {"several turns, a system text and a margin", "dpo",
       R"({"system": "Be brief.", "margin": 0.5, "messages": [{"role": "user", "content": "Hi"},
           {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"},
           {"role": "assistant", "content": "Yes."}], "rejected_response": "No."})"},
      {"messages", "sft",
       R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
           {"role": "assistant", "content": "Hello."}]})"},
      {"messages with loss", "sft",
       R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello.", "loss": false},
           {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Yes.", "loss": true}]})"},
      {"ShareGPT", "sft",
       R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]})"},
      {"Alpaca", "sft", R"({"instruction": "Greet.", "input": "in English", "output": "Hello."})"},
      {"query and response", "sft",
       R"({"system": "Be brief.", "query": "And?", "response": "Yes.", "history": [["Hi", "Hello."]]})"},
      {"text", "pt", R"({"text": "Swifts spend most of their lives in the air."})"}};
  return all;
}

class RowShapes : public TinyJob {
 protected:
  std::string rows_of(const Shape& shape) {
    std::string text;
    const std::string row = nlohmann::json::parse(shape.row).dump() + "\n";
    for (int i = 0; i < 4; ++i) text += row;
    return folder_.put("rows.jsonl", text).string();
  }

  /// One step in this process.
  cli::Outcome train(const std::string& command, const std::string& rows, const std::string& out,
                     const std::string& task) {
    Words words = instead(instead(job(out, 1), "--dataset", rows), "--use_chat_template",
                          task == "pt" ? "false" : "true");
    words.front() = command;
    return cli::call(with(words, {"--report_to", "none"}), job_environment());
  }
};

TEST_F(RowShapes, EachTrainsByItsCommandAndByTrain) {
  int number = 0;
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    const std::string rows = rows_of(shape);
    const std::string out = "out-" + std::to_string(++number);
    const cli::Outcome named = train(shape.command, rows, out, shape.command);
    ASSERT_EQ(named.code, 0) << named.error << named.out;
    EXPECT_NE(named.out.find("4 trained whole"), std::string::npos) << named.out;
    const cli::Outcome found = train("train", rows, out + "-train", shape.command);
    ASSERT_EQ(found.code, 0) << found.error << found.out;
    EXPECT_NE(found.out.find(std::string("By its columns, the data is for ") + shape.command),
              std::string::npos)
        << found.out;
    EXPECT_EQ(losses(out), losses(out + "-train"));
    EXPECT_EQ(losses(out).size(), 1u);
  }
}

TEST_F(RowShapes, OneAssistantMessageIsTextForPretraining) {
  const std::string rows =
      folder_
          .put("rows.jsonl", R"({"messages": [{"role": "assistant", "content": "Swifts fly."}]})"
                             "\n")
          .string();
  const cli::Outcome outcome = train("pt", rows, "out", "pt");
  EXPECT_EQ(outcome.code, 0) << outcome.error << outcome.out;
}

}  // namespace
}  // namespace apus::program_tests
