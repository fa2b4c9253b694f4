#include "apus/base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "apus/base/error.h"
#include "apus/base/hash.h"
#include "tests/unit/base/support/safetensors_bytes.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

std::string refusal(const std::string& bytes) {
  return message_of<CheckpointError>([&] { parse_safetensors(as_byte_span(bytes), "f"); });
}

std::string refusal_of_header(const std::string& header, std::size_t data_bytes) {
  return refusal(safetensors_bytes(header, data_bytes));
}

std::string with_length(uint64_t length) {
  std::string bytes(100, ' ');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

TEST(Safetensors, ReadsTensorsInOrderOfTheirBytes) {
  const std::string bytes =
      safetensors_bytes("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "U8", "[2,3]", 4, 10) + "," +
                            entry("a", "F32", "[]", 0, 4) + "," + entry("e", "I64", "[0,7]", 10, 10) + "}   ",
                        10);
  const SafetensorsContents contents = parse_safetensors(as_byte_span(bytes), "f");
  ASSERT_EQ(contents.tensors.size(), 3u);
  EXPECT_EQ(contents.tensors[0].name, "a");
  EXPECT_EQ(contents.tensors[0].dtype, DType::kF32);
  EXPECT_TRUE(contents.tensors[0].shape.empty());
  EXPECT_EQ(contents.tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(contents.tensors[1].data.size(), 6u);
  EXPECT_EQ(contents.tensors[1].data[0], std::byte{4});
  EXPECT_TRUE(contents.tensors[2].data.empty());
  EXPECT_EQ(contents.metadata.at("format"), "pt");
}

TEST(Safetensors, RefusesAFileShorterThanItsFirstField) {
  EXPECT_EQ(refusal("1234567"), "f: has 7 bytes; a safetensors file has at least 8 for its header length");
  EXPECT_NE(refusal(""), "");
}

TEST(Safetensors, RefusesAHeaderLengthBeyondLimitOrFile) {
  EXPECT_EQ(refusal(with_length(uint64_t{1} << 60)),
            "f: claims a header of 1152921504606846976 bytes, at most 100000000 are allowed; this is no "
            "safetensors file");
  EXPECT_NE(refusal(with_length(UINT64_MAX)), "");
  EXPECT_EQ(refusal(with_length(93)),
            "f: claims a header of 93 bytes, but only 92 follow; the file is truncated");
}

TEST(Safetensors, RefusesAHeaderThatIsNoText) {
  EXPECT_EQ(refusal_of_header("{\"\xFF\":1}", 0), "f: the header is not UTF-8 (byte 2 of 7)");
  EXPECT_TRUE(
      refusal_of_header("{\"a\":", 0).starts_with("f: the header is broken at column 6: not valid JSON"));
  EXPECT_NE(refusal_of_header("", 0), "");
  EXPECT_NE(refusal_of_header(std::string(100000, '['), 0).find("the header"), std::string::npos);
}

TEST(Safetensors, RefusesAHeaderOfAnotherForm) {
  EXPECT_EQ(refusal_of_header("[]", 0), "f: the header holds a list where the format has none");
  EXPECT_NE(refusal_of_header("7", 0), "");
  EXPECT_NE(refusal_of_header("{\"a\":7}", 0), "");
  EXPECT_NE(refusal_of_header("{\"a\":{\"dtype\":7}}", 0), "");
  EXPECT_NE(refusal_of_header("{\"a\":{\"shape\":[[1]]}}", 0), "");
  EXPECT_NE(refusal_of_header("{\"a\":{\"shape\":\"x\"}}", 0), "");
  EXPECT_NE(refusal_of_header("{\"__metadata__\":{\"a\":1}}", 0), "");
  EXPECT_NE(refusal_of_header("{\"__metadata__\":{\"a\":{}}}", 0), "");
  EXPECT_EQ(refusal_of_header("{\"a\":{\"colour\":\"red\"}}", 0),
            "f: tensor 'a': has an unknown key 'colour'");
  EXPECT_EQ(refusal_of_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 0),
            "f: tensor 'a': lacks 'data_offsets'");
  EXPECT_EQ(refusal_of_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}", 0),
            "f: tensor 'a': has 1 data_offsets, expected 2");
}

TEST(Safetensors, RefusesDoubleNames) {
  const std::string one = entry("a", "U8", "[1]", 0, 1), two = entry("a", "U8", "[1]", 1, 2);
  EXPECT_EQ(refusal_of_header("{" + one + "," + two + "}", 2), "f: tensor 'a': appears twice in the header");
  EXPECT_EQ(refusal_of_header("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\"}}", 0),
            "f: tensor 'a': has 'dtype' twice");
  EXPECT_NE(refusal_of_header("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "");
}

TEST(Safetensors, RefusesUnknownTypes) {
  EXPECT_EQ(refusal_of_header("{" + entry("a", "Q4", "[1]", 0, 1) + "}", 1),
            "f: tensor 'a': has the unknown dtype 'Q4'");
}

TEST(Safetensors, RefusesImpossibleShapes) {
  EXPECT_EQ(refusal_of_header("{" + entry("a", "U8", "[-1]", 0, 1) + "}", 1),
            "f: tensor 'a': has the negative number -1 in shape");
  EXPECT_EQ(refusal_of_header("{" + entry("a", "U8", "[4294967296,4294967296]", 0, 0) + "}", 0),
            "f: tensor 'a': the shape has more than 2^63 elements");
  EXPECT_EQ(refusal_of_header("{" + entry("a", "F64", "[4611686018427387904]", 0, 0) + "}", 0),
            "f: tensor 'a': the shape has more than 2^63 bytes");
  EXPECT_NE(refusal_of_header("{" + entry("a", "U8", "[18446744073709551615]", 0, 1) + "}", 1), "");
  EXPECT_EQ(refusal_of_header("{" + entry("a", "U8", "[1.5]", 0, 1) + "}", 1),
            "f: tensor 'a': has the number 1.5 in shape, expected an integer below 2^64");
}

TEST(Safetensors, RefusesOffsetsThatDoNotFitTheShape) {
  EXPECT_EQ(refusal_of_header("{" + entry("a", "F32", "[2]", 0, 7) + "}", 7),
            "f: tensor 'a': has 7 bytes, its shape and dtype F32 need 8");
  EXPECT_EQ(refusal_of_header("{" + entry("a", "U8", "[2]", 2, 0) + "}", 2),
            "f: tensor 'a': begins at byte 2 but ends at 0");
}

TEST(Safetensors, RefusesOverlapsHolesAndTrailingBytes) {
  const std::string a = entry("a", "U8", "[4]", 0, 4);
  EXPECT_EQ(refusal_of_header("{" + a + "," + entry("b", "U8", "[4]", 2, 6) + "}", 6),
            "f: tensor 'b': begins at byte 2 inside the tensor before it, which ends at 4");
  EXPECT_EQ(refusal_of_header("{" + a + "," + entry("b", "U8", "[4]", 5, 9) + "}", 9),
            "f: tensor 'b': begins at byte 5 after a hole that starts at 4");
  EXPECT_EQ(refusal_of_header("{" + a + "}", 6), "f: has 2 bytes after its last tensor");
}

TEST(Safetensors, ATruncatedFileNamesExpectedAndActualBytes) {
  EXPECT_EQ(
      refusal_of_header("{" + entry("a", "F32", "[100]", 0, 400) + "}", 399),
      "f: is truncated: its header lists 400 bytes of data, the file holds 399; copy or download it again");
  const uint64_t far = uint64_t{1} << 62;
  EXPECT_NE(refusal_of_header("{" + entry("a", "U8", detail::concat("[", far, "]"), 0, far) + "}", 16), "");
}

// Any single changed or missing byte must be refused or read, never crash or give a tensor outside the file.
TEST(Safetensors, SurvivesEverySingleByteChange) {
  const std::string good =
      safetensors_bytes("{" + entry("a", "F16", "[2]", 0, 4) + "," + entry("b", "U8", "[3]", 4, 7) + "}", 7);
  int read = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      for (const TensorView& tensor : parse_safetensors(as_byte_span(bytes), "f").tensors) {
        const char* begin = reinterpret_cast<const char*>(tensor.data.data());
        ASSERT_TRUE(begin >= bytes.data() && begin + tensor.data.size() <= bytes.data() + bytes.size());
      }
      ++read;
    } catch (const CheckpointError&) {
      ++refused;
    }
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int value : {0, 1, 0x22, 0x2D, 0x39, 0x5B, 0x7D, 0xFF}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      attempt(bytes);
    }
    attempt(good.substr(0, i));
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 500);
}

TEST(Safetensors, CountsElementsAndBytes) {
  EXPECT_EQ(element_count(std::vector<int64_t>{}), 1);
  EXPECT_EQ(element_count(std::vector<int64_t>{3, 4}), 12);
  EXPECT_EQ(element_count(std::vector<int64_t>{INT64_MAX, INT64_MAX, 0}), 0);
  EXPECT_EQ(byte_count({.name = "w", .dtype = DType::kBF16, .shape = {3, 4}}), 24);
  EXPECT_THROW(element_count(std::vector<int64_t>{2, -1}), ShapeError);
  EXPECT_THROW(element_count(std::vector<int64_t>{0, -1}), ShapeError);
}

TEST(Safetensors, AFileFindsTensorsByName) {
  const ScratchFolder folder;
  const auto path =
      folder.put("m.safetensors", safetensors_bytes("{" + entry("norm.weight", "U8", "[2]", 0, 2) + "}", 2));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.at("norm.weight").data.size(), 2u);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(message_of<CheckpointError>([&] { file.at("norm.weigth"); }),
            path.string() + ": tensor 'norm.weigth': is not in the file (did you mean 'norm.weight'?)");
  EXPECT_THROW(SafetensorsFile(folder / "missing"), FileError);
}

}  // namespace
}  // namespace apus
