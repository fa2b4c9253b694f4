#include "apus/base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "apus/base/file.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

std::string pattern(std::size_t length) {
  std::string text(length, '\0');
  for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 131 + 7);
  return text;
}

TEST(Hash, Xxh64MatchesKnownAnswers) {
  EXPECT_EQ(hash64(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash64("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash64("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash64("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
  EXPECT_EQ(hash64("xxhash", 20141025), 13067679811253438005u);
}

TEST(Hash, Sha256MatchesKnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hash, PiecesDoNotMatter) {
  for (std::size_t length = 0; length < 200; ++length) {
    const std::string text = pattern(length);
    for (const std::size_t piece : {1, 3, 31, 32, 64, 65}) {
      Hash64 quick;
      Sha256 secure;
      for (std::size_t i = 0; i < length; i += piece) {
        quick.update(std::string_view(text).substr(i, piece));
        secure.update(std::string_view(text).substr(i, piece));
      }
      ASSERT_EQ(quick.digest(), hash64(text)) << length << " in pieces of " << piece;
      ASSERT_EQ(secure.hex(), sha256_hex(text)) << length << " in pieces of " << piece;
    }
  }
}

TEST(Hash, ADigestMayBeTakenOnTheWay) {
  Sha256 hash;
  hash.update("ab");
  EXPECT_EQ(hash.hex(), sha256_hex("ab"));
  hash.update("c");
  EXPECT_EQ(hash.hex(), sha256_hex("abc"));
}

TEST(Hash, OneBitChangesEverything) {
  const std::string text = pattern(100);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    ASSERT_NE(hash64(text), hash64(other));
    ASSERT_NE(sha256_hex(text), sha256_hex(other));
  }
}

TEST(Hash, HashesAFile) {
  const ScratchFolder folder;
  EXPECT_EQ(sha256_file(folder.put("f", "abc")), sha256_hex("abc"));
  EXPECT_THROW(sha256_file(folder / "missing"), FileError);
}

TEST(Hash, HexIsLowerCaseAndComplete) {
  EXPECT_EQ(to_hex(as_byte_span("\x01\xfe")), "01fe");
  EXPECT_EQ(to_hex(uint64_t{0xABC}), "0000000000000abc");
}

}  // namespace
}  // namespace apus
