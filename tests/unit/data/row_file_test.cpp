#include "data/row_file.h"

#include <cstdlib>

#include "apus/base/log.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using RowFileTest = RowsTest;

std::vector<SftRow> sample_texts(int count) {
  std::vector<SftRow> rows;
  for (int i = 0; i < count; ++i) {
    SftRow row;
    for (int t = 0; t <= i % 9; ++t) {
      row.input_ids.push_back(100 * i + t);
      row.labels.push_back(t % 2 == 0 ? kIgnoredLabel : 100 * i + t);
    }
    row.place = {i % 3, i + 1};
    rows.push_back(std::move(row));
  }
  return rows;
}

MappedFile write_rows(std::unique_ptr<RowSink> sink, const std::vector<SftRow>& rows,
                      const std::string& description) {
  NullLogger logger;
  RowFileWriter writer(std::move(sink), RowKind::kSft, logger);
  for (size_t begin = 0; begin < rows.size(); begin += 4) {
    RowRecords records;
    for (size_t i = begin; i < std::min(rows.size(), begin + 4); ++i) records.add(rows[i], i % 5 == 0);
    writer.append(records);
  }
  EXPECT_EQ(writer.rows(), static_cast<int64_t>(rows.size()));
  return writer.finish(description);
}

TEST_F(RowFileTest, RowsComeBackFromANamedFile) {
  const auto rows = sample_texts(23);
  write_rows(named_sink(folder() / "a.rows"), rows, "what it is");
  const auto file = RowFile::open(folder() / "a.rows", RowKind::kSft);
  EXPECT_EQ(file->description(), "what it is");
  const RowFileTable<SftRow> table(file);
  ASSERT_EQ(table.size(), 23);
  for (int64_t i = 0; i < 23; ++i) {
    const SftRow& row = rows[static_cast<size_t>(i)];
    EXPECT_EQ(table.row(i).input_ids, row.input_ids);
    EXPECT_EQ(table.row(i).labels, row.labels);
    EXPECT_EQ(table.row(i).place, row.place);
    EXPECT_EQ(table.place(i), row.place);
    EXPECT_EQ(table.tokens(i), row.length());
    EXPECT_EQ((file->entry(i).file & kTruncatedBit) != 0, i % 5 == 0);
  }
  EXPECT_THROW(table.row(23), ShapeError);
  EXPECT_THROW(table.tokens(-1), ShapeError);
}

TEST_F(RowFileTest, AFileWithoutANameLivesWithItsMapping) {
  NullLogger logger;
  const auto rows = sample_texts(7);
  const auto file =
      std::make_shared<const RowFile>(write_rows(temporary_sink(logger), rows, ""), RowKind::kSft);
  EXPECT_EQ(RowFileTable<SftRow>(file).row(6).input_ids, rows[6].input_ids);
  EXPECT_EQ(std::filesystem::is_empty(folder()), true);
}

TEST_F(RowFileTest, NoRowsAreAFileToo) {
  write_rows(named_sink(folder() / "a.rows"), {}, "{}");
  EXPECT_EQ(RowFile::open(folder() / "a.rows", RowKind::kSft)->size(), 0);
}

std::string bytes_of(const std::filesystem::path& path) {
  return read_file(path);
}

TEST_F(RowFileTest, EveryChangedByteIsFound) {
  write_rows(named_sink(folder() / "a.rows"), sample_texts(2), "description");
  const std::string whole = bytes_of(folder() / "a.rows");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    const std::string path = write("damaged.rows", damaged);
    EXPECT_THROW(RowFile::open(path, RowKind::kSft), DataError) << "byte " << at << " of " << whole.size();
  }
}

TEST_F(RowFileTest, EveryShorterFileIsRefused) {
  write_rows(named_sink(folder() / "a.rows"), sample_texts(2), "description");
  const std::string whole = bytes_of(folder() / "a.rows");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(RowFile::open(write("short.rows", whole.substr(0, size)), RowKind::kSft), DataError) << size;
  EXPECT_THROW(RowFile::open(write("long.rows", whole + "x"), RowKind::kSft), DataError);
}

TEST_F(RowFileTest, SaysWhatIsWrong) {
  write_rows(named_sink(folder() / "a.rows"), sample_texts(5), "description");
  const std::string whole = bytes_of(folder() / "a.rows");
  const auto reason = [&](const std::string& bytes, RowKind kind = RowKind::kSft) {
    const std::string path = write("b.rows", bytes);
    return message_of<DataError>([&] { RowFile::open(path, kind); }).substr(path.size() + 2);
  };
  EXPECT_EQ(reason("short"), "has 5 bytes and is no file of rows");
  EXPECT_EQ(reason(std::string(500, 'x')), "is no file of rows");
  EXPECT_EQ(reason(whole, RowKind::kDpo), "holds another kind of rows");
  std::string changed = whole;
  changed[8] = 77;
  EXPECT_EQ(reason(changed), "has layout version 77, this build has 2");
  changed = whole;
  changed[20] = static_cast<char>(changed[20] ^ 1);
  EXPECT_EQ(reason(changed), "is damaged: its rows do not have their checksum");
  EXPECT_EQ(reason(whole.substr(0, whole.size() - 3)), "was cut short, or its end is damaged");
}

TEST_F(RowFileTest, ADamagedRowOfALargeFileIsFoundWhenItIsRead) {
  write_rows(named_sink(folder() / "a.rows"), sample_texts(5), "description");
  std::string damaged = bytes_of(folder() / "a.rows");
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  const auto file = RowFile::open(write("b.rows", damaged), RowKind::kSft, {.most_record_bytes = 10});
  const RowFileTable<SftRow> table(file);
  EXPECT_NE(message_of<DataError>([&] { table.row(0); }).find("row 0 is damaged"), std::string::npos);
  EXPECT_EQ(table.row(4).input_ids, sample_texts(5)[4].input_ids);
}

TEST_F(RowFileTest, AFileThatIsNotFinishedLeavesNothing) {
  {
    NullLogger logger;
    RowFileWriter writer(named_sink(folder() / "a.rows"), RowKind::kSft, logger);
    RowRecords records;
    records.add(sample_texts(1)[0], false);
    writer.append(records);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(RowFileTest, SaysOnceWhereNoTemporaryFileCanBeMade) {
  const char* const before = std::getenv("TMPDIR");
  const std::string old = before ? before : "";
  const std::string missing = (folder() / "missing").string();
  ::setenv("TMPDIR", missing.c_str(), 1);
  CaptureLogger logger;
  TemporaryFile::anywhere(logger).write(as_byte_span("abc"));
  before ? ::setenv("TMPDIR", old.c_str(), 1) : ::unsetenv("TMPDIR");
  ASSERT_EQ(logger.lines().size(), 1u);
  const std::string line = logger.lines().at(0).second;
  EXPECT_NE(line.find("cannot create a temporary file in " + missing), std::string::npos) << line;
  EXPECT_NE(line.find("; rows are kept in memory"), std::string::npos) << line;
  EXPECT_EQ(line.find("filesystem error"), std::string::npos) << line;
}

TEST_F(RowFileTest, TemporaryFilesLieInMemoryWhereNoFolderTakesThem) {
  EXPECT_THROW(TemporaryFile::in_folder(folder() / "missing"), FileError);
  for (auto& file : {std::make_shared<TemporaryFile>(TemporaryFile::in_memory()),
                     std::make_shared<TemporaryFile>(TemporaryFile::in_folder(folder()))}) {
    file->write(as_byte_span("abc"));
    file->write(as_byte_span("def"));
    EXPECT_EQ(file->map().text(), "abcdef");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

}  // namespace
}  // namespace apus::data
