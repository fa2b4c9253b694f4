#include "data/protobuf_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::data {
namespace {

void read_all(std::string_view bytes) {
  ProtobufReader reader(bytes, "m", "message");
  ProtobufField field;
  while (reader.next(field)) {
  }
}

TEST(ProtobufReader, ReadsFieldsOfEveryWireType) {
  const std::string bytes("\x08\x96\x01\x12\x02hi\x1d\x00\x00\x80\x3f\x21\x01\0\0\0\0\0\0\0", 21);
  ProtobufReader reader(bytes, "m", "message");
  ProtobufField field;
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.number, 1U);
  EXPECT_EQ(reader.integer(field), 150);
  EXPECT_THROW(reader.bytes(field), DataError);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(reader.text(field), "hi");
  EXPECT_THROW(reader.real(field), DataError);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(reader.real(field), 1.0F);
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(field.bits, 1U);
  EXPECT_FALSE(reader.next(field));
}

TEST(ProtobufReader, RefusesWhatIsCutShortOrNoField) {
  EXPECT_THROW(read_all("\x08"), DataError);
  EXPECT_THROW(read_all("\x08\xff"), DataError);
  EXPECT_THROW(read_all("\x12\x05hi"), DataError);
  EXPECT_THROW(read_all("\x1d\x01"), DataError);
  EXPECT_THROW(read_all(std::string("\x00\x01", 2)), DataError) << "field 0";
  EXPECT_THROW(read_all("\x0b"), DataError) << "a group";
  EXPECT_THROW(read_all("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), DataError) << "11 bytes";
}

TEST(ProtobufReader, TextMustBeUtf8) {
  ProtobufReader reader("\x12\x01\xff", "m", "message");
  ProtobufField field;
  ASSERT_TRUE(reader.next(field));
  EXPECT_EQ(reader.bytes(field), "\xff");
  EXPECT_THROW(reader.text(field), DataError);
}

}  // namespace
}  // namespace apus::data
