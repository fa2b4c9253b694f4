#include "data/pretokenize_text.h"

#include <algorithm>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/bpe_vocabulary.h"
#include "data/older_unicode.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

ByteRange range(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

// Builds the text that replaces a set of pieces, with its origins.
class Rebuilder {
 public:
  explicit Rebuilder(Pieces& pieces) : pieces_(pieces) { out_.tracked = pieces.origin != nullptr; }

  uint32_t size() const { return static_cast<uint32_t>(out_.text.size()); }

  // Bytes that stand for what the old text's byte `at` stands for.
  void add(std::string_view text, size_t at) {
    out_.text += text;
    if (out_.tracked) out_.origin.insert(out_.origin.end(), text.size(), (*pieces_.origin)[at]);
  }

  // Old bytes as they are.
  void copy(size_t begin, size_t end) {
    out_.text += pieces_.text.substr(begin, end - begin);
    if (!out_.tracked) return;
    const auto first = pieces_.origin->begin();
    out_.origin.insert(out_.origin.end(), first + static_cast<ptrdiff_t>(begin),
                       first + static_cast<ptrdiff_t>(end));
  }

  void finish() {
    pieces_.owned = std::move(out_);
    pieces_.text = pieces_.owned.text;
    pieces_.origin = pieces_.owned.tracked ? &pieces_.owned.origin : nullptr;
  }

 private:
  Pieces& pieces_;
  AlignedText out_;
};

}  // namespace

PatternFinder find_characters(bool (*belongs)(char32_t code_point)) {
  return [belongs](std::string_view text, std::vector<PatternPart>& out) {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text.data() + at);
      const size_t next = at + point.length;
      if (belongs(point.value)) {
        if (at > done) out.push_back({range(done, at), false});
        out.push_back({range(at, next), true});
        done = next;
      }
      at = next;
    }
    if (done < text.size()) out.push_back({range(done, text.size()), false});
  };
}

PatternFinder find_words() {
  enum class Kind { kSpace, kWord, kOther };
  return [](std::string_view text, std::vector<PatternPart>& out) {
    Kind before = Kind::kSpace;
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text.data() + at);
      const bool space = unicode_class(point.value).is_space();
      const Kind kind = in_regex_word(point.value) ? Kind::kWord : space ? Kind::kSpace : Kind::kOther;
      if (at > 0 && kind == before)
        out.back().range.end += point.length;
      else
        out.push_back({range(at, at + point.length), kind != Kind::kSpace});
      before = kind;
      at += point.length;
    }
  };
}

Metaspace::Metaspace(MetaspaceOptions options)
    : options_(std::move(options)),
      splitter_(find_literal(options_.replacement), {.behavior = SplitBehavior::kMergedWithNext}) {}

bool Metaspace::starts_text(const Pieces& pieces, ByteRange range) const {
  return pieces.origin != nullptr ? (*pieces.origin)[range.begin].begin == 0
                                  : pieces.starts_text && range.begin == 0;
}

void Metaspace::apply(Pieces& pieces) const {
  Rebuilder rebuilder(pieces);
  for (ByteRange& piece : pieces.ranges) {
    const std::string_view text = pieces.piece(piece);
    const uint32_t begin = rebuilder.size();
    const bool wanted = options_.prepend == MetaspacePrepend::kAlways ||
                        (options_.prepend == MetaspacePrepend::kFirst && starts_text(pieces, piece));
    if (wanted && !text.starts_with(options_.replacement) && !text.starts_with(' '))
      rebuilder.add(options_.replacement, piece.begin);
    for (size_t at = piece.begin; at < piece.end;) {
      const size_t space = std::min<size_t>(pieces.text.find(' ', at), piece.end);
      rebuilder.copy(at, space);
      if (space < piece.end) rebuilder.add(options_.replacement, space);
      at = space + 1;
    }
    piece = {begin, rebuilder.size()};
  }
  rebuilder.finish();
  if (options_.split) splitter_.apply(pieces);
}

void FixedLength::apply(Pieces& pieces) const {
  pieces.scratch.swap(pieces.ranges);
  pieces.ranges.clear();
  for (const ByteRange& whole : pieces.scratch) {
    size_t taken = 0;
    for (uint32_t at = whole.begin; at < whole.end; ++taken) {
      const uint32_t next = at + code_point_at(pieces.text.data() + at).length;
      if (taken % length_ == 0)
        pieces.ranges.push_back({at, next});
      else
        pieces.ranges.back().end = next;
      at = next;
    }
  }
}

void SpellBytes::apply(Pieces& pieces) const {
  Rebuilder rebuilder(pieces);
  std::string name;
  for (ByteRange& piece : pieces.ranges) {
    const uint32_t begin = rebuilder.size();
    for (uint32_t at = piece.begin; at < piece.end; ++at) {
      name.clear();
      append_byte_level(name, pieces.text.substr(at, 1));
      rebuilder.add(name, at);
    }
    piece = {begin, rebuilder.size()};
  }
  rebuilder.finish();
}

void SplitBeforeMarks::apply(Pieces& pieces) const {
  constexpr std::string_view kMark = BpeModel::kMark;
  pieces.scratch.swap(pieces.ranges);
  pieces.ranges.clear();
  for (const ByteRange& whole : pieces.scratch) {
    const std::string_view text = pieces.piece(whole);
    size_t begin = 0;
    for (size_t at = text.find(kMark, 1); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
      if (text.substr(0, at).ends_with(kMark)) continue;
      pieces.ranges.push_back(range(whole.begin + begin, whole.begin + at));
      begin = at;
    }
    pieces.ranges.push_back(range(whole.begin + begin, whole.end));
  }
}

struct IsolateStrings::Matcher {
  AddedTokenMatcher tokens;
};

IsolateStrings::IsolateStrings(const std::vector<std::string>& strings)
    : matcher_(std::make_unique<Matcher>()) {
  for (size_t i = 0; i < strings.size(); ++i)
    matcher_->tokens.add(strings[i], {.id = static_cast<int32_t>(i), .content = strings[i]});
}

IsolateStrings::~IsolateStrings() = default;

void IsolateStrings::apply(Pieces& pieces) const {
  pieces.scratch.swap(pieces.ranges);
  pieces.ranges.clear();
  std::vector<TextPart> parts;
  for (const ByteRange& whole : pieces.scratch) {
    parts.clear();
    matcher_->tokens.split(pieces.piece(whole), parts);
    for (const TextPart& part : parts)
      pieces.ranges.push_back(range(whole.begin + part.range.begin, whole.begin + part.range.end));
  }
}

}  // namespace apus::data
