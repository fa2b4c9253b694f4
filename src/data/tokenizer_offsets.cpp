// Encoding with places: the same steps as without, over texts that know where their bytes came from.
#include "data/tokenizer_state.h"

namespace apus::data {

void Tokenizer::State::track_text(std::string_view text, Workspace& work,
                                  std::vector<TrackedToken>& tokens) const {
  std::vector<TextPart> parts;
  raw_matcher.split(text, parts);
  for (const TextPart& part : parts) {
    const std::string_view raw = text.substr(part.range.begin, part.range.end - part.range.begin);
    if (part.id < 0) {
      track_part(normalized(AlignedText::track(raw, part.range.begin)), work, tokens);
      continue;
    }
    tokens.push_back({.id = part.id, .begin = part.range.begin, .end = part.range.end});
    count_spaces(raw, tokens.back());
  }
}

void Tokenizer::State::track_part(const AlignedText& text, Workspace& work,
                                  std::vector<TrackedToken>& tokens) const {
  std::vector<TextPart> parts;
  normalized_matcher.split(text.text, parts);
  for (const TextPart& part : parts) {
    if (part.id < 0) {
      track_words(text, part.range, work, tokens);
      continue;
    }
    tokens.push_back({.id = part.id,
                      .begin = text.origin[part.range.begin].begin,
                      .end = text.origin[part.range.end - 1].end});
    count_spaces(std::string_view(text.text).substr(part.range.begin, part.range.end - part.range.begin),
                 tokens.back());
  }
}

void Tokenizer::State::track_words(const AlignedText& text, ByteRange range, Workspace& work,
                                   std::vector<TrackedToken>& tokens) const {
  const auto first = text.origin.begin();
  const std::vector<ByteRange> origin(first + range.begin, first + range.end);
  Pieces& pieces = work.pieces;
  pieces.reset(std::string_view(text.text).substr(range.begin, range.end - range.begin), &origin);
  if (pre_tokenizer) pre_tokenizer->apply(pieces);
  for (const ByteRange& piece : pieces.ranges) {
    uint32_t at = piece.begin;
    for (const BpeSymbol& symbol : model->encode_symbols(pieces.piece(piece), work.bpe)) {
      const uint32_t end = at + symbol.length;
      // Bytes of a prefix or suffix may stand for more than the word has: the library then gives bare counts.
      if (end > piece.end)
        tokens.push_back({.id = symbol.id, .begin = at - piece.begin, .end = end - piece.begin});
      else
        tokens.push_back(
            {.id = symbol.id, .begin = (*pieces.origin)[at].begin, .end = (*pieces.origin)[end - 1].end});
      count_spaces(model->vocabulary().name(symbol.id), tokens.back());
      at = end;
    }
  }
}

}  // namespace apus::data
