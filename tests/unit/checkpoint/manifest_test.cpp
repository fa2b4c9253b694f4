#include "apus/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"

namespace apus::checkpoint {
namespace {

class ManifestTest : public ::testing::Test {
 protected:
  ManifestTest() {
    std::filesystem::create_directories(folder_ / "optimizer");
    write_file_atomic(folder_ / "a.bin", "hello");
    write_file_atomic(folder_.path() / "optimizer" / "b.bin", "");
    write_manifest(folder_.path(), 3);
  }

  std::string error() {
    try {
      read_manifest(folder_.path());
    } catch (const Error& caught) {
      return caught.what();
    }
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(ManifestTest, ListsEveryFileWithSizeAndHash) {
  const Manifest manifest = read_manifest(folder_.path());
  EXPECT_EQ(manifest.world, 3);
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.at(folder_.path(), "a.bin").bytes, 5);
  EXPECT_EQ(manifest.at(folder_.path(), "optimizer/b.bin").bytes, 0);
  EXPECT_NO_THROW(verify_file(folder_.path(), manifest, "a.bin"));
}

TEST_F(ManifestTest, AFolderWithoutOneWasNeverFinished) {
  std::filesystem::remove(folder_ / kManifestName);
  EXPECT_NE(error().find("never finished"), std::string::npos) << error();
}

TEST_F(ManifestTest, MissingAndShortFilesAreNamed) {
  write_file_atomic(folder_ / "a.bin", "hell");
  EXPECT_NE(error().find("a.bin: has 4 bytes, the checkpoint was written with 5"), std::string::npos)
      << error();
  std::filesystem::remove(folder_ / "a.bin");
  EXPECT_NE(error().find("a.bin: is missing"), std::string::npos) << error();
}

TEST_F(ManifestTest, ChangedBytesFailTheHash) {
  write_file_atomic(folder_ / "a.bin", "hellO");
  const Manifest manifest = read_manifest(folder_.path());
  EXPECT_THROW(verify_file(folder_.path(), manifest, "a.bin"), CheckpointError);
  EXPECT_THROW(verify_file(folder_.path(), manifest, "c.bin"), CheckpointError);
}

TEST_F(ManifestTest, NamesOutsideTheFolderAreRefused) {
  write_file_atomic(folder_ / kManifestName,
                    R"({"format":1,"world_size":1,"files":[{"name":"../x","bytes":1,"sha256":""}]})");
  EXPECT_NE(error().find("outside its folder"), std::string::npos) << error();
}

}  // namespace
}  // namespace apus::checkpoint
