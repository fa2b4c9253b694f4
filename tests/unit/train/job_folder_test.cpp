#include "train/job_folder.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

class JobFolderTest : public ::testing::Test {
 protected:
  JobFolder folder() {
    return JobFolder(*world_, {.output_dir = out_ / "a/out"}, {.metric = "eval_loss"}, clock_);
  }

  std::string refusal(JobFolder& folder) {
    try {
      folder.open();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "opened";
  }

  std::unique_ptr<comm::Communicator> world_ = comm::make_fake_communicator({});
  nlohmann::ordered_json args_ = {{"learning_rate", 1e-4}, {"world_size", 1}};
  ScratchFolder out_;
  SystemClock clock_;
};

TEST_F(JobFolderTest, IsMadeWhenItIsOpenedAndNotBefore) {
  JobFolder run = folder();
  run.decide(args_);
  EXPECT_EQ(out_.size(), 0);
  run.open();
  EXPECT_TRUE(fs::exists(run.decision().run_dir / "args.json"));
}

TEST_F(JobFolderTest, GoesWithAllThatWasMadeForIt) {
  JobFolder run = folder();
  run.decide(args_);
  run.discard();
  run.decide(args_);
  run.open();
  run.discard();
  EXPECT_EQ(out_.size(), 0);
}

TEST_F(JobFolderTest, StaysWhereSomethingLiesInIt) {
  for (const char* name : {"logging.jsonl", "notes.txt", "checkpoint-1.partial"}) {
    JobFolder run = folder();
    run.decide(args_);
    run.open();
    write_file_atomic(run.decision().run_dir / name, "x");
    run.discard();
    EXPECT_TRUE(fs::exists(run.decision().run_dir / "args.json")) << name;
    fs::remove_all(out_ / "a");
  }
}

TEST_F(JobFolderTest, OfAnEarlierAttemptIsLockedAtOnceAndNeverDiscarded) {
  fs::path run_dir;
  {
    JobFolder killed = folder();
    killed.decide(args_);
    killed.open();
    run_dir = killed.decision().run_dir;
  }
  JobFolder again = folder();
  EXPECT_EQ(again.decide(args_).run_dir, run_dir);
  JobFolder meanwhile = folder();
  EXPECT_THROW(meanwhile.decide(args_), ConfigError) << "it is locked before it is opened";
  again.open();
  again.discard();
  EXPECT_TRUE(fs::exists(run_dir / "args.json"));
}

TEST_F(JobFolderTest, TheSameRunOfAnotherProcessIsNotBegunTwice) {
  JobFolder slow = folder();
  slow.decide(args_);
  {
    JobFolder fast = folder();
    fast.decide(args_);
    fast.open();
    EXPECT_NE(refusal(slow).find("is being written by another process"), std::string::npos);
  }
  const std::string message = refusal(slow);
  EXPECT_NE(message.find("was begun by another process while this one was loading"), std::string::npos)
      << message;
  JobFolder other = folder();
  EXPECT_NO_THROW(other.decide({{"learning_rate", 1.0}, {"world_size", 1}}));
}

}  // namespace
}  // namespace apus::train
