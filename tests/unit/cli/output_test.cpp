#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "apus/base/file.h"

namespace apus::cli {
namespace {

/// Standard output is something else for as long as this lives.
class OtherOutput {
 public:
  explicit OtherOutput(int descriptor) : kept_(::dup(STDOUT_FILENO)) {
    descriptor < 0 ? ::close(STDOUT_FILENO) : ::dup2(descriptor, STDOUT_FILENO);
  }
  ~OtherOutput() {
    ::dup2(kept_, STDOUT_FILENO);
    ::close(kept_);
  }

 private:
  int kept_;
};

int error_of_output() {
  try {
    write_output("text");
  } catch (const FileError& error) {
    return error.code();
  }
  return 0;
}

TEST(Output, IsTheTextAndALineEnd) {
  testing::internal::CaptureStdout();
  write_output("a\nb");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\nb\n");
}

TEST(Output, WhatCannotBeWrittenIsAnError) {
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  int code = 0;
  {
    const OtherOutput other(full);
    code = error_of_output();
  }
  ::close(full);
  EXPECT_EQ(code, ENOSPC);
}

TEST(Output, AClosedStreamIsNeverAFileOpenedLater) {
  int code = 0;
  int later = -1;
  {
    const OtherOutput other(-1);
    hold_standard_streams();
    later = ::open("/dev/null", O_RDWR);
    code = error_of_output();
  }
  EXPECT_GT(later, STDERR_FILENO);
  ::close(later);
  EXPECT_EQ(code, EBADF);
}

}  // namespace
}  // namespace apus::cli
