// Decoders as streams. A step holds back only what later tokens may still change, so decoding a whole list
// and decoding token by token are one implementation.
#include "data/decode_steps.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "apus/base/unicode.h"
#include "data/bpe_vocabulary.h"
#include "data/unicode_classes.h"

namespace apus::data {
namespace {

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t done = 0;
  if (pattern.empty()) {
    for (; done < text.size(); done += code_point_at(text.data() + done).length)
      out.append(content).append(text.substr(done, code_point_at(text.data() + done).length));
    return out.append(content);
  }
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, done)) {
    out.append(text.substr(done, at - done)).append(content);
    done = at + pattern.size();
  }
  return out.append(text.substr(done));
}

// The end of the line: all text, with a space between tokens if there is no decoder.
class Collector final : public TokenSink {
 public:
  Collector(std::string& out, std::string_view separator) : out_(out), separator_(separator) {}
  void chunk(std::string_view text) override {
    begin();
    out_ += text;
  }
  void end_token() override {
    begin();
    inside_ = false;
  }
  void finish() override {}

 private:
  void begin() {
    if (!inside_ && !first_) out_ += separator_;
    inside_ = true;
    first_ = false;
  }

  std::string& out_;
  std::string_view separator_;
  bool inside_ = false;
  bool first_ = true;
};

class Stage : public TokenSink {
 public:
  Stage(const DecodeStep& step, TokenSink& next) : step_(step), next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  void send(std::string_view text) {
    next_.chunk(text);
    next_.end_token();
  }
  const DecodeStep& step_;
  TokenSink& next_;
};

// A stage that sees whole tokens.
class WholeTokens : public Stage {
 public:
  using Stage::Stage;
  void chunk(std::string_view text) final { token_ += text; }
  void end_token() final {
    take(token_);
    token_.clear();
  }

 protected:
  virtual void take(const std::string& token) = 0;

 private:
  std::string token_;
};

// All bytes become one token; bytes at the end that may begin a character wait.
class ByteLevelStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void finish() override {
    send(replace_invalid_utf8(bytes_));
    next_.finish();
  }

 private:
  void take(const std::string& token) override {
    bytes_ += bytes_of_name(token);
    const size_t ready = bytes_.size() - incomplete_utf8_tail(bytes_);
    if (ready == 0) return;
    next_.chunk(replace_invalid_utf8(std::string_view(bytes_).substr(0, ready)));
    bytes_.erase(0, ready);
  }

  std::string bytes_;
};

// The byte that a token such as <0x0A> stands for. The digits are read as Rust reads them: a plus may lead.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(value);
}

// A run of bytes becomes its text, or U+FFFD for each byte if any of it is invalid: known at its end only.
class ByteFallbackStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  void take(const std::string& token) override {
    if (const auto byte = fallback_byte(token)) {
      run_ += *byte;
      return;
    }
    end_run();
    send(token);
  }

  void end_run() {
    if (run_.empty()) return;
    if (is_valid_utf8(run_))
      send(run_);
    else
      for (size_t i = 0; i < run_.size(); ++i) send("\uFFFD");
    run_.clear();
  }

  std::string run_;
};

class FuseStage final : public Stage {
 public:
  using Stage::Stage;
  void chunk(std::string_view text) override { next_.chunk(text); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }
};

// Cuts up to `start` characters off a token's start, and holds back up to `stop` of its last ones.
class StripStage final : public Stage {
 public:
  using Stage::Stage;
  void chunk(std::string_view text) override {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const std::string_view character = text.substr(at, code_point_at(text.data() + at).length);
      at += character.size();
      const bool hit = character == step_.pattern;
      if (hit && starting_ && cut_ < step_.start) {
        ++cut_;
        continue;
      }
      starting_ = false;
      if (hit && held_ < step_.stop) {
        ++held_;
        continue;
      }
      for (; !hit && held_ > 0; --held_) out += step_.pattern;
      out += character;
    }
    next_.chunk(out);
  }
  void end_token() override {
    starting_ = true;
    cut_ = held_ = 0;
    next_.end_token();
  }

 private:
  bool starting_ = true;
  size_t cut_ = 0;
  size_t held_ = 0;
};

// Replaces a string; what may be its beginning waits for the next chunk.
class ReplaceTextStage final : public Stage {
 public:
  using Stage::Stage;
  void chunk(std::string_view text) override {
    const std::string& pattern = step_.pattern;
    rest_ += text;
    size_t done = 0;
    std::string out;
    for (size_t at = rest_.find(pattern); at != std::string::npos; at = rest_.find(pattern, done)) {
      out.append(rest_, done, at - done).append(step_.content);
      done = at + pattern.size();
    }
    size_t kept = std::min(pattern.size() - 1, rest_.size() - done);
    while (kept > 0 && rest_.compare(rest_.size() - kept, kept, pattern, 0, kept) != 0) --kept;
    out.append(rest_, done, rest_.size() - kept - done);
    rest_.erase(0, rest_.size() - kept);
    next_.chunk(out);
  }
  void end_token() override {
    send(rest_);
    rest_.clear();
  }

 private:
  std::string rest_;
};

class ReplacePatternStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;

 private:
  void take(const std::string& token) override {
    std::vector<PatternPart> parts;
    if (!token.empty()) step_.finder(token, parts);
    std::string out;
    for (const PatternPart& part : parts)
      out +=
          part.is_match ? step_.content : token.substr(part.range.begin, part.range.end - part.range.begin);
    send(out);
  }
};

class MetaspaceStage final : public Stage {
 public:
  using Stage::Stage;
  void chunk(std::string_view text) override {
    next_.chunk(replace_all(text, step_.pattern, first_ && step_.flag ? "" : " "));
  }
  void end_token() override {
    first_ = false;
    next_.end_token();
  }

 private:
  bool first_ = true;
};

// GPT-1's kind: the suffix of a word's last token is a space, but for the last token of all.
class BpeStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void finish() override {
    if (held_) send(replace_all(*held_, step_.pattern, ""));
    next_.finish();
  }

 private:
  void take(const std::string& token) override {
    if (held_) send(replace_all(*held_, step_.pattern, " "));
    held_ = token;
  }
  std::optional<std::string> held_;
};

std::string clean_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{{" .", "."},
                                                                                     {" ?", "?"},
                                                                                     {" !", "!"},
                                                                                     {" ,", ","},
                                                                                     {" ' ", "'"},
                                                                                     {" n't", "n't"},
                                                                                     {" 'm", "'m"},
                                                                                     {" do not", " don't"},
                                                                                     {" 's", "'s"},
                                                                                     {" 've", "'ve"},
                                                                                     {" 're", "'re"}}};
  for (const auto& [pattern, content] : kRules) text = replace_all(text, pattern, content);
  return text;
}

class WordPieceStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;

 private:
  void take(const std::string& token) override {
    std::string text = token;
    if (!first_) text = token.starts_with(step_.pattern) ? token.substr(step_.pattern.size()) : " " + token;
    first_ = false;
    send(step_.flag ? clean_up(std::move(text)) : text);
  }
  bool first_ = true;
};

class CtcStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;

 private:
  void take(const std::string& token) override {
    if (last_ == token) return;
    last_ = token;
    std::string text = replace_all(token, step_.pattern, "");
    if (step_.flag) text = replace_all(clean_up(std::move(text)), step_.content, " ");
    if (!text.empty()) send(text);
  }
  std::optional<std::string> last_;
};

std::unique_ptr<TokenSink> make_stage(const DecodeStep& step, TokenSink& next) {
  switch (step.kind) {
    case DecodeStep::Kind::kByteLevel:
      return std::make_unique<ByteLevelStage>(step, next);
    case DecodeStep::Kind::kByteFallback:
      return std::make_unique<ByteFallbackStage>(step, next);
    case DecodeStep::Kind::kFuse:
      return std::make_unique<FuseStage>(step, next);
    case DecodeStep::Kind::kStrip:
      return std::make_unique<StripStage>(step, next);
    case DecodeStep::Kind::kReplaceText:
      return std::make_unique<ReplaceTextStage>(step, next);
    case DecodeStep::Kind::kReplacePattern:
      return std::make_unique<ReplacePatternStage>(step, next);
    case DecodeStep::Kind::kMetaspace:
      return std::make_unique<MetaspaceStage>(step, next);
    case DecodeStep::Kind::kBpe:
      return std::make_unique<BpeStage>(step, next);
    case DecodeStep::Kind::kWordPiece:
      return std::make_unique<WordPieceStage>(step, next);
    case DecodeStep::Kind::kCtc:
      return std::make_unique<CtcStage>(step, next);
  }
  return nullptr;
}

}  // namespace

DecodePipeline::DecodePipeline(const std::vector<DecodeStep>& steps) {
  sinks_.push_back(std::make_unique<Collector>(text_, steps.empty() ? " " : ""));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    sinks_.push_back(make_stage(*step, *sinks_.back()));
}

void DecodePipeline::push(std::string_view name) {
  sinks_.back()->chunk(name);
  sinks_.back()->end_token();
}

void DecodePipeline::finish() {
  sinks_.back()->finish();
}

std::string DecodePipeline::take() {
  return std::exchange(text_, {});
}

}  // namespace apus::data
