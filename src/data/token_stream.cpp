#include "apus/data/token_stream.h"

#include "apus/base/error.h"
#include "data/tokenizer_state.h"

namespace apus::data {

struct TokenStream::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  DecodeOptions options;
  std::unique_ptr<DecodePipeline> pipeline;
};

TokenStream::TokenStream(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options)
    : state_(std::make_unique<State>(State{std::move(tokenizer), options, nullptr})) {
  APUS_CHECK(state_->tokenizer != nullptr, ConfigError, "TokenStream needs a tokenizer");
  state_->pipeline = std::make_unique<DecodePipeline>(state_->tokenizer->state_->decoder);
}

TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

std::string TokenStream::push(int32_t id) {
  const auto name = state_->tokenizer->state_->shown(id, state_->options);
  if (!name) return {};
  state_->pipeline->push(*name);
  return state_->pipeline->take();
}

std::string TokenStream::flush() {
  state_->pipeline->finish();
  std::string rest = state_->pipeline->take();
  state_->pipeline = std::make_unique<DecodePipeline>(state_->tokenizer->state_->decoder);
  return rest;
}

}  // namespace apus::data
