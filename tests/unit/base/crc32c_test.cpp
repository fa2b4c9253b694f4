#include "apus/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "apus/base/hash.h"

namespace apus {
namespace {

// The vectors of RFC 3720, B.4, and the usual check value.
TEST(Crc32c, GivesTheValuesOfTheRfc) {
  EXPECT_EQ(crc32c(as_byte_span("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(as_byte_span(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_byte_span(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(as_byte_span(rising)), 0x46DD794Eu);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, DoesNotDependOnThePiecesBorders) {
  const std::string text = "events of one step, and of the next";
  const uint32_t whole = crc32c(as_byte_span(text));
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32c(as_byte_span(text.substr(cut)), crc32c(as_byte_span(text.substr(0, cut)))), whole)
        << cut;
}

}  // namespace
}  // namespace apus
