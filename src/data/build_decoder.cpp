#include "apus/base/error.h"
#include "apus/base/unicode.h"
#include "data/component_list.h"
#include "data/decode_steps.h"
#include "data/pattern_of.h"

namespace apus::data {
namespace {

DecodeStep build_replace(const JsonView& view) {
  DecodeStep step;
  step.content = view.require<std::string>("content");
  const auto literal = view.object("pattern").find<std::string>("String");
  if (literal && !literal->empty()) {
    step.kind = DecodeStep::Kind::kReplaceText;
    step.pattern = *literal;
  } else {
    step.kind = DecodeStep::Kind::kReplacePattern;
    step.finder = pattern_of(view);
  }
  return step;
}

DecodeStep build_strip(const JsonView& view) {
  const auto count = [&](const std::string& key) {
    const auto value = view.require<int64_t>(key);
    if (value < 0) throw DataError(view.source(), 0, view.path_of(key) + " is below 0");
    return static_cast<size_t>(value);
  };
  DecodeStep step{.kind = DecodeStep::Kind::kStrip, .pattern = character_of(view, "content")};
  step.start = count("start");
  step.stop = count("stop");
  return step;
}

DecodeStep build_step(const JsonView& view) {
  using Kind = DecodeStep::Kind;
  const auto type = view.require<std::string>("type");
  if (type == "ByteLevel") return {.kind = Kind::kByteLevel};
  if (type == "ByteFallback") return {.kind = Kind::kByteFallback};
  if (type == "Fuse") return {.kind = Kind::kFuse};
  if (type == "Strip") return build_strip(view);
  if (type == "Replace") return build_replace(view);
  if (type == "Metaspace") {
    const MetaspaceOptions options = metaspace_options(view);
    return {.kind = Kind::kMetaspace,
            .pattern = options.replacement,
            .flag = options.prepend != MetaspacePrepend::kNever};
  }
  if (type == "BPEDecoder") return {.kind = Kind::kBpe, .pattern = view.require<std::string>("suffix")};
  if (type == "WordPiece")
    return {.kind = Kind::kWordPiece,
            .pattern = view.require<std::string>("prefix"),
            .flag = view.require<bool>("cleanup")};
  if (type == "CTC")
    return {.kind = Kind::kCtc,
            .pattern = view.require<std::string>("pad_token"),
            .content = view.require<std::string>("word_delimiter_token"),
            .flag = view.require<bool>("cleanup")};
  refuse_component(
      view, type,
      "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, WordPiece, CTC, Sequence");
}

}  // namespace

std::vector<DecodeStep> build_decoder(const TokenizerJson& file) {
  std::vector<DecodeStep> steps;
  for (const JsonView& view : component_list(file, "decoder", "decoders")) steps.push_back(build_step(view));
  const bool present = JsonView(file.document, file.source).has("decoder");
  if (present && steps.empty()) steps.push_back({.kind = DecodeStep::Kind::kFuse});  // an empty Sequence
  return steps;
}

}  // namespace apus::data
