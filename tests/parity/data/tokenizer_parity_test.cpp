#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/data/token_stream.h"
#include "apus/data/tokenizer.h"
#include "apus/data/tokenizer_config.h"
#include "tests/support/case_folder.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// The text of a tokenizer.json, unpacked if it is the .xz.
std::string read_tokenizer_json(const fs::path& path) {
  if (path.extension() != ".xz") return read_file(path);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("xz -dc '" + path.string() + "'").c_str(), "r"),
                                                   pclose);
  if (!pipe) throw std::runtime_error("cannot start xz");
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), count);
  if (text.empty()) throw std::runtime_error("xz gave nothing for " + path.string());
  return text;
}

std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  const std::string text = read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) lines.push_back(Json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

// The tokenizer that the lines of a case without one belong to: ids are "<tokenizer>-<number>".
std::string tokenizer_of_lines(const fs::path& folder) {
  for (const char* name : {"vectors.jsonl", "decode.jsonl"}) {
    if (!fs::exists(folder / name)) continue;
    const std::vector<Json> lines = read_lines(folder / name);
    if (lines.empty()) continue;
    const std::string id = lines.front().at("id");
    return id.substr(0, id.rfind('-'));
  }
  return "none";
}

std::optional<fs::path> tokenizer_file(const fs::path& folder) {
  if (auto plain = cases::find_for_case(folder, "tokenizer.json"); plain && plain->parent_path() == folder)
    return plain;
  if (fs::exists(folder / "tokenizer.json.xz")) return folder / "tokenizer.json.xz";
  for (const fs::path& name : {folder.filename(), fs::path(tokenizer_of_lines(folder))}) {
    if (auto packed = cases::find_for_case(folder, name / "tokenizer.json.xz")) return packed;
    if (auto plain = cases::find_for_case(folder, name / "tokenizer.json")) return plain;
  }
  return std::nullopt;
}

std::string first_ids(const Ids& ids, size_t from) {
  std::string text = "[" + std::to_string(from) + "...]";
  for (size_t i = from; i < std::min(ids.size(), from + 6); ++i) text += " " + std::to_string(ids[i]);
  return text;
}

void expect_ids(const Ids& got, const Ids& expected, const std::string& what) {
  if (got == expected) return;
  size_t same = 0;
  while (same < std::min(got.size(), expected.size()) && got[same] == expected[same]) ++same;
  ADD_FAILURE() << what << ": " << got.size() << " ids " << first_ids(got, same) << ", expected "
                << expected.size() << " ids " << first_ids(expected, same);
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids, DecodeOptions options) {
  TokenStream stream(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.flush();
}

void check_vector(const std::shared_ptr<const Tokenizer>& shared, const Json& line) {
  const Tokenizer& tokenizer = *shared;
  const std::string id = line.at("id");
  const std::string text = line.at("text");
  const Ids ids = line.at("ids").get<Ids>();
  const Ids bare = line.at("ids_no_special").get<Ids>();
  expect_ids(tokenizer.encode(text), ids, id);
  expect_ids(tokenizer.encode(text, {.add_special_tokens = false}), bare, id + " without special tokens");
  EXPECT_EQ(tokenizer.decode(ids), line.at("decoded").get<std::string>()) << id;
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = true}),
            line.at("decoded_skip_special").get<std::string>())
      << id;
  EXPECT_EQ(stream(shared, ids, {}), line.at("decoded").get<std::string>()) << id;
  const Encoding tracked = tokenizer.encode_with_offsets(text, {.add_special_tokens = false});
  expect_ids(tracked.ids, bare, id + " with offsets");
  if (!line.contains("offsets")) return;
  const auto expected = line.at("offsets").get<std::vector<std::vector<int64_t>>>();
  ASSERT_EQ(tracked.offsets.size(), expected.size()) << id;
  for (size_t i = 0; i < expected.size(); ++i) {
    const TokenOffsets place{expected[i].at(0), expected[i].at(1)};
    ASSERT_EQ(tracked.offsets[i], place)
        << id << ": token " << i << " at [" << tracked.offsets[i].begin << ", " << tracked.offsets[i].end
        << "), expected [" << place.begin << ", " << place.end << ")";
  }
}

void check_decoding(const std::shared_ptr<const Tokenizer>& tokenizer, const Json& line) {
  // Ids may be beyond 32 bits in a hostile file; such ids are unknown either way.
  Ids ids;
  for (const Json& id : line.at("ids"))
    ids.push_back(id.get<int64_t>() > INT32_MAX ? INT32_MAX : id.get<int32_t>());
  const auto decoded = line.at("decoded").get<std::string>();
  const auto skipped = line.at("decoded_skip_special").get<std::string>();
  EXPECT_EQ(tokenizer->decode(ids), decoded) << line.at("id");
  EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = true}), skipped) << line.at("id");
  EXPECT_EQ(stream(tokenizer, ids, {}), decoded) << line.at("id");
  EXPECT_EQ(stream(tokenizer, ids, {.skip_special_tokens = true}), skipped) << line.at("id");
}

// A folder that has the SentencePiece model and its config only.
class ModelFolder {
 public:
  explicit ModelFolder(const fs::path& from) : path_(fs::path(::testing::TempDir()) / "apus_spm_parity") {
    fs::remove_all(path_);
    fs::create_directories(path_);
    for (const char* name : {"tokenizer.model", "tokenizer_config.json"})
      fs::copy_file(from / name, path_ / name);
  }
  ~ModelFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool is_case(const fs::path& folder) {
  return fs::exists(folder / "vectors.jsonl") || fs::exists(folder / "decode.jsonl");
}

void check_case(const fs::path& folder, const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (fs::exists(folder / "vectors.jsonl")) {
    for (const Json& line : read_lines(folder / "vectors.jsonl")) check_vector(tokenizer, line);
  }
  if (fs::exists(folder / "decode.jsonl")) {
    for (const Json& line : read_lines(folder / "decode.jsonl")) check_decoding(tokenizer, line);
  }
}

TEST(TokenizerParity, EveryVectorEncodesAndDecodesAsTheReference) {
  const auto folders = cases::find_cases("tokenizer", is_case);
  for (const fs::path& folder : folders) {
    const auto file = tokenizer_file(folder);
    ASSERT_TRUE(file.has_value()) << folder << " has no tokenizer.json";
    check_case(folder, Tokenizer::from_json(read_tokenizer_json(*file), file->string()));
  }
  RecordProperty("cases_run", static_cast<int>(folders.size()));
  if (cases::cases_root() == cases::committed_cases_root()) {
    EXPECT_EQ(folders.size(), 5U);
  }
}

TEST(TokenizerParity, ASentencePieceModelGivesWhatItsTokenizerJsonGives) {
  int run = 0;
  for (const fs::path& folder : cases::find_cases("tokenizer", is_case)) {
    if (!fs::exists(folder / "tokenizer.model")) continue;
    const ModelFolder copy(folder);
    check_case(folder, load_tokenizer_folder(copy.path()).tokenizer);
    ++run;
  }
  if (cases::cases_root() == cases::committed_cases_root()) {
    EXPECT_EQ(run, 1);
  }
}

TEST(TokenizerParity, TextThatIsNotUtf8IsRefusedOrReplaced) {
  const fs::path tiny = cases::committed_cases_root() / "tokenizer/chatml-tiny/tokenizer.json";
  const auto tokenizer = Tokenizer::from_file(tiny);
  const auto is_list = [](const fs::path& path) { return path.filename() == "invalid_utf8.jsonl"; };
  auto files = cases::find_case_files("tokenizer", is_list);
  if (files.empty()) files.push_back(cases::committed_cases_root() / "tokenizer/invalid_utf8.jsonl");
  for (const fs::path& path : files) {
    for (const Json& line : read_lines(path)) {
      const std::string hex = line.at("bytes_hex");
      std::string bytes;
      for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      EXPECT_THROW(tokenizer->encode(bytes), DataError) << line.at("case");
      EXPECT_THROW(tokenizer->encode_with_offsets(bytes), DataError) << line.at("case");
      EXPECT_EQ(tokenizer->encode(bytes, {.invalid_utf8 = InvalidUtf8::kReplace}),
                tokenizer->encode(line.at("python_replace").get<std::string>()))
          << line.at("case");
    }
  }
}

// The texts that belong to the dpo cases' own tokenizer; its chats need the template engine and are checked
// there.
TEST(TokenizerParity, TextsOfTheDpoTokenizerEncodeAsTheReference) {
  const auto is_list = [](const fs::path& path) { return path.filename() == "tokenizer_cases.json"; };
  for (const fs::path& path : cases::find_case_files("dpo", is_list)) {
    const auto file = cases::require_for_case(path.parent_path(), "tokenizer/tokenizer.json");
    const auto tokenizer = Tokenizer::from_file(file);
    const Json content = Json::parse(read_file(path));
    for (const Json& entry : content.at("texts")) {
      const Ids ids = entry.at("ids").get<Ids>();
      expect_ids(tokenizer->encode(entry.at("text").get<std::string>(), {.add_special_tokens = false}), ids,
                 entry.at("text").get<std::string>());
      EXPECT_EQ(tokenizer->decode(ids), entry.at("decoded").get<std::string>());
    }
  }
}

}  // namespace
}  // namespace apus::data
