#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace apus::data {

/// A range of bytes [begin, end).
struct ByteRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// A text on its way through the pipeline. With `tracked`, `origin` has an entry for each byte of `text`: the
/// bytes of the original text that it stands for.
struct AlignedText {
  std::string text;
  bool tracked = false;
  std::vector<ByteRange> origin;
  /// Where the part of the original text starts that this one came from.
  uint32_t base = 0;
  /// The most bytes that it may grow to.
  size_t most_bytes = SIZE_MAX;

  /// A part of the original text that starts there at `base`; every byte of a character stands for all of it.
  static AlignedText track(std::string_view part, uint32_t base);
};

/// A change of the text before it is split.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Whether `apply` would change nothing; cheap, and may say false needlessly.
  virtual bool keeps(std::string_view text) const = 0;
  /// Changes the text, which is valid UTF-8, and where it is tracked its origins.
  virtual void apply(AlignedText& text) const = 0;
};

/// Unicode's NFC, as the tokenizers library computes it: with tables older than Unicode 11.
class NfcNormalizer final : public Normalizer {
 public:
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;
};

/// NFD, NFKC and NFKD, with the same tables.
class UnicodeFormNormalizer final : public Normalizer {
 public:
  enum class Form { kNfd, kNfkc, kNfkd };
  explicit UnicodeFormNormalizer(Form form) : form_(form) {}
  /// Says false for any text beyond ASCII.
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  Form form_;
};

/// Several normalizers, one after another.
class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  bool keeps(std::string_view text) const override;
  void apply(AlignedText& text) const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

}  // namespace apus::data
