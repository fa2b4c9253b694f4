#include "train/memory_plan_walk.h"

#include <algorithm>

#include "apus/base/error.h"
#include "apus/ops/token_log_probs.h"
#include "train/memory_plan_fused.h"
#include "train/memory_plan_projection.h"

namespace apus::train {
namespace {

using parallel::Recompute;
using Pass = GatherWalk::Pass;

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

BatchSizes batch_of(const RowProfile& rows, int64_t micro_batch_rows) {
  const int64_t tokens = rows.packed ? rows.longest_row : rows.sequences * rows.longest;
  return {.sequences = micro_batch_rows * rows.sequences,
          .tokens = micro_batch_rows * tokens,
          .targets = micro_batch_rows * rows.longest_trained,
          .longest = rows.longest,
          .packed = rows.packed};
}

/// Without adapters, frozen.
ModelShape plain_copy(ModelShape model) {
  for (UnitShape& unit : model.units) {
    std::erase_if(unit.parameters, [](const ParameterShape& parameter) {
      return parameter.name.find(".lora_") != std::string::npos;
    });
    for (ParameterShape& parameter : unit.parameters) parameter.trainable = false;
  }
  return model;
}

bool trains(const UnitShape& unit) {
  return std::ranges::any_of(unit.parameters,
                             [](const ParameterShape& parameter) { return parameter.trainable; });
}

int shard_ranks(const PlanInput& input) {
  const int replicas = input.engine.policy.replicate;
  APUS_CHECK(replicas >= 1 && input.world >= replicas && input.world % replicas == 0, ConfigError, "policy ",
             input.engine.policy.name, " keeps ", replicas, " copies, which do not divide the ", input.world,
             " ranks");
  input.engine.policy.check(input.world / replicas, replicas);
  return input.world / replicas;
}

PlanInput checked(const PlanInput& input) {
  APUS_CHECK(input.model.units.size() >= 3 && input.model.hidden_size > 0 && input.model.vocab_size > 0,
             ConfigError, "a plan needs the model's sizes: embedding, at least one block, head");
  APUS_CHECK(input.rows.longest > 0 && input.micro_batch_rows > 0 && input.accumulation > 0, ConfigError,
             "a plan needs rows: the longest has ", input.rows.longest, " tokens, a micro-batch ",
             input.micro_batch_rows, " rows, a step ", input.accumulation, " micro-batches");
  return input;
}

}  // namespace

PlanWalk::PlanWalk(const PlanInput& input)
    : input_(checked(input)),
      ranks_(shard_ranks(input_)),
      placed_(place_model(input_, ranks_)),
      reference_(place_reference(input_, ranks_)),
      reference_model_(plain_copy(input_.model)),
      host_(input_.device, ledger_),
      gradients_(input_, placed_, ranks_, ledger_),
      gather_(input_, placed_, ranks_, ledger_),
      reference_gather_(input_, reference_, ranks_, ledger_),
      batch_(batch_of(input_.rows, input_.micro_batch_rows)) {
  cost_blocks();
}

std::vector<PhasePlan> PlanWalk::run() {
  load();
  ledger_.begin(PlanPhase::kStep);
  step();
  step();  // what the first one left (slots, whole gradients) is there now
  end_phase();
  update();
  if (input_.eval_batch_rows > 0) evaluate();
  save();
  return phases_;
}

void PlanWalk::end_phase() {
  phases_.push_back(ledger_.phase());
}

parallel::Recompute PlanWalk::recompute_of(size_t block) const {
  const auto& chosen = input_.engine.recompute_blocks;
  if (!chosen) return input_.engine.recompute;
  const bool in = std::ranges::find(*chosen, static_cast<int64_t>(block)) != chosen->end();
  return in ? input_.engine.recompute : Recompute::kNone;
}

/// As parallel::ShardedModel::forward_read.
bool PlanWalk::reads_few(const BatchSizes& batch) const {
  return input_.engine.skip_unread_rows && batch.targets > 0 && 8 * batch.targets <= 7 * batch.tokens;
}

PassSizes PlanWalk::pass_sizes(const BatchSizes& batch, bool input_needs_grad, size_t unit) const {
  at::ScalarType adapter = input_.engine.compute_dtype.value_or(input_.dtype);
  if (!input_.engine.compute_dtype) {
    for (const ParameterShape& parameter : input_.model.units[1].parameters) {
      if (parameter.name.find(".lora_A.") != std::string::npos) adapter = parameter.dtype;
    }
  }
  return {.batch = batch,
          .dtype = input_.dtype,
          .adapter_dtype = adapter,
          .hidden_size = input_.model.hidden_size,
          .attention_heads = input_.model.attention_heads,
          .input_needs_grad = input_needs_grad,
          .reads_few = unit + 2 >= input_.model.units.size() && reads_few(batch),
          .has_homes = placed_.has_homes,
          .deterministic = input_.engine.deterministic,
          .scale_known = input_.reference == PlanReference::kNone};
}

BlockCost PlanWalk::cost_of(const UnitShape& block, const PassSizes& pass, Recompute recompute) const {
  const bool fused = on_card() && is_fused_decoder(block);
  return fused ? fused_block_cost(block, pass, recompute) : block_cost(block, pass, recompute);
}

HeadCost PlanWalk::head_cost_of(const UnitShape& head, const PassSizes& pass) const {
  const int64_t vocab_size = input_.model.vocab_size;
  int64_t chunk = input_.engine.head_chunk_tokens;
  if (!on_card()) return head_cost(head, pass, vocab_size, chunk);
  if (chunk == 0 && input_.card_bytes) {
    const int64_t row_bytes = vocab_size * size_of(pass.dtype);
    chunk = std::max<int64_t>(1, ops::gpu_logit_bytes(*input_.card_bytes) / row_bytes);
  }
  return fused_head_cost(head, pass, vocab_size, chunk);
}

void PlanWalk::cost_blocks() {
  const std::vector<UnitShape>& units = input_.model.units;
  bool needs = trains(units.front());
  Recompute last = Recompute::kNone;
  for (size_t unit = 1; unit + 1 < units.size(); ++unit) {
    Recompute recompute = recompute_of(unit - 1);
    if (recompute == Recompute::kBlock) recompute = Recompute::kNone;
    const PassSizes pass = pass_sizes(batch_, needs, unit);
    const bool again = unit > 1 && needs == needs_grad_.back() && recompute == last && !pass.reads_few &&
                       alike(units[unit], units[unit - 1]);
    needs_grad_.push_back(needs);
    costs_.push_back(again ? costs_.back() : cost_of(units[unit], pass, recompute));
    last = recompute;
    needs = needs || costs_.back().trains;
  }
  needs_grad_.push_back(needs);
  head_ = head_cost_of(units.back(), pass_sizes(batch_, needs, units.size() - 1));
}

int64_t PlanWalk::hidden_bytes(const BatchSizes& batch) const {
  return batch.tokens * input_.model.hidden_size * size_of(input_.dtype);
}

/// Ids and positions, targets with their rows and sequences, of all micro-batches of a step and those that
/// are made ahead (on a card: of the one that runs and the next); and one pass's rotary tables.
int64_t PlanWalk::batch_bytes() const {
  constexpr int64_t kHeadDim = 128;
  const int64_t one = batch_.tokens * 16 + batch_.targets * 24;
  return (on_card() ? 2 : input_.accumulation + input_.batches_ahead) * one +
         2 * batch_.tokens * kHeadDim * size_of(input_.dtype);
}

int64_t PlanWalk::mapped_bytes() const {
  const bool mapped = input_.device == PlanDevice::kHost && input_.mapped_weights;
  return mapped ? placed_.frozen_bytes : 0;
}

void PlanWalk::step() {
  const Held batches(ledger_, PlanTerm::kBatches, batch_bytes());
  if (input_.accumulation > 1) micro_batch(false);
  if (input_.accumulation > 2) micro_batch(false);
  micro_batch(true);
  gather_.reset();
  gradients_.reset();
}

void PlanWalk::micro_batch(bool last) {
  reference_pass(batch_);
  forward();
  backward(last);
}

void PlanWalk::reference_pass(const BatchSizes& batch) {
  if (input_.reference == PlanReference::kSameModel) plain_pass(batch, input_.model, gather_);
  if (input_.reference == PlanReference::kSecondModel) plain_pass(batch, reference_model_, reference_gather_);
}

/// A pass without tape: two blocks' hidden rows, and what runs.
void PlanWalk::plain_pass(const BatchSizes& batch, const ModelShape& model, GatherWalk& gather) {
  const Held hidden(ledger_, PlanTerm::kActivations, hidden_bytes(batch));
  gather.begin(0, Pass::kPlain);
  gather.end(0, Pass::kPlain);
  const size_t head = model.units.size() - 1;
  int64_t plain = 0;
  for (size_t unit = 1; unit < head; ++unit) {
    gather.begin(unit, Pass::kPlain);
    const PassSizes pass = pass_sizes(batch, false, unit);
    if (unit == 1 || pass.reads_few || !alike(model.units[unit], model.units[unit - 1]))
      plain = cost_of(model.units[unit], pass, Recompute::kNone).plain;
    ledger_.spike(PlanTerm::kActivations, plain);
    gather.end(unit, Pass::kPlain);
  }
  gather.begin(head, Pass::kPlain);
  ledger_.spike(PlanTerm::kHead, head_cost_of(model.units[head], pass_sizes(batch, false, head)).plain);
  gather.end(head, Pass::kPlain);
}

void PlanWalk::hold_hidden(int64_t rows) {
  hold_bytes(rows * hidden_bytes(batch_));
}

void PlanWalk::hold_bytes(int64_t bytes) {
  ledger_.hold(PlanTerm::kActivations, bytes);
  hidden_ += bytes;
}

/// What the last block made is the head's alone: no tape below keeps it.
bool PlanWalk::heads_alone() const {
  return recorded_.empty() || recorded_.back().again;
}

/// Of what the head reads, where that is not a copy of its own.
int64_t PlanWalk::read_bytes() const {
  return reads_few(batch_) ? output_bytes(input_.model.units.size() - 2) : 0;
}

/// Of a block's output, and of its gradient.
int64_t PlanWalk::output_bytes(size_t unit) const {
  const bool few = unit + 2 == input_.model.units.size() && reads_few(batch_);
  return few ? batch_.targets * input_.model.hidden_size * size_of(input_.dtype) : hidden_bytes(batch_);
}

/// As parallel::BlockRunner: what a recomputed block keeps waits on the host, but the last one's.
bool PlanWalk::stores(size_t unit, bool again) const {
  return again && input_.engine.activations == memory::Residency::kHost &&
         unit + 2 < input_.model.units.size();
}

void PlanWalk::store_input(Recorded& recorded) {
  recorded.stored = true;
  if (++stored_ <= buffers_) return;
  ++buffers_;
  host_.hold(PlanTerm::kActivations, hidden_bytes(batch_));
}

/// The next unit begins: the input that was stored last leaves the device, unless a tape below holds it too.
void PlanWalk::let_go() {
  if (recorded_.empty() || !recorded_.back().stored || recorded_.back().is_away) return;
  Recorded& last = recorded_.back();
  const bool on_tape = recorded_.size() > 1 ? !recorded_[recorded_.size() - 2].again
                                            : last.unit == 1 && trains(input_.model.units.front());
  last.is_away = true;
  if (!on_tape) hold_hidden(-1);
}

void PlanWalk::bring_back(Recorded& recorded) {
  if (!recorded.stored) return;
  if (recorded.is_away) hold_hidden(1);
  recorded.stored = recorded.is_away = false;
  --stored_;
}

void PlanWalk::forward() {
  const size_t head = input_.model.units.size() - 1;
  const Pass embedding = trains(input_.model.units.front()) ? Pass::kTaped : Pass::kPlain;
  gather_.begin(0, embedding);
  hold_hidden(1);
  gather_.end(0, embedding);
  for (size_t unit = 1; unit < head; ++unit) {
    const BlockCost& cost = costs_[unit - 1];
    const bool needs = needs_grad_[unit - 1];
    const bool records = needs || cost.trains;
    const bool again = recompute_of(unit - 1) == Recompute::kBlock;
    const Pass pass = records ? Pass::kTaped : Pass::kPlain;
    gather_.begin(unit, pass);
    if (records) {
      let_go();
      recorded_.push_back({unit, &cost, again, needs});
      if (stores(unit, again)) store_input(recorded_.back());
    }
    ledger_.spike(PlanTerm::kActivations, records && !again ? cost.recording : cost.plain);
    if (records) {
      hold_bytes(output_bytes(unit));
      if (!again) ledger_.hold(PlanTerm::kActivations, cost.kept);
    }
    gather_.end(unit, pass);
  }
  gather_.begin(head, Pass::kTaped);
  let_go();
  // Where each row's factor is known, the head's weight gradient is made with the logits.
  if (on_card() && head_.trains && input_.reference == PlanReference::kNone) gradients_.open(head);
  ledger_.spike(PlanTerm::kHead, head_.recording);
  ledger_.hold(PlanTerm::kHead, head_.kept);
  gather_.end(head, Pass::kTaped);
  // Nobody keeps the last block's output if its input alone is kept, but a head that reads all of it.
  if (heads_alone())
    hold_bytes(read_bytes() - (recorded_.empty() ? hidden_bytes(batch_) : output_bytes(head - 1)));
}

void PlanWalk::backward(bool last) {
  const size_t head = input_.model.units.size() - 1;
  gradients_.begin_backward(last);
  gather_.begin(head, Pass::kBackward);
  if (on_card() && head_.trains) gradients_.open(head);
  ledger_.spike(PlanTerm::kHead, head_.backward - head_.kept);
  gather_.end(head, Pass::kBackward);
  ledger_.drop(PlanTerm::kHead, head_.kept);
  gradients_.add(head, head_.gradients);
  if (heads_alone()) hold_bytes(-read_bytes());
  hold_bytes(output_bytes(head - 1));  // the gradient of the last block's output
  for (; !recorded_.empty(); recorded_.pop_back()) {
    bring_back(recorded_.back());
    if (recorded_.size() > 1) bring_back(recorded_[recorded_.size() - 2]);
    block_backward(recorded_.back());
  }
  const UnitShape& embedding = input_.model.units.front();
  if (trains(embedding)) {
    int64_t elements = 0;
    for (const ParameterShape& parameter : embedding.parameters) elements += parameter.numel();
    gather_.begin(0, Pass::kBackward);
    if (on_card()) gradients_.open(0);
    gradients_.add(0, on_card() ? 0 : elements * size_of(input_.dtype));
    gather_.end(0, Pass::kBackward);
  }
  hold_bytes(-hidden_);
  gradients_.finish_backward(last);
}

/// The gradient of its output is there; that of its input replaces it.
void PlanWalk::block_backward(const Recorded& recorded) {
  const BlockCost& cost = *recorded.cost;
  gather_.begin(recorded.unit, Pass::kBackward);
  if (recorded.again) {
    ledger_.spike(PlanTerm::kActivations, cost.recording);
    ledger_.hold(PlanTerm::kActivations, cost.kept);
    hold_bytes(output_bytes(recorded.unit));
  }
  if (on_card() && cost.trains) gradients_.open(recorded.unit);
  for (const BackwardMoment& moment : cost.backward) {
    ledger_.hold(PlanTerm::kActivations, moment.activations - cost.kept);
    ledger_.spike(PlanTerm::kGradients, moment.gradients);
    ledger_.drop(PlanTerm::kActivations, moment.activations - cost.kept);
  }
  ledger_.drop(PlanTerm::kActivations, cost.kept);
  // Its output and that one's gradient go, the input's gradient comes, and an input that was kept goes.
  hold_bytes(hidden_bytes(batch_) - 2 * output_bytes(recorded.unit));
  if (recorded.again) hold_hidden(-1);
  gather_.end(recorded.unit, Pass::kBackward);
  gradients_.add(recorded.unit, cost.gradients);
}

void PlanWalk::evaluate() {
  ledger_.begin(PlanPhase::kEvaluation);
  const BatchSizes batch = batch_of(input_.rows, input_.eval_batch_rows);
  reference_pass(batch);
  plain_pass(batch, input_.model, gather_);
  end_phase();
}

}  // namespace apus::train
