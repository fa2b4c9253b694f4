#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apus/data/tokenizer.h"
#include "data/decode_steps.h"
#include "data/post_process.h"
#include "data/tokenizer_parts.h"

namespace apus::data {

/// What one call works in; calls take one from the pool, so that words stay cached between them.
struct Workspace {
  BpeScratch bpe;
  Pieces pieces;
  std::vector<TextPart> raw_parts;
  std::vector<TextPart> parts;
  const char* text_begin = nullptr;
};

/// Workspaces that no call uses at the moment.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }

  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

/// Holds a workspace while a call runs.
class Lease {
 public:
  explicit Lease(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
  ~Lease() { pool_.give_back(std::move(workspace_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() const { return *workspace_; }

 private:
  WorkspacePool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

/// A loaded tokenizer: its components and tables by id.
struct Tokenizer::State {
  std::string source;
  std::unique_ptr<Normalizer> normalizer;
  /// Null where a part of the text between added tokens is one word.
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<BpeModel> model;
  /// What the post-processor makes of a text, without and with its special tokens.
  PostPlan bare;
  PostPlan full;
  std::vector<DecodeStep> decoder;
  /// Whether the decoder is one ByteLevel: then `decoded` has what it makes of each token.
  bool decodes_bytes = false;
  /// Whether words depend on where in the text they came from, which only a tracked text knows.
  bool needs_origin = false;

  std::vector<AddedToken> added;
  std::unordered_map<std::string, int32_t> added_ids;
  std::unordered_map<int32_t, std::string> added_names;
  /// What a token decodes to: its content as it is looked for, so normalised where the token is.
  std::unordered_map<int32_t, std::string> added_texts;
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;

  /// By id: the bytes that a token decodes to, whether it is special, and whether it is left out without
  /// special tokens (its text is that of a special one).
  std::string decoded;
  std::vector<ByteRange> decoded_ranges;
  std::vector<bool> special;
  std::vector<bool> skipped;

  mutable WorkspacePool pool;

  static std::unique_ptr<State> build(TokenizerJson& file);
  void add_tokens();
  void fill_decoder();
  /// The text to encode: as given, or in `storage` with what is invalid replaced.
  /// Throws: DataError if it is too long, or not UTF-8 and to be refused.
  std::string_view checked(std::string_view text, EncodeOptions options, std::string& storage) const;
  /// The text normalised.
  /// Throws: DataError if that makes it too long.
  AlignedText normalized(AlignedText text) const;
  /// What the decoder sees of a token, if there is such a token and it is not left out.
  std::optional<std::string_view> shown(int32_t id, DecodeOptions options) const;
  void append_bytes(std::span<const int32_t> ids, DecodeOptions options, std::string& out) const;

  /// Ids without places.
  void encode_text(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;
  void encode_part(std::string_view text, Workspace& work, std::vector<int32_t>& ids) const;

  /// Ids with places.
  void track_text(std::string_view text, Workspace& work, std::vector<TrackedToken>& tokens) const;
  void track_part(const AlignedText& text, Workspace& work, std::vector<TrackedToken>& tokens) const;
  void track_words(const AlignedText& text, ByteRange range, Workspace& work,
                   std::vector<TrackedToken>& tokens) const;
};

}  // namespace apus::data
