#include "apus/data/prepare.h"

#include <memory>
#include <utility>

#include "apus/base/log.h"
#include "apus/data/dpo_rows_json.h"
#include "data/prepare_rows.h"

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

/// The line of a file as it stands there.
std::string_view text_of_line(const JsonlFile& file, int64_t line) {
  int64_t index = 0;
  while (file.line(index) != line) ++index;
  return file.row(index);
}

/// Which rule made tokens of the first row.
std::string note_of(const std::vector<JsonlFile>& files, const RowPlace& first, StringRule rule) {
  const JsonlFile& file = files[static_cast<size_t>(first.file)];
  return parse_dpo_example(text_of_line(file, first.line)).is_conversation()
             ? "conversations went through the chat template"
             : rule_text(rule);
}

void add_options(Hash64& hash, const TokenizerFolder& tokenizer, const DpoEncodeOptions& options) {
  add_text(hash, tokenizer.chat_template.value_or(""));
  add_number(hash, options.use_chat_template ? 1 : 0);
  add_number(hash, options.system ? 1 : 0);
  add_text(hash, options.system.value_or(""));
}

void add_row(Hash64& hash, const DpoRow& row) {
  add_ids(hash, row.prompt_ids);
  add_ids(hash, row.chosen_ids);
  add_ids(hash, row.rejected_ids);
  add_number(hash, row.chosen_prompt_begin);
  add_number(hash, row.rejected_prompt_begin);
}

}  // namespace

std::shared_ptr<const DpoDataset> prepare_dpo(const TokenizerFolder& tokenizer,
                                              const DpoPrepareOptions& options, Logger& logger) {
  APUS_CHECK(options.workers >= 1, ConfigError, "workers is ", options.workers, ", expected 1 or more");
  const DpoEncoder encoder(tokenizer, options.encode);
  if (encoder.string_rule() != StringRule::kChatTemplate && !tokenizer.config.eos_token)
    logger.warning("the tokenizer has no eos token: answers of raw text do not end in one");
  Hash64 hash;
  DatasetOrigin origin;
  const std::vector<JsonlFile> files = open_files(options.read, origin, hash, logger);
  add_options(hash, tokenizer, options.encode);
  const RowMaker<DpoRow> make = [&](std::string_view text) {
    RowOutcome<DpoRow> outcome{.row = encoder.encode_line(text)};
    const RowFit fit = fit_dpo_row(outcome.row, options.read.max_length, options.read.truncation);
    outcome.truncated = fit == RowFit::kTruncated;
    return outcome;
  };
  std::vector<DpoRow> rows = make_rows(files, options.read, options.workers, make, origin.report);
  finish_report(options.read, origin, logger);
  for (const DpoRow& row : rows) add_row(hash, row);
  origin.fingerprint = to_hex(hash.digest());
  origin.note = note_of(files, rows.front().place, encoder.string_rule());
  return std::make_shared<DpoDataset>(std::move(rows), std::move(origin));
}

}  // namespace apus::data
