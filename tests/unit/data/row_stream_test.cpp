#include "apus/data/row_stream.h"

#include <sys/stat.h>

#include <functional>

#include "apus/base/error.h"
#include "tests/unit/data/support/packed.h"
#include "tests/unit/data/support/rows_fixture.h"

namespace apus::data {
namespace {

using RowStreamTest = RowsTest;
using Lines = std::vector<std::pair<int64_t, std::string>>;

/// Line and text of all rows; "too long" for those.
Lines rows_of(RowStream& stream) {
  Lines rows;
  RowBlock block;
  while (stream.next(block))
    for (int64_t i = 0; i < block.size(); ++i)
      rows.emplace_back(block.line(i), block.is_too_long(i) ? "too long" : std::string(block.text(i)));
  EXPECT_EQ(stream.rows(), static_cast<int64_t>(rows.size()));
  return rows;
}

Lines rows_of(const DatasetSource& source, const RowStreamOptions& options = {}) {
  RowStream stream(source, options);
  return rows_of(stream);
}

TEST_F(RowStreamTest, SplitsAtNewlinesAlone) {
  const std::string separators = "{\"a\": \"x\u2028y\u0085z\vq\fr\"}";
  EXPECT_EQ(rows_of({write("a.jsonl", separators + "\n{\"b\": 1}\n"), {}}),
            (Lines{{1, separators}, {2, "{\"b\": 1}"}}));
}

TEST_F(RowStreamTest, KeepsLineNumbersOverBlankLinesMarksAndCarriageReturns) {
  EXPECT_EQ(rows_of({write("a.jsonl", "\xEF\xBB\xBF\n{1}\r\n\r\n \t\n{2}\n\n{3}"), {}}),
            (Lines{{2, "{1}"}, {5, "{2}"}, {7, "{3}"}}));
  EXPECT_EQ(rows_of({write("b.jsonl", "{1}\r"), {}}), (Lines{{1, "{1}"}}));
}

TEST_F(RowStreamTest, RefusesPipesBeforeItOpensThem) {
  const std::string path = (folder() / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const std::string wanted =
      ": --dataset needs a regular file, as rows are read more than once; write what comes from a pipe or "
      "device to a file first";
  EXPECT_EQ(message_of<NotSupported>([&] { RowStream({path, {}}); }), path + wanted);
  EXPECT_EQ(message_of<NotSupported>([&] { RowStream({"/dev/zero", {}}); }), "/dev/zero" + wanted);
}

TEST_F(RowStreamTest, RefusesTarArchivesPackedOrNot) {
  std::string archive = "rows.jsonl" + std::string(247, '\0') + "ustar" + std::string(250, '\0');
  for (const auto& [name, bytes] : {std::pair("p.tar.gz", gzipped(archive)), std::pair("p.tar", archive)}) {
    const std::string path = write(name, bytes);
    EXPECT_EQ(message_of<NotSupported>([&] {
                RowStream({path, {}});
              }),
              path + ": a tar archive is not read; unpack it with tar -xf");
  }
}

TEST_F(RowStreamTest, AnEmptyFileHasNoRows) {
  for (const char* text : {"", "\n\n\r\n", "\xEF\xBB\xBF", "[]", " [ ] \n"})
    EXPECT_EQ(rows_of({write("empty", text), {}}), Lines{}) << text;
  EXPECT_EQ(rows_of({write("empty.gz", gzipped("")), {}}), Lines{});
  EXPECT_EQ(rows_of({write("empty.zst", zstd_packed("\n")), {}}), Lines{});
}

TEST_F(RowStreamTest, ReadsEveryPackingAndLayoutAlike) {
  std::string lines, array = "[";
  Lines expected;
  for (int i = 1; i <= 3000; ++i) {
    const std::string row =
        "{\"n\": " + std::to_string(i) + ", \"t\": \"" + std::string(i % 400, 'x') + " \\\" ] } \"}";
    lines += row + "\n";
    array += row + (i < 3000 ? ",\n" : "]\n");
    expected.emplace_back(i, row);
  }
  const std::vector<std::tuple<std::string, RowLayout, RowCompression>> files = {
      {lines, RowLayout::kLines, RowCompression::kNone},
      {gzipped(lines), RowLayout::kLines, RowCompression::kGzip},
      {zstd_packed(lines), RowLayout::kLines, RowCompression::kZstd},
      {array, RowLayout::kArray, RowCompression::kNone},
      {gzipped(array), RowLayout::kArray, RowCompression::kGzip},
      {zstd_packed(array), RowLayout::kArray, RowCompression::kZstd}};
  for (const auto& [bytes, layout, compression] : files) {
    RowStream stream({write("rows.bin", bytes), {}});
    EXPECT_EQ(stream.layout(), layout);
    EXPECT_EQ(stream.compression(), compression);
    EXPECT_EQ(rows_of(stream), expected);
    EXPECT_EQ(stream.read_bytes(), static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(stream.file_bytes(), static_cast<int64_t>(bytes.size()));
  }
}

TEST_F(RowStreamTest, ReadsSeveralMembersAndFramesAsOneText) {
  const Lines expected{{1, "{1}"}, {2, "{22}"}, {3, "{3}"}};
  EXPECT_EQ(rows_of({write("a", gzipped("{1}\n{2") + gzipped("2}\n{3}") + std::string(600, '\0')), {}}),
            expected);
  EXPECT_EQ(rows_of({write("b", zstd_packed("{1}\n{2") + zstd_packed("2}\n{3}")), {}}), expected);
}

TEST_F(RowStreamTest, TakesTheFirstRowsOnlyAndLooksNoFurther) {
  EXPECT_EQ(rows_of({write("a.jsonl", "{1}\n\n{2}\n{3}\n"), 2}), (Lines{{1, "{1}"}, {3, "{2}"}}));
  EXPECT_EQ(rows_of({write("b.json", "[{}, 7, nothing of this is looked at"), 2}),
            (Lines{{1, "{}"}, {1, "7"}}));
  RowStream stream({write("c.jsonl", "{1}\n{2}\n"), 5});
  EXPECT_EQ(rows_of(stream).size(), 2u);
}

TEST_F(RowStreamTest, ALongRowIsDeliveredWithoutItsText) {
  const std::string row = "{\"a\": \"" + std::string(5000, 'x') + "\"}";
  const RowStreamOptions options{.max_row_bytes = 1000};
  const Lines expected{{1, "{}"}, {2, "too long"}, {3, "[1]"}};
  EXPECT_EQ(rows_of({write("a.jsonl", "{}\n" + row + "\n[1]"), {}}, options), expected);
  EXPECT_EQ(rows_of({write("a.json", "[{},\n" + row + "\n,\n[1]]"), {}}, options),
            (Lines{{1, "{}"}, {2, "too long"}, {4, "[1]"}}));
  EXPECT_EQ(rows_of({write("last.gz", gzipped("{}\n" + row)), {}}, options),
            (Lines{{1, "{}"}, {2, "too long"}}));
}

TEST_F(RowStreamTest, ABombIsUnpackedInPieces) {
  const std::string spaces = gzipped(std::string(size_t{1} << 20, ' '));
  std::string packed = gzipped("{\"a\": \"");
  for (int i = 0; i < 30; ++i) packed += spaces;
  packed += gzipped("\"}\n{}\n");
  EXPECT_LT(packed.size(), size_t{40} << 10);
  EXPECT_EQ(rows_of({write("bomb.gz", packed), {}}, {.max_row_bytes = 1 << 20}),
            (Lines{{1, "too long"}, {2, "{}"}}));
}

TEST_F(RowStreamTest, BlocksDependOnTheRowsAlone) {
  const std::string text = "{1}\n{22}\n{333}\n\n{4444}\n{5}\n";
  std::vector<int64_t> sizes;
  for (const std::string& bytes : {text, gzipped(text)}) {
    RowStream stream({write("a", bytes), {}}, {.block_bytes = 7});
    RowBlock block;
    while (stream.next(block)) sizes.push_back(block.size());
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 2, 1, 2, 2, 1}));
}

/// Rows that came before a DataError, and its message.
std::pair<size_t, std::string> failure_of(const std::string& path) {
  size_t rows = 0;
  try {
    RowStream stream({path, {}});
    RowBlock block;
    while (stream.next(block)) rows += static_cast<size_t>(block.size());
  } catch (const DataError& error) {
    return {rows, error.what()};
  }
  ADD_FAILURE() << path << " was read to its end";
  return {};
}

/// So many different rows that their packed form spans many blocks of any format.
std::string many_rows() {
  std::string text;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += "{\"value\": " + std::to_string(state) + "}\n";
  }
  return text;
}

TEST_F(RowStreamTest, PackedDataThatEndsEarlyIsSaidAfterTheRowsBeforeIt) {
  const std::string text = many_rows();
  for (const auto& [format, packed] :
       {std::pair<std::string, std::string>{"gzip", gzipped(text)}, {"zstd", zstd_packed(text)}}) {
    const size_t half = packed.size() / 2;
    const std::string path = write("half", packed.substr(0, half));
    const auto [rows, message] = failure_of(path);
    EXPECT_GT(rows, 1000u);
    EXPECT_EQ(message, path + ": the " + format + " data ends early, after byte " + std::to_string(half) +
                           " of the file: copy the file anew");
  }
}

TEST_F(RowStreamTest, AllRowsBeforeAnErrorAreDelivered) {
  std::string packed = gzipped("{1}\n{2}\n{3}\n");
  packed.resize(packed.size() - 8);  // the checksum
  EXPECT_EQ(failure_of(write("a.gz", packed)).first, 3u);
  EXPECT_EQ(failure_of(write("a.json", "[{}, {}\n {}]")).first, 2u);
  EXPECT_EQ(failure_of(write("b.gz", gzipped("{1}\n") + "{2}\n")).first, 1u);
}

TEST_F(RowStreamTest, DamagedDataNamesTheByte) {
  const std::string text = many_rows();
  for (const auto& [format, packed] :
       {std::pair<std::string, std::string>{"gzip", gzipped(text)}, {"zstd", zstd_packed(text)}}) {
    std::string damaged = packed;
    for (size_t i = 0; i < 64; ++i) damaged[packed.size() / 2 + i] ^= 0x5a;
    const std::string path = write("damaged", damaged);
    const std::string message = failure_of(path).second;
    EXPECT_TRUE(message.starts_with(path + ": the " + format + " data is damaged (")) << message;
    EXPECT_NE(message.find(" of the file"), std::string::npos) << message;
  }
  const std::string path = write("tail.gz", gzipped("{}\n") + "{}\n");
  EXPECT_NE(failure_of(path).second.find("something that is no gzip data follows"), std::string::npos);
}

TEST_F(RowStreamTest, NamesPathAndFlagOfAMissingFile) {
  const std::string path = (folder() / "missing.jsonl").string();
  EXPECT_EQ(message_of<ConfigError>([&] {
              RowStream({path, {}});
            }),
            path + ": no such file; check --dataset");
  const auto relative = message_of<ConfigError>([] {
    RowStream({"no_such.jsonl", {}}, {.flag = "--val_dataset"});
  });
  EXPECT_EQ(relative, "no_such.jsonl: no such file; check --val_dataset (working directory: " +
                          std::filesystem::current_path().string() + ")");
}

TEST_F(RowStreamTest, RefusesOtherFormatsWithWhatToDo) {
  const auto refusal = [&](const std::string& name, std::string_view text) {
    return message_of<NotSupported>([&] { RowStream({write(name, text), {}}); });
  };
  EXPECT_NE(refusal("a.bin", "PAR1....").find("parquet"), std::string::npos);
  EXPECT_NE(refusal("a.csv", "a,b\n").find("csv"), std::string::npos);
  EXPECT_NE(refusal("a.csv.gz", gzipped("a,b\n")).find("csv"), std::string::npos);
  EXPECT_NE(refusal("a", "PK\x03\x04").find("unzip"), std::string::npos);
  EXPECT_NE(refusal("a", "BZh9").find("bunzip2"), std::string::npos);
  EXPECT_NE(refusal("a",
                    "\xFD"
                    "7zXZ")
                .find("unxz"),
            std::string::npos);
  EXPECT_NE(refusal("a", std::string("\xFF\xFE{\0", 4)).find("iconv"), std::string::npos);
  EXPECT_NE(message_of<NotSupported>([&] { RowStream({folder(), {}}); }).find("folder"), std::string::npos);
  EXPECT_EQ(rows_of({write("lines.csv", "{}\n{}\n"), {}}).size(), 2u) << "the content decides";
}

}  // namespace
}  // namespace apus::data
