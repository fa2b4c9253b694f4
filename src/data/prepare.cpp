#include "apus/data/prepare.h"

#include <memory>
#include <utility>

#include "apus/base/log.h"
#include "apus/data/dpo_rows_json.h"
#include "data/prepare_rows.h"
#include "data/row_cache_key.h"
#include "data/row_encoders.h"

namespace apus::data {
namespace {

std::string rule_text(StringRule rule) {
  switch (rule) {
    case StringRule::kChatTemplate:
      return "strings went through the chat template as one user turn and two assistant answers";
    case StringRule::kRawBecauseOfOption:
      return "strings were taken as raw text, because use_chat_template is false";
    case StringRule::kRawForLackOfOne:
      return "strings were taken as raw text, because the tokenizer has no chat template";
  }
  throw ConfigError("unknown string rule");
}

/// Fills in what all rows that go through a tokenizer share.
template <typename Row, typename EncodeOptions>
void add_key(RowsPlan<Row>& plan, const TokenizerFolder& tokenizer, const RowReadOptions& read,
             const EncodeOptions& encode) {
  plan.options = {{"read", read_options_in_key(read)}, {"encode", encode_options_in_key(tokenizer, encode)}};
  const nlohmann::json vocabulary = tokenizer_in_key(tokenizer);
  const TemplateTime time = time_in_template(tokenizer.chat_template, encode.clock);
  plan.key_only = {{"tokenizer", vocabulary}, {"day", time.day}};
  if (vocabulary.is_null()) plan.not_cached = "the tokenizer has no file to tell it by";
  if (time.is_finer) plan.not_cached = "the chat template asks for the time of day";
}

}  // namespace

std::shared_ptr<const DpoDataset> prepare_dpo(const TokenizerFolder& tokenizer,
                                              const DpoPrepareOptions& options, Logger& logger) {
  const auto encoder = std::make_shared<const DpoEncoder>(tokenizer, options.encode);
  if (encoder->string_rule() != StringRule::kChatTemplate && !tokenizer.config.eos_token)
    logger.warning("the tokenizer has no eos token: answers of raw text do not end in one");
  RowsPlan<DpoRow> plan{.encode = dpo_row_encoder(encoder, options.read), .workers = options.workers};
  plan.columns = options.encode.columns;
  plan.task = DataTask::kDpo;
  plan.note = [&](std::string_view first) {
    return parse_dpo_example(first, options.encode.columns).is_conversation()
               ? "conversations went through the chat template"
               : rule_text(encoder->string_rule());
  };
  add_key(plan, tokenizer, options.read, options.encode);
  auto [table, origin] = prepare_rows(options.read, plan, logger);
  return std::make_shared<DpoDataset>(std::move(table), std::move(origin));
}

std::shared_ptr<const SftDataset> prepare_sft(const TokenizerFolder& tokenizer,
                                              const SftPrepareOptions& options, Logger& logger) {
  const auto encoder = std::make_shared<const SftEncoder>(tokenizer, options.encode);
  for (const std::string& warning : encoder->warnings()) logger.warning(warning);
  RowsPlan<SftRow> plan{.encode = sft_row_encoder(encoder, options.read), .workers = options.workers};
  plan.columns = options.encode.columns;
  plan.task = options.encode.task == SftTask::kPretrain ? DataTask::kPretrain : DataTask::kChat;
  plan.note = [&](std::string_view) { return encoder->rule_text(); };
  add_key(plan, tokenizer, options.read, options.encode);
  auto [table, origin] = prepare_rows(options.read, plan, logger);
  return std::make_shared<SftDataset>(std::move(table), std::move(origin));
}

}  // namespace apus::data
