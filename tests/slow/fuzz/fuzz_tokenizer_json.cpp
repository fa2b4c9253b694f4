#include <array>
#include <string>

#include "apus/data/tokenizer.h"
#include "tests/slow/fuzz/fuzz_input.h"

// A tokenizer.json, then a zero byte and a text to encode with it.

namespace {

using apus::data::Tokenizer;

void use(const Tokenizer& tokenizer, std::string_view text) {
  apus::fuzz::taken([&] {
    const auto ids = tokenizer.encode(text);
    const auto encoding = tokenizer.encode_with_offsets(text);
    apus::fuzz::require(encoding.ids == ids && encoding.offsets.size() == ids.size());
    for (const auto& place : encoding.offsets)
      apus::fuzz::require(place.begin <= place.end && place.end <= static_cast<int64_t>(text.size()));
    for (const int32_t id : ids) apus::fuzz::require(id >= 0 && id < tokenizer.id_limit());
    tokenizer.decode(ids);
    tokenizer.decode_bytes(ids, {.skip_special_tokens = true});
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [json, text] = apus::fuzz::two_parts(apus::fuzz::text_of(data, size));
  apus::fuzz::taken([&, json = json, text = text] {
    const auto tokenizer = Tokenizer::from_json(std::string(json), "fuzz");
    use(*tokenizer, "Hello, world's 123 \xC3\xA9\xE4\xB8\xAD\n\n  <s>x</s>");
    use(*tokenizer, text);
    tokenizer->token_to_id("a");
    tokenizer->id_to_token(-1);
    tokenizer->decode(std::array<int32_t, 6>{-1, 0, 1, 2, 3, 2147483647});
  });
  return 0;
}
