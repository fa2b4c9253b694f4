#include "apus/base/memory_usage.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

constexpr int64_t kSize = int64_t{64} << 20;

TEST(MemoryUsage, ReadsTheFieldInKilobytes) {
  EXPECT_EQ(parse_resident_anonymous_bytes("VmHWM:\t 9 kB\nRssAnon:\t     120 kB\nRssFile: 7 kB\n"),
            120 * 1024);
  EXPECT_THROW(parse_resident_anonymous_bytes("VmRSS: 12 kB\n"), Error);
}

TEST(MemoryUsage, PeakRemembersWhatWasFreed) {
  ResidentPeak peak;
  const int64_t before = peak.sample();
  // A mapping of its own: allocators, and those of sanitizers more so, keep freed memory.
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kSize);
  EXPECT_GE(peak.sample(), before + kSize * 9 / 10);
  ::munmap(memory, kSize);
  EXPECT_LE(peak.sample(), before + kSize / 2);
  EXPECT_GE(peak.peak_bytes(), before + kSize * 9 / 10);
}

TEST(MemoryUsage, MappedFilesDoNotCount) {
  const ScratchFolder folder;
  const MappedFile file(folder.put("f", std::string(kSize, 'x')));
  const int64_t before = resident_anonymous_bytes();
  int64_t sum = 0;
  for (std::size_t i = 0; i < file.bytes().size(); i += 512) sum += static_cast<int64_t>(file.bytes()[i]);
  EXPECT_EQ(sum, kSize / 512 * 'x');
  EXPECT_LT(resident_anonymous_bytes(), before + kSize / 4);
}

}  // namespace
}  // namespace apus
