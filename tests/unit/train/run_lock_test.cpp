#include "train/run_lock.h"

#include <gtest/gtest.h>

#include <optional>

#include "apus/base/error.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

TEST(RunLock, ASecondWriterIsRefusedUntilTheFirstIsGone) {
  const ScratchFolder out;
  std::optional<RunLock> first(std::in_place, out / "v0");
  try {
    RunLock second(out / "v0");
    FAIL() << "did not throw";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("another --output_dir"), std::string::npos) << error.what();
  }
  first.reset();
  EXPECT_NO_THROW(RunLock(out / "v0"));
}

TEST(RunLock, OtherRunsAreFree) {
  const ScratchFolder out;
  const RunLock first(out / "v0");
  EXPECT_NO_THROW(RunLock(out / "v1"));
}

}  // namespace
}  // namespace apus::train
