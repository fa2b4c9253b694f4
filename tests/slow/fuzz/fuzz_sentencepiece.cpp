#include <array>
#include <string>

#include "apus/data/sentencepiece.h"
#include "apus/data/tokenizer.h"
#include "tests/slow/fuzz/fuzz_input.h"

// A text that ends in a zero byte, then a SentencePiece model (tokenizer.model), read with and without what a
// folder adds to it.

namespace {

using apus::data::SentencePieceOptions;
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

void read(std::string_view model, std::string_view text, const SentencePieceOptions& options) {
  apus::fuzz::taken([&] {
    const auto tokenizer = Tokenizer::from_sentencepiece(model, "fuzz", options);
    use(*tokenizer, " Hello  ab\xC3\xA9\xE4\xB8\xAD\xEF\xBC\xA1 <s>x</s>\n<new>");
    use(*tokenizer, text);
    tokenizer->decode(std::array<int32_t, 6>{-1, 0, 1, 2, 3, 2147483647});
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [text, model] = apus::fuzz::two_parts(apus::fuzz::text_of(data, size));
  read(model, text, {});
  read(model, text,
       {.bos = "<s>",
        .eos = "</s>",
        .prefix_every_part = false,
        .added_tokens = {{.content = "<new>", .lstrip = true}}});
  return 0;
}
