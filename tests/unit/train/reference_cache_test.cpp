#include "apus/train/reference_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

ReferenceKey some_key() {
  return {.model = "m1",
          .dtype = "float32",
          .max_length = "4096",
          .truncation = "delete",
          .data = "d1",
          .library = "0.1"};
}

ReferenceTable some_table() {
  return {.row_hashes = {7, 8, 9}, .chosen = {-1, -2, -3}, .rejected = {-4, -5.5F, -6}};
}

class ReferenceCacheTest : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  ReferenceCache cache_{scratch_ / "reference"};
  CaptureLogger logger_;
};

TEST_F(ReferenceCacheTest, FindsWhatWasStoredUnderTheKeyAlone) {
  EXPECT_FALSE(cache_.find(some_key(), logger_));
  cache_.store(some_key(), some_table());
  const auto found = cache_.find(some_key(), logger_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row_hashes, some_table().row_hashes);
  EXPECT_EQ(found->chosen, some_table().chosen);
  EXPECT_EQ(found->rejected, some_table().rejected);
  EXPECT_TRUE(logger_.lines().empty());
}

TEST_F(ReferenceCacheTest, EveryFieldOfTheKeyCounts) {
  cache_.store(some_key(), some_table());
  const auto other = [&](auto change) {
    ReferenceKey key = some_key();
    change(key);
    return key;
  };
  const std::vector<ReferenceKey> keys = {
      other([](auto& k) { k.model = "x"; }),         other([](auto& k) { k.adapter = "x"; }),
      other([](auto& k) { k.dtype = "x"; }),         other([](auto& k) { k.quantisation = "x"; }),
      other([](auto& k) { k.attention = "x"; }),     other([](auto& k) { k.rope = "x"; }),
      other([](auto& k) { k.max_length = "x"; }),    other([](auto& k) { k.truncation = "x"; }),
      other([](auto& k) { k.chat_template = "x"; }), other([](auto& k) { k.tokenizer = "x"; }),
      other([](auto& k) { k.ld_alpha = "x"; }),      other([](auto& k) { k.data = "x"; }),
      other([](auto& k) { k.library = "x"; })};
  const ReferenceKey evaluation = other([](auto& k) { k.part = "evaluation"; });
  EXPECT_FALSE(cache_.find(evaluation, logger_));
  EXPECT_EQ(cache_.difference(evaluation), "") << "another part is not what changed";
  ASSERT_EQ(keys.size() + 1, some_key().fields().size());
  for (size_t field = 0; field < keys.size(); ++field) {
    EXPECT_FALSE(cache_.find(keys[field], logger_)) << field;
    const std::string found = cache_.difference(keys[field]);
    EXPECT_TRUE(found.ends_with(", now x)")) << found;
    EXPECT_EQ(std::ranges::count(found, '('), 1) << found;
  }
}

TEST_F(ReferenceCacheTest, TheNearestEntryIsCompared) {
  EXPECT_EQ(cache_.difference(some_key()), "");
  ReferenceKey far = some_key(), near = some_key();
  far.model = "m2";
  far.data = "d2";
  near.max_length = "2048";
  cache_.store(far, some_table());
  cache_.store(near, some_table());
  EXPECT_EQ(cache_.difference(some_key()), "max_length (2048, now 4096)");
}

TEST_F(ReferenceCacheTest, DamageIsNamedAndNotUsed) {
  cache_.store(some_key(), some_table());
  const fs::path file = cache_.path(some_key());
  const std::string whole = read_file(file);
  for (size_t size : {size_t{0}, size_t{10}, whole.size() - 1}) {
    write_file_atomic(file, whole.substr(0, size));
    EXPECT_FALSE(cache_.find(some_key(), logger_)) << size;
  }
  for (size_t place : {size_t{0}, size_t{8}, size_t{16}, size_t{30}, whole.size() - 20, whole.size() - 1}) {
    std::string broken = whole;
    broken[place] = static_cast<char>(broken[place] ^ 0x41);
    write_file_atomic(file, broken);
    EXPECT_FALSE(cache_.find(some_key(), logger_)) << place;
  }
  EXPECT_EQ(logger_.count("are computed anew"), 9);
  EXPECT_TRUE(logger_.contains(file.string()));
}

TEST_F(ReferenceCacheTest, AnEntryOfAnotherKeyIsNotUsed) {
  ReferenceKey other = some_key();
  other.model = "m2";
  write_file_atomic(cache_.path(some_key()), some_table().encode(other.text()));
  EXPECT_FALSE(cache_.find(some_key(), logger_));
  EXPECT_TRUE(logger_.contains("entry of another key"));
}

TEST_F(ReferenceCacheTest, RowsBeyondTheFileAreRefused) {
  std::string bytes = some_table().encode("{}");
  bytes[16] = 100;  // claims 100 rows
  EXPECT_THROW(ReferenceFile::decode(bytes, "x"), DataError);
  bytes[23] = 127;  // and more than memory has
  EXPECT_THROW(ReferenceFile::decode(bytes, "x"), DataError);
}

TEST(ReferenceFingerprints, SeeWeightsConfigAndNames) {
  const ScratchFolder scratch;
  const auto make = [&](const std::string& config, const std::string& weights, const std::string& name) {
    const fs::path folder = scratch / name;
    fs::create_directories(folder);
    std::ofstream(folder / "config.json") << config;
    std::ofstream(folder / "model.safetensors") << weights;
    return model_fingerprint(folder);
  };
  const std::string first = make("{}", "abc", "a");
  EXPECT_EQ(first, make("{}", "abc", "b")) << "where it lies does not count";
  EXPECT_NE(first, make("{ }", "abc", "c"));
  EXPECT_NE(first, make("{}", "abd", "d"));
  EXPECT_THROW(model_fingerprint(scratch / "nowhere"), std::exception);
}

TEST(ReferenceFingerprints, SeeAChangeInTheMiddleOfALargeFile) {
  const ScratchFolder scratch;
  std::string weights(size_t{6} << 20, 'w');
  scratch.put("config.json", "{}");
  scratch.put("model.safetensors", weights);
  const std::string before = model_fingerprint(scratch.path());
  for (size_t place = weights.size() / 2; place < weights.size() / 2 + (size_t{16} << 10); ++place)
    weights[place] = 'x';
  scratch.put("model.safetensors", weights);
  EXPECT_NE(before, model_fingerprint(scratch.path()));
}

TEST(ReferenceFingerprints, SeeBothFilesOfAnAdapter) {
  const ScratchFolder scratch;
  scratch.put("adapter_config.json", "{}");
  scratch.put("adapter_model.safetensors", "abc");
  const std::string before = adapter_fingerprint(scratch.path());
  scratch.put("adapter_model.safetensors", "abd");
  EXPECT_NE(before, adapter_fingerprint(scratch.path()));
}

}  // namespace
}  // namespace apus::train
