#include <gtest/gtest.h>

#include <array>
#include <string>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "apus/base/safetensors.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

const std::vector<TensorSpec> kSpecs = {{.name = "b", .dtype = DType::kF32, .shape = {2}},
                                        {.name = "tiny", .dtype = DType::kU8, .shape = {3}},
                                        {.name = "a", .dtype = DType::kF32, .shape = {}},
                                        {.name = "wide", .dtype = DType::kI64, .shape = {1}},
                                        {.name = "half", .dtype = DType::kBF16, .shape = {0, 4}}};

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(SafetensorsWriter, OrdersByAlignmentThenName) {
  const ScratchFolder folder;
  const SafetensorsWriter writer(folder / "f", kSpecs);
  EXPECT_EQ(names_of(writer.order()), (std::vector<std::string>{"wide", "a", "b", "half", "tiny"}));
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "f", kSpecs, {.metadata = {{"format", "pt"}, {"note", "\"q\""}}});
  for (const TensorSpec& spec : writer.order())
    writer.write(spec.name, as_byte_span(std::string(byte_count(spec), spec.name[0])));
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
  writer.finish();
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.metadata().at("note"), "\"q\"");
  for (const TensorSpec& spec : kSpecs) {
    const TensorView& tensor = file.at(spec.name);
    EXPECT_EQ(tensor.dtype, spec.dtype);
    EXPECT_EQ(tensor.shape, spec.shape);
    for (const std::byte b : tensor.data) EXPECT_EQ(b, static_cast<std::byte>(spec.name[0]));
  }
}

TEST(SafetensorsWriter, TheHeaderIsPaddedAndCompact) {
  const ScratchFolder folder;
  const std::array<float, 2> values = {1, 2};
  write_safetensors(
      folder / "f",
      {{.name = "w", .dtype = DType::kF32, .shape = {2}, .data = std::as_bytes(std::span(values))}});
  const std::string bytes = read_file(folder / "f");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes[0], 88);
  EXPECT_EQ(bytes.size(), 8u + 88u + 8u);
  EXPECT_EQ(bytes.substr(8 + header.size(), 88 - header.size()), std::string(88 - header.size(), ' '));
}

// A file of the Python library, read and written again, must come out with the same bytes.
TEST(SafetensorsWriter, ReproducesTheReferenceLibrarysFile) {
  const ScratchFolder folder;
  const std::filesystem::path reference = APUS_SOURCE_DIR "/tests/data/base/mixed.safetensors";
  const SafetensorsFile file(reference);
  ASSERT_EQ(file.tensors().size(), 48u) << "three of each of the 16 types";
  write_safetensors(folder / "f", file.tensors(), {.metadata = file.metadata()});
  EXPECT_EQ(sha256_file(folder / "f"), sha256_file(reference));
}

TEST(SafetensorsWriter, TakesATensorInPieces) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "f", {{.name = "w", .dtype = DType::kU8, .shape = {4}}});
  writer.write("w", as_byte_span("ab"));
  writer.write("w", {});
  writer.write("w", as_byte_span("cd"));
  writer.finish();
  EXPECT_EQ(SafetensorsFile(folder / "f").at("w").data[3], std::byte{'d'});
}

TEST(SafetensorsWriter, RefusesWrongOrderSizesAndNames) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "f", {{.name = "a", .dtype = DType::kU8, .shape = {2}},
                                          {.name = "b", .dtype = DType::kU8, .shape = {2}}});
  const auto place = (folder / "f").string();
  EXPECT_EQ(message_of<CheckpointError>([&] { writer.write("b", as_byte_span("xx")); }),
            place + ": tensor 'b': is written out of order; 'a' comes next");
  EXPECT_EQ(message_of<CheckpointError>([&] { writer.write("a", as_byte_span("xxx")); }),
            place + ": tensor 'a': 3 bytes come, but only 2 of 2 are left");
  writer.write("a", as_byte_span("xx"));
  writer.write("b", as_byte_span("x"));
  EXPECT_EQ(message_of<CheckpointError>([&] { writer.finish(); }),
            place + ": tensor 'b': is incomplete: 1 of 2 bytes were written");
  writer.write("b", as_byte_span("x"));
  EXPECT_THROW(writer.write("b", as_byte_span("x")), CheckpointError);
  EXPECT_NO_THROW(writer.finish());
}

TEST(SafetensorsWriter, RefusesDoubleAndReservedNamesAndLeavesNoFile) {
  const ScratchFolder folder;
  const TensorSpec one = {.name = "w", .dtype = DType::kU8, .shape = {1}};
  const TensorSpec wide = {.name = "w", .dtype = DType::kF32, .shape = {1}};
  EXPECT_THROW(SafetensorsWriter(folder / "f", {one, wide}), CheckpointError);
  EXPECT_THROW(SafetensorsWriter(folder / "f", {{.name = "__metadata__"}}), CheckpointError);
  EXPECT_EQ(folder.size(), 0);
}

TEST(SafetensorsWriter, AnEmptyFileIsValid) {
  const ScratchFolder folder;
  write_safetensors(folder / "f", {}, {.metadata = {}});
  EXPECT_EQ(read_file(folder / "f").substr(8), "{}      ");
  EXPECT_TRUE(SafetensorsFile(folder / "f").tensors().empty());
}

}  // namespace
}  // namespace apus
