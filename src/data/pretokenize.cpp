#include "data/pretokenize.h"

#include <algorithm>

namespace apus::data {
namespace {

ByteRange range(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

// A run of matches (or of gaps) becomes one piece.
void merge_contiguous(const std::vector<PatternPart>& parts, std::vector<ByteRange>& out) {
  bool previous = false;
  bool first = true;
  for (const PatternPart& part : parts) {
    if (!first && part.is_match == previous)
      out.back().end = part.range.end;
    else
      out.push_back(part.range);
    previous = part.is_match;
    first = false;
  }
}

// A match joins the gap before it; of matches in a row only the first does.
void merge_with_previous(const std::vector<PatternPart>& parts, std::vector<ByteRange>& out) {
  bool previous = false;
  bool first = true;
  for (const PatternPart& part : parts) {
    if (!first && part.is_match && !previous)
      out.back().end = part.range.end;
    else
      out.push_back(part.range);
    previous = part.is_match;
    first = false;
  }
}

// A match joins the gap after it; of matches in a row only the last does.
void merge_with_next(const std::vector<PatternPart>& parts, std::vector<ByteRange>& out) {
  const auto start = static_cast<ptrdiff_t>(out.size());
  bool next = false;
  bool first = true;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!first && part->is_match && !next)
      out.back().begin = part->range.begin;
    else
      out.push_back(part->range);
    next = part->is_match;
    first = false;
  }
  std::reverse(out.begin() + start, out.end());
}

}  // namespace

void Pieces::reset(std::string_view whole, const std::vector<ByteRange>* whole_origin) {
  text = whole;
  origin = whole_origin;
  ranges.clear();
  if (!whole.empty()) ranges.push_back(range(0, whole.size()));
}

void KnownSplit::apply(Pieces& pieces) const {
  pieces.scratch.swap(pieces.ranges);
  pieces.ranges.clear();
  for (const ByteRange& whole : pieces.scratch) splitter_(pieces.piece(whole), whole.begin, pieces.ranges);
}

void apply_behavior(const std::vector<PatternPart>& parts, SplitBehavior behavior,
                    std::vector<ByteRange>& out) {
  const auto start = static_cast<ptrdiff_t>(out.size());
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const PatternPart& part : parts)
        if (!part.is_match) out.push_back(part.range);
      break;
    case SplitBehavior::kIsolated:
      for (const PatternPart& part : parts) out.push_back(part.range);
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(parts, out);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(parts, out);
      break;
    case SplitBehavior::kContiguous:
      merge_contiguous(parts, out);
      break;
  }
  const auto is_empty = [](const ByteRange& piece) { return piece.begin == piece.end; };
  out.erase(std::remove_if(out.begin() + start, out.end(), is_empty), out.end());
}

PatternFinder find_literal(std::string literal) {
  return [literal = std::move(literal)](std::string_view text, std::vector<PatternPart>& out) {
    size_t done = 0;
    while (!literal.empty()) {
      const size_t found = text.find(literal, done);
      if (found == std::string_view::npos) break;
      if (found > done) out.push_back({range(done, found), false});
      done = found + literal.size();
      out.push_back({range(found, done), true});
    }
    if (done < text.size()) out.push_back({range(done, text.size()), false});
  };
}

void PatternSplit::apply(Pieces& pieces) const {
  pieces.scratch.swap(pieces.ranges);
  pieces.ranges.clear();
  std::vector<PatternPart> parts;
  for (const ByteRange& whole : pieces.scratch) {
    parts.clear();
    finder_(pieces.piece(whole), parts);
    for (PatternPart& part : parts) {
      part.range = range(whole.begin + part.range.begin, whole.begin + part.range.end);
      part.is_match = part.is_match != options_.invert;
    }
    apply_behavior(parts, options_.behavior, pieces.ranges);
  }
}

void PrefixSpace::apply(Pieces& pieces) const {
  AlignedText changed{{}, pieces.origin != nullptr, {}, 0};
  for (ByteRange& whole : pieces.ranges) {
    const std::string_view piece = pieces.piece(whole);
    const auto begin = static_cast<uint32_t>(changed.text.size());
    if (piece.empty() || piece.front() != ' ') {
      changed.text += ' ';
      if (changed.tracked) changed.origin.push_back((*pieces.origin)[whole.begin]);
    }
    changed.text += piece;
    if (changed.tracked) {
      const auto first = pieces.origin->begin();
      changed.origin.insert(changed.origin.end(), first + whole.begin, first + whole.end);
    }
    whole = {begin, static_cast<uint32_t>(changed.text.size())};
  }
  pieces.owned = std::move(changed);
  pieces.text = pieces.owned.text;
  pieces.origin = pieces.owned.tracked ? &pieces.owned.origin : nullptr;
}

bool SequencePreTokenizer::asks_for_start() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->asks_for_start(); });
}

bool SequencePreTokenizer::needs_origin() const {
  return std::any_of(steps_.begin(), steps_.end(), [this](const auto& step) {
    return step == steps_.front() ? step->needs_origin() : step->asks_for_start();
  });
}

void SequencePreTokenizer::apply(Pieces& pieces) const {
  for (const auto& step : steps_) step->apply(pieces);
}

}  // namespace apus::data
