#include "cli/report_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::cli {
namespace {

namespace fs = std::filesystem;

class ReportFileTest : public testing::Test {
 protected:
  std::string refusal(const fs::path& path, const ReportInputs& inputs = {}) const {
    try {
      ReportFile(path.string(), inputs);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  ScratchFolder folder_;
};

TEST_F(ReportFileTest, ReplacesAnOlderReport) {
  const fs::path path = folder_.put("a.json", "a long report of an earlier time");
  ReportFile(path.string(), {}).write("new\n");
  EXPECT_EQ(read_file(path), "new\n");
}

TEST_F(ReportFileTest, RefusesWhatIsRead) {
  const fs::path rows = folder_.put("rows.jsonl", "{}\n");
  fs::create_symlink(rows, folder_ / "link");
  fs::create_hard_link(rows, folder_ / "hard");
  for (const fs::path& path : {rows, folder_ / "link", folder_ / "hard", folder_ / "./rows.jsonl"})
    EXPECT_NE(refusal(path, {.files = {rows}}).find("would replace a file that is read"), std::string::npos)
        << path;
  EXPECT_EQ(read_file(rows), "{}\n");
  EXPECT_EQ(refusal(folder_ / "new.json", {.files = {rows}}), "accepted");
}

TEST_F(ReportFileTest, RefusesFilesOfTheModel) {
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "model/sub");
  const fs::path blob = folder_.put("blobs/1", "weights");
  fs::create_symlink(blob, folder_ / "model/tokenizer.json");
  folder_.put("model/sub/config.json", "{}");
  const ReportInputs inputs{.folders = {folder_ / "model"}};
  for (const char* name : {"model/tokenizer.json", "blobs/1", "model/sub/config.json"})
    EXPECT_NE(refusal(folder_ / name, inputs).find("would replace a file in"), std::string::npos) << name;
  EXPECT_EQ(refusal(folder_ / "model/look.json", inputs), "accepted") << "a new file harms nothing";
}

TEST_F(ReportFileTest, RefusesNamesThatCannotBeWritten) {
  EXPECT_NE(refusal("").find("--result_path is empty"), std::string::npos);
  EXPECT_NE(refusal(folder_.path()).find("is a folder"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "absent/a.json").find("there is no folder"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "absent"));
}

TEST_F(ReportFileTest, WritesThroughLinks) {
  const fs::path target = folder_.put("target.json", "old");
  fs::create_symlink("target.json", folder_ / "link");
  fs::create_symlink("new.json", folder_ / "dangling");
  ReportFile((folder_ / "link").string(), {}).write("one");
  ReportFile((folder_ / "dangling").string(), {}).write("two");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(read_file(target), "one");
  EXPECT_EQ(read_file(folder_ / "new.json"), "two");
}

TEST_F(ReportFileTest, PipesAndDevicesStayWhatTheyAre) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return read_file(pipe); });
  ReportFile(pipe.string(), {}).write("report");
  EXPECT_EQ(reader.get(), "report");
  EXPECT_TRUE(fs::is_fifo(pipe));
  try {
    ReportFile("/dev/full", {}).write("report");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_EQ(error.code(), ENOSPC);
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(ReportFileTest, StandardOutputIsWrittenToAlsoWhereItIsAFile) {
  testing::internal::CaptureStdout();
  ReportFile("/dev/stdout", {}).write("report\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "report\n");
}

}  // namespace
}  // namespace apus::cli
