#include "data/row_cache.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "apus/base/clock.h"
#include "apus/base/log.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using RowCacheTest = RowsTest;
using FileLockTest = RowsTest;

RowCacheKey key_of(const std::string& name) {
  return {{"kind", "sft"}, {"name", name}};
}

class CacheFolder {
 public:
  CacheFolder(fs::path folder, int64_t max_bytes) : options_{std::move(folder), max_bytes} {}

  RowCache entry(const std::string& name) const { return RowCache(options_, key_of(name), RowKind::kSft); }

  /// Writes an entry of one row with `tokens` tokens, last used `age` seconds ago.
  RowCache put(const std::string& name, int tokens, int age) const {
    const RowCache cache = entry(name);
    NullLogger logger;
    RowFileWriter writer(named_sink(cache.path()), RowKind::kSft, logger);
    RowRecords records;
    records.add(SftRow{std::vector<int32_t>(static_cast<size_t>(tokens), 1),
                       std::vector<int32_t>(static_cast<size_t>(tokens), 1)},
                false);
    writer.append(records);
    writer.finish(nlohmann::json{{"key", key_of(name)}}.dump());
    fs::last_write_time(cache.path(), fs::file_time_type::clock::now() - std::chrono::seconds(age));
    return cache;
  }

 private:
  RowCacheOptions options_;
};

TEST_F(RowCacheTest, FindsWhatWasPutThere) {
  const CacheFolder folder_of(folder() / "new" / "rows", 1 << 20);
  NullLogger logger;
  EXPECT_EQ(folder_of.entry("a").find(logger), nullptr);
  folder_of.put("a", 3, 0);
  EXPECT_EQ(folder_of.entry("a").find(logger)->size(), 1);
  EXPECT_EQ(folder_of.entry("b").find(logger), nullptr);
}

TEST_F(RowCacheTest, ADamagedOrForeignEntryIsNamedOnceAndNotUsed) {
  const CacheFolder folder_of(folder(), 1 << 20);
  const fs::path path = folder_of.put("a", 3, 0).path();
  fs::copy_file(folder_of.put("b", 3, 0).path(), path, fs::copy_options::overwrite_existing);
  CaptureLogger logger;
  EXPECT_EQ(folder_of.entry("a").find(logger), nullptr);
  EXPECT_TRUE(logger.contains("cached rows cannot be used and are prepared anew: " + path.string() +
                              ": is the entry of another key"));
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_EQ(folder_of.entry("a").find(logger), nullptr);
  EXPECT_TRUE(logger.contains("was cut short"));
  EXPECT_EQ(logger.lines().size(), 2u);
}

TEST_F(RowCacheTest, TheLeastRecentlyUsedEntriesGo) {
  const CacheFolder folder_of(folder(), 10'000);
  const RowCache oldest = folder_of.put("oldest", 1000, 300);
  const RowCache used = folder_of.put("used", 1000, 200);
  const RowCache old = folder_of.put("old", 1000, 100);
  const RowCache now = folder_of.put("now", 1000, 400);
  CaptureLogger logger;
  ASSERT_NE(used.find(logger), nullptr);
  now.evict(logger);
  EXPECT_FALSE(fs::exists(oldest.path()));
  EXPECT_FALSE(fs::exists(old.path()));
  EXPECT_TRUE(fs::exists(used.path())) << "finding an entry uses it";
  EXPECT_TRUE(fs::exists(now.path())) << "the entry at hand stays though it is the oldest";
  EXPECT_EQ(logger.count("removed cached rows that were not used for long"), 2);
  RowCache({folder(), 1}, key_of("now"), RowKind::kSft).evict(logger);
  EXPECT_TRUE(fs::exists(now.path()));
}

TEST_F(RowCacheTest, AnEntryThatIsMappedOutlivesItsRemoval) {
  const CacheFolder folder_of(folder(), 1);
  NullLogger logger;
  const auto file = folder_of.put("a", 50, 10).find(logger);
  folder_of.put("b", 50, 0).evict(logger);
  EXPECT_EQ(RowFileTable<SftRow>(file).row(0).length(), 50);
}

TEST_F(RowCacheTest, WhatAKilledWriterLeftIsRemoved) {
  const CacheFolder folder_of(folder(), 1 << 20);
  const RowCache cache = folder_of.entry("a");
  const fs::path mine = cache.path().string() + ".tmp-1-0",
                 other = folder_of.entry("b").path().string() + ".tmp-1-0";
  write(mine.filename().string(), "half");
  write(other.filename().string(), "half");
  cache.remove_leftovers();
  EXPECT_FALSE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(other)) << "its writer may be alive";
  NullLogger logger;
  cache.evict(logger);
  EXPECT_TRUE(fs::exists(other));
  fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(25));
  cache.evict(logger);
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(RowCacheTest, SaysWhichLockItWaitsFor) {
  const CacheFolder folder_of(folder(), 1 << 20);
  const RowCache cache = folder_of.entry("a");
  ManualClock clock;
  CaptureLogger logger;
  auto held = cache.lock(clock, logger);
  std::atomic<bool> got = false;
  std::jthread waiter([&] {
    const auto lock = cache.lock(clock, logger);
    got = true;
  });
  const auto wait_for_line = [&](int count) {
    for (int i = 0; i < 500 && logger.count("another process") < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(logger.lines().size(), 0u) << "not at once";
  clock.advance(std::chrono::seconds(6));
  wait_for_line(1);
  EXPECT_TRUE(logger.contains("waiting since 6 s for another process that prepares the same rows (lock " +
                              cache.path().string() + ".lock)"));
  EXPECT_FALSE(got);
  held.reset();
  waiter.join();
  EXPECT_TRUE(got);
  EXPECT_FALSE(fs::exists(cache.path().string() + ".lock"));
}

TEST_F(FileLockTest, OneHolderAtATime) {
  const fs::path path = folder() / "lock";
  std::atomic<int> inside = 0, most = 0, turns = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 8; ++i) {
          const FileLock lock(path, [] {});
          most = std::max<int>(most, ++inside);
          ++turns;
          --inside;
        }
      });
  }
  EXPECT_EQ(most, 1);
  EXPECT_EQ(turns, 32);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(FileLockTest, ALockFileOfAProcessThatDiedIsNoObstacle) {
  write("lock", "");
  const FileLock lock(folder() / "lock", [] { FAIL() << "nobody holds it"; });
  EXPECT_THROW(FileLock(folder() / "missing" / "lock", [] {}), FileError);
}

}  // namespace
}  // namespace apus::data
