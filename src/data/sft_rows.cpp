#include "apus/data/sft_rows.h"

#include <algorithm>
#include <utility>

#include "apus/base/error.h"
#include "apus/data/conversation.h"
#include "apus/data/row_notes.h"
#include "apus/data/rows_report.h"
#include "data/row_encoding.h"
#include "data/row_json.h"
#include "data/row_renderer.h"
#include "data/token_labels.h"
#include "data/tool_notes.h"
#include "data/turn_marks.h"
#include "data/turn_spans.h"

namespace apus::data {
namespace {

using Json = nlohmann::ordered_json;

std::vector<size_t> turns_of(const Conversation& conversation) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.is_turn(i)) turns.push_back(i);
  return turns;
}

/// What each turn counts, in order.
std::vector<float> turn_weights(const Conversation& conversation, const std::vector<size_t>& turns,
                                LossScale scale) {
  std::vector<float> weights;
  for (const size_t turn : turns) {
    const TurnWeight& weight = conversation.weights[turn];
    const bool is_passed_over = scale == LossScale::kLastRound && !weight.is_given && turn != turns.back();
    weights.push_back(is_passed_over ? 0.0f : weight.value);
  }
  return weights;
}

/// Notes calls and tools that the text lacks; each turn's calls must stand in its own span, where it has one.
void note_text(const Conversation& conversation, std::string_view text, const std::vector<LabelSpan>& spans,
               RowNotes& notes) {
  note_tools(conversation.tools, text, notes);
  const std::vector<size_t> turns = turns_of(conversation);
  for (size_t k = 0; k < turns.size(); ++k) {
    const bool has_span = spans.size() == turns.size();
    const std::string_view part =
        has_span ? text.substr(spans[k].begin, spans[k].end - spans[k].begin) : text;
    note_calls(conversation.messages[turns[k]], part, notes);
  }
}

bool gives_weights(const Conversation& conversation) {
  return std::ranges::any_of(conversation.weights, &TurnWeight::is_given);
}

std::string rule_of(const SftEncodeOptions& options, const std::optional<ChatTemplate>& chat, bool has_eos) {
  const std::string texts =
      has_eos ? "texts are trained whole, with eos at their end" : "texts are trained whole";
  if (options.task == SftTask::kPretrain) return texts;
  if (!chat) return texts + "; conversations are refused, as the tokenizer has no chat template";
  if (options.loss_scale == LossScale::kAll)
    return "conversations go through the chat template and are trained whole";
  const std::string turns =
      options.loss_scale == LossScale::kLastRound ? "the last answer is" : "the assistant's turns are";
  return "conversations go through the chat template; " + turns + " trained, found " +
         (chat->jinja().has_generation_blocks() ? "by its generation blocks"
                                                : "by rendering what stands before and through each");
}

}  // namespace

LossScale parse_loss_scale(const std::string& name, const std::string& flag) {
  if (name == "default") return LossScale::kDefault;
  if (name == "last_round") return LossScale::kLastRound;
  if (name == "all") return LossScale::kAll;
  throw NotSupported(flag + " " + name + " is not supported yet; use default, last_round or all");
}

struct SftEncoder::State {
  State(TokenizerFolder given_folder, SftEncodeOptions given_options);

  SftRow encode_text(const std::string& text, float weight) const;
  SftRow encode_pretrain(const Conversation& conversation) const;
  SftRow encode_chat(const Conversation& conversation, RowNotes& notes) const;
  /// Whichever of these the row asks for.
  SftRow encode_tokens(Conversation& conversation, RowNotes& notes) const;
  RowRenderer renderer(const Conversation& conversation) const {
    return {*chat, conversation.tools, options.template_kwargs, options.clock};
  }
  /// The row's text and the spans of its turns.
  std::string render_blocks(const Conversation& conversation, std::vector<LabelSpan>& spans) const;
  std::string render_turns(const Conversation& conversation, std::vector<LabelSpan>& spans) const;

  TokenizerFolder folder;
  SftEncodeOptions options;
  std::optional<ChatTemplate> chat;
  TurnMarks marks;
  std::string rule;
  std::vector<std::string> warnings;
};

SftEncoder::State::State(TokenizerFolder given_folder, SftEncodeOptions given_options)
    : folder(std::move(given_folder)), options(std::move(given_options)) {
  check_template_kwargs(options.template_kwargs);
  if (options.task == SftTask::kChat) chat = chat_template_of(folder);
  APUS_CHECK(!options.system || chat, ConfigError, "--system needs a chat template to put it in, but ",
             options.task == SftTask::kPretrain ? "pre-training uses none" : "the tokenizer has none");
  rule = rule_of(options, chat, folder.eos_id.has_value());
  if (!folder.eos_id) warnings.push_back("the tokenizer has no eos token: texts do not end in one");
  if (!chat) return;
  marks = learn_turn_marks(*chat, options.template_kwargs, options.clock);
  const bool has_blocks = chat->jinja().has_generation_blocks();
  if (has_blocks && !marks.end_of_turn.empty() &&
      blocks_leave_end_out(*chat, options.template_kwargs, options.clock, marks.end_of_turn))
    warnings.push_back("the chat template's generation blocks leave out '" + marks.end_of_turn +
                       "', which ends a turn: it stays untrained, and the model may not learn to stop");
  if (!has_blocks && marks.end_of_turn.empty())
    warnings.push_back("the chat template writes nothing after an answer, so no conversation can be trained");
}

SftRow SftEncoder::State::encode_text(const std::string& text, float weight) const {
  std::vector<int32_t> ids = row_tokens(*folder.tokenizer, text, {});
  if (folder.eos_id && (ids.empty() || ids.back() != *folder.eos_id)) ids.push_back(*folder.eos_id);
  return label_all(std::move(ids), weight);
}

SftRow SftEncoder::State::encode_pretrain(const Conversation& conversation) const {
  const bool is_one_answer = conversation.messages.size() == 1 && conversation.is_turn(0);
  const Json* content = is_one_answer ? find_value(conversation.messages[0], "content") : nullptr;
  if (!content || find_value(conversation.messages[0], "tool_calls"))
    refuse_row("unknown_form", "no text for pre-training",
               detail::concat("the row has ", conversation.messages.size(),
                              " messages; expected {\"text\"} or one assistant message with content"));
  return encode_text(content->get_ref<const std::string&>(), conversation.weights[0].value);
}

std::string SftEncoder::State::render_blocks(const Conversation& conversation,
                                             std::vector<LabelSpan>& spans) const {
  RowRenderer rows = renderer(conversation);
  for (const Json& message : conversation.messages) rows.add(message);
  RenderResult result = rows.render();
  const std::vector<size_t> turns = turns_of(conversation);
  const auto& blocks = result.generation_spans;
  const bool is_one_each = blocks.size() == turns.size();
  if (!is_one_each && (gives_weights(conversation) || options.loss_scale == LossScale::kLastRound))
    refuse_row("generation_blocks", "generation blocks that are not the turns",
               detail::concat(blocks.size(), " blocks for ", turns.size(),
                              " turns, so loss and loss_scale have no place"));
  const auto weights = turn_weights(conversation, turns, options.loss_scale);
  ByteCounter bytes(result.text);
  for (size_t k = 0; k < blocks.size(); ++k) {
    const size_t begin = bytes.before(blocks[k].first);
    spans.push_back({begin, bytes.before(blocks[k].second), is_one_each ? weights[k] : 1.0f});
  }
  return std::move(result.text);
}

std::string SftEncoder::State::render_turns(const Conversation& conversation,
                                            std::vector<LabelSpan>& spans) const {
  const std::vector<size_t> turns = turns_of(conversation);
  RenderedTurns rendered;
  RowRenderer rows = renderer(conversation);
  const size_t count = conversation.messages.size();
  for (size_t i = 0; i < count; ++i) {
    const bool is_turn = conversation.is_turn(i);
    if (is_turn) rendered.turns.push_back({i, rows.try_render(GenerationPrompt::kWith), {}});
    rows.add(conversation.messages[i]);
    if (is_turn && i + 1 < count) rendered.turns.back().through = rows.try_render(GenerationPrompt::kWithout);
  }
  rendered.text = rows.render().text;
  if (conversation.is_turn(count - 1)) rendered.turns.back().through = rendered.text;
  const auto found = locate_turns(rendered, conversation, marks);
  const auto weights = turn_weights(conversation, turns, options.loss_scale);
  for (size_t k = 0; k < found.size(); ++k) spans.push_back({found[k].begin, found[k].end, weights[k]});
  return std::move(rendered.text);
}

SftRow SftEncoder::State::encode_chat(const Conversation& conversation, RowNotes& notes) const {
  std::vector<LabelSpan> spans;
  if (options.loss_scale == LossScale::kAll && !gives_weights(conversation)) {
    RowRenderer rows = renderer(conversation);
    for (const Json& message : conversation.messages) rows.add(message);
    const std::string whole = rows.render().text;
    note_text(conversation, whole, spans, notes);
    return label_all(placed_tokens(*folder.tokenizer, whole).ids, 1.0f);
  }
  const std::string text = chat->jinja().has_generation_blocks() ? render_blocks(conversation, spans)
                                                                 : render_turns(conversation, spans);
  note_text(conversation, text, spans, notes);
  const float elsewhere = options.loss_scale == LossScale::kAll ? 1.0f : 0.0f;
  return label_spans(placed_tokens(*folder.tokenizer, text), spans, elsewhere);
}

SftRow SftEncoder::State::encode_tokens(Conversation& conversation, RowNotes& notes) const {
  if (conversation.text) return encode_text(*conversation.text, 1.0f);
  if (options.task == SftTask::kPretrain) return encode_pretrain(conversation);
  if (!chat)
    refuse_row("no_template", "conversations need a chat template",
               "the tokenizer has none; name one with --template, such as --template chatml");
  if (options.system) set_system(conversation, *options.system);
  return encode_chat(conversation, notes);
}

SftEncoder::SftEncoder(TokenizerFolder folder, SftEncodeOptions options)
    : state_(std::make_unique<const State>(std::move(folder), std::move(options))) {}

SftEncoder::~SftEncoder() = default;

const std::string& SftEncoder::rule_text() const {
  return state_->rule;
}

const std::vector<std::string>& SftEncoder::warnings() const {
  return state_->warnings;
}

SftRow SftEncoder::encode_line(std::string_view text) const {
  RowNotes notes;
  return encode_line(text, notes);
}

SftRow SftEncoder::encode_line(std::string_view text, RowNotes& notes) const {
  Json row = parse_row(text);
  notes.renamed = state_->options.columns.apply(row);
  return this->encode(make_conversation(std::move(row)), notes);
}

SftRow SftEncoder::encode(Conversation conversation) const {
  RowNotes notes;
  return this->encode(std::move(conversation), notes);
}

SftRow SftEncoder::encode(Conversation conversation, RowNotes& notes) const {
  SftRow row = state_->encode_tokens(conversation, notes);
  row.channel = std::move(conversation.channel);
  return row;
}

}  // namespace apus::data
