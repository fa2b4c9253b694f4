#include "apus/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

// Lets no file of this process grow beyond a size while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(File, MapsAFile) {
  const ScratchFolder folder;
  MappedFile file(folder.put("f", "hello"));
  EXPECT_EQ(file.text(), "hello");
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.text(), "hello");
  moved = MappedFile(folder.put("g", "other"));
  EXPECT_EQ(moved.text(), "other");
  EXPECT_EQ(moved.path(), folder / "g");
}

TEST(File, MapsAnEmptyFile) {
  const ScratchFolder folder;
  EXPECT_TRUE(MappedFile(folder.put("f", "")).bytes().empty());
}

TEST(File, AMappedFileOutlivesItsName) {
  const ScratchFolder folder;
  const MappedFile file(folder.put("f", "hello"));
  std::filesystem::remove(folder / "f");
  EXPECT_EQ(file.text(), "hello");
}

TEST(File, ReadsWholeFilesAndThoseWithoutASize) {
  const ScratchFolder folder;
  const std::string large(200'000, 'x');
  EXPECT_EQ(read_file(folder.put("f", large)), large);
  EXPECT_FALSE(read_file("/proc/self/status").empty());
}

TEST(File, ErrorsNamePathReasonAndRemedy) {
  const ScratchFolder folder;
  const std::string path = (folder / "missing").string();
  EXPECT_EQ(message_of<FileError>([&] { read_file(path); }),
            "cannot open " + path +
                ": No such file or directory (errno 2); check the spelling of the path and that the "
                "directory exists");
  EXPECT_THROW(MappedFile{folder.path()}, FileError);
  const std::string full = FileError("write", "/out/model", ENOSPC).what();
  EXPECT_NE(full.find("No space left on device"), std::string::npos) << full;
  EXPECT_NE(full.find("free space there"), std::string::npos) << full;
  const std::string denied = FileError("create", "/out/model", EACCES).what();
  EXPECT_NE(denied.find("Permission denied"), std::string::npos) << denied;
  EXPECT_NE(denied.find("choose another directory"), std::string::npos) << denied;
}

TEST(File, AWriterShowsTheFileOnlyWhenFinished) {
  const ScratchFolder folder;
  FileWriter writer(folder / "f");
  writer.write("hel");
  writer.write("lo");
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
  EXPECT_EQ(writer.written_bytes(), 5);
  writer.finish();
  EXPECT_EQ(read_file(folder / "f"), "hello");
  EXPECT_EQ(folder.size(), 1);
  EXPECT_THROW(writer.write("more"), Error);
  EXPECT_THROW(writer.finish(), Error);
}

TEST(File, AWriterThatIsDroppedLeavesTheOldFile) {
  const ScratchFolder folder;
  folder.put("f", "old");
  { FileWriter(folder / "f").write("new"); }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.size(), 1);
}

TEST(File, TwoWritersOfOneFileDoNotMix) {
  const ScratchFolder folder;
  FileWriter one(folder / "f"), two(folder / "f");
  one.write("one");
  two.write("two!");
  one.finish();
  two.finish();
  EXPECT_EQ(read_file(folder / "f"), "two!");
}

TEST(File, AFailedWriteLeavesTheOldFile) {
  const ScratchFolder folder;
  folder.put("f", "old");
  {
    const FileSizeLimit limit(1000);
    const std::string message =
        message_of<FileError>([&] { write_file_atomic(folder / "f", std::string(5000, 'x')); });
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
    EXPECT_NE(message.find((folder / "f").string()), std::string::npos) << message;
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder.size(), 1);
}

TEST(File, AtomicWriteReplacesAndIsReadableByOthers) {
  const ScratchFolder folder;
  const mode_t before = ::umask(022);
  write_file_atomic(folder / "f", "one");
  write_file_atomic(folder / "f", "two");
  ::umask(before);
  EXPECT_EQ(read_file(folder / "f"), "two");
  struct stat facts {};
  ASSERT_EQ(::stat((folder / "f").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0644u);
}

TEST(File, WritingIntoAMissingFolderFails) {
  const ScratchFolder folder;
  EXPECT_THROW(write_file_atomic(folder / "no" / "f", "x"), FileError);
  EXPECT_THROW(sync_directory(folder / "no"), FileError);
}

TEST(File, EnsuresADirectory) {
  const ScratchFolder folder;
  ensure_directory(folder / "a/b/c");
  ensure_directory(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  folder.put("file", "x");
  EXPECT_THROW(ensure_directory(folder / "file"), FileError);
  EXPECT_THROW(ensure_directory(folder / "file/below"), FileError);
}

TEST(File, FreeBytesLooksAtTheNearestExistingParent) {
  const ScratchFolder folder;
  EXPECT_GT(free_bytes(folder.path()), 0);
  EXPECT_GT(free_bytes(folder / "not/yet/there"), 0);
  EXPECT_GT(free_bytes("relative-and-missing"), 0);
  EXPECT_EQ(free_bytes("/proc"), 0);
}

}  // namespace
}  // namespace apus
