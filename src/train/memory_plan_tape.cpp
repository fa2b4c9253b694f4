#include "train/memory_plan_tape.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "train/memory_plan_projection.h"

namespace apus::train {
namespace {

using parallel::Recompute;

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

bool trains_norm(const UnitShape& unit, std::string_view module) {
  return projection(unit, module).trains;
}

bool has_module(const UnitShape& unit, std::string_view module) {
  const std::string inside = "." + std::string(module) + ".";
  return std::ranges::any_of(unit.parameters, [&](const ParameterShape& parameter) {
    return parameter.name.find(inside) != std::string::npos;
  });
}

int64_t trainable_elements(const UnitShape& unit) {
  int64_t sum = 0;
  for (const ParameterShape& parameter : unit.parameters) sum += parameter.trainable ? parameter.numel() : 0;
  return sum;
}

/// A gated decoder block: the sizes of its tensors, and which of them the tape keeps.
class DecoderTape {
 public:
  DecoderTape(const UnitShape& block, const PassSizes& pass, Recompute recompute)
      : pass_(pass),
        light_(recompute == Recompute::kPartial),
        q_(projection(block, "q_proj")),
        k_(projection(block, "k_proj")),
        v_(projection(block, "v_proj")),
        o_(projection(block, "o_proj")),
        gate_(projection(block, "gate_proj")),
        up_(projection(block, "up_proj")),
        down_(projection(block, "down_proj")),
        norms_heads_(has_module(block, "q_norm")),
        trains_norm1_(trains_norm(block, "input_layernorm")),
        trains_norm2_(trains_norm(block, "post_attention_layernorm")),
        trains_head_norm_(trains_norm(block, "q_norm")),
        s_(size_of(pass.dtype)),
        t_(pass.batch.tokens),
        m_(rows_behind(pass)) {
    const bool normed1 = pass.input_needs_grad || trains_norm1_;
    attends_ = normed1 || q_.trains || k_.trains || v_.trains;
    sums_ = attends_ || o_.trains || pass.input_needs_grad;
    normed2_ = sums_ || trains_norm2_;
    gates_ = normed2_ || gate_.trains || up_.trains;
    normed1_ = normed1;
    heads_ = pass.attention_heads > 0 ? pass.attention_heads : std::max<int64_t>(1, q_.out / 128);
  }

  bool is_known() const { return q_.in > 0 && k_.in > 0 && o_.in > 0 && gate_.in > 0 && down_.in > 0; }

  BlockCost cost(const UnitShape& block) const {
    BlockCost result{.kept = norm1() + attention() + norm2() + mlp() + adapters(),
                     .plain = plain(),
                     .gradients = trainable_elements(block) * gradient_size(),
                     .trains = trainable_elements(block) > 0};
    const int64_t made_again = light_ ? wide() : 0;  // the activation's own input, while it is made
    result.recording = result.kept + std::max(4 * hidden(), made_again + 3 * hidden());
    result.backward = {{result.kept + mlp_backward(), down_.gradients * gradient_size()},
                       {norm1() + attention() + attention_backward(), late_gradients()},
                       {norm1() + norm_backward(), result.gradients}};
    return result;
  }

 private:
  int64_t gradient_size() const {
    return std::max(s_, size_of(pass_.adapter_dtype));  // equal but for adapters beside another dtype
  }
  int64_t hidden() const { return t_ * pass_.hidden_size * s_; }         // [T, D]
  int64_t hidden_behind() const { return m_ * pass_.hidden_size * s_; }  // [M, D]
  int64_t wide() const { return m_ * gate_.out * s_; }                   // [M, F]
  int64_t query() const { return t_ * q_.out * s_; }                     // [T, N H]
  int64_t key() const { return t_ * k_.out * s_; }                       // [T, K H]
  bool spreads() const { return q_.out != k_.out; }
  /// The fp32 copy that a norm makes of `elements` in another dtype.
  int64_t widened(int64_t elements) const { return s_ < 4 ? 4 * elements : 0; }

  /// What a norm over `rows` rows of `elements` in all keeps: the fp32 input where it is a copy, the scales,
  /// and the normed values where the weight wants a gradient.
  int64_t norm_tape(int64_t elements, int64_t rows, bool trains) const {
    return widened(elements) + 4 * rows + (trains ? elements * s_ : 0);
  }

  int64_t norm1() const {
    const bool keeps = q_.keeps_input() || k_.keeps_input() || v_.keeps_input();
    if (light_ && normed1_) return 0;
    return (normed1_ ? norm_tape(t_ * pass_.hidden_size, t_, trains_norm1_) : 0) + (keeps ? hidden() : 0);
  }

  int64_t attention() const {
    const bool joins = pass_.batch.packed && pass_.batch.sequences > 1;
    const int64_t read = pass_.reads_few ? m_ * q_.out * s_ : query();  // what o_proj reads
    const int64_t joined = (joins || pass_.reads_few) && o_.keeps_input() ? read : 0;
    if (!attends_) return o_.keeps_input() ? read : 0;
    int64_t bytes =
        query() + (spreads() ? 2 * query() : 2 * key());  // rotated q; k and v as attention reads them
    bytes += query() + 4 * t_ * heads_ + joined;          // output, log-sum-exp
    if (!norms_heads_) return bytes;
    const int64_t elements = t_ * (q_.out + k_.out);
    if (light_) return bytes + elements * s_;  // q and k before their norms
    const int64_t rows = t_ * heads_ * (q_.out + k_.out) / q_.out;
    return bytes + norm_tape(elements, rows, trains_head_norm_) + (s_ == 4 ? elements * s_ : 0);
  }

  int64_t norm2() const {
    if (!normed2_) return gate_.keeps_input() || up_.keeps_input() ? hidden_behind() : 0;
    if (light_) return hidden_behind();
    const int64_t sum = s_ == 4 ? hidden_behind() : 0;  // in another dtype the fp32 copy stands for it
    return sum + norm_tape(m_ * pass_.hidden_size, m_, trains_norm2_) +
           (gate_.keeps_input() || up_.keeps_input() ? hidden_behind() : 0);
  }

  int64_t mlp() const {
    if (!gates_) return down_.keeps_input() ? wide() : 0;
    if (light_) return 2 * wide();
    return 3 * wide() + (down_.keeps_input() ? wide() : 0);  // gate, silu(gate), up; their product
  }

  /// [T, r] (behind attention [M, r]) of each adapter, and its input where it computes in another dtype.
  int64_t adapters() const {
    int64_t bytes = 0;
    const bool converts = pass_.adapter_dtype != pass_.dtype;
    const auto add = [&](const ProjectionShape& shape, int64_t rows) {
      if (shape.rank == 0) return;
      bytes += rows * (shape.rank + (converts ? shape.in : 0)) * size_of(pass_.adapter_dtype);
    };
    for (const ProjectionShape* shape : {&q_, &k_, &v_}) add(*shape, t_);
    for (const ProjectionShape* shape : {&o_, &gate_, &up_, &down_}) add(*shape, m_);
    return bytes;
  }

  int64_t plain() const {
    const int64_t norms = s_ == 4 ? 2 * hidden() : 2 * widened(t_ * pass_.hidden_size);
    const int64_t rotating = 5 * query() + 2 * key();
    const int64_t attending = 3 * query() + 3 * key() + (spreads() ? 2 * query() : 0);
    return std::max({norms, hidden() + std::max(rotating, attending), 3 * hidden_behind() + 4 * wide()});
  }

  /// At the product of gate and up, whose gradients are two more of [T, F] beside that of the product.
  int64_t mlp_backward() const {
    if (!gates_) return wide();
    if (light_) return 6 * wide();  // dropped values made anew: the product twice, silu(gate)
    return down_.keeps_input() ? 2 * wide() : 3 * wide();
  }

  /// At attention itself: gradients of its output, and of q, k and v as it reads them.
  int64_t attention_backward() const {
    if (!attends_) return 2 * hidden();
    return 2 * hidden() + query() + (spreads() ? 3 * query() : query() + 2 * key());
  }

  int64_t norm_backward() const { return hidden() + 5 * 4 * t_ * pass_.hidden_size; }

  int64_t late_gradients() const {
    const int64_t elements = gate_.gradients + up_.gradients + down_.gradients + o_.gradients;
    return elements * gradient_size();
  }

  PassSizes pass_;
  bool light_;
  ProjectionShape q_, k_, v_, o_, gate_, up_, down_;
  bool norms_heads_, trains_norm1_, trains_norm2_, trains_head_norm_;
  int64_t s_, t_, m_;
  int64_t heads_ = 1;
  bool normed1_ = false, attends_ = false, sums_ = false, normed2_ = false, gates_ = false;
};

/// A block of unknown making: every matrix keeps its input and its output, and two norms their tape.
BlockCost unknown_block(const UnitShape& block, const PassSizes& pass) {
  const int64_t s = size_of(pass.dtype), t = pass.batch.tokens;
  const int64_t hidden = t * pass.hidden_size * s;
  int64_t kept = 2 * (hidden + (s < 4 ? 4 * t * pass.hidden_size : 0)), widest = hidden;
  for (const ParameterShape& parameter : block.parameters) {
    if (parameter.sizes.size() != 2) continue;
    kept += t * (parameter.sizes[0] + (parameter.trainable ? parameter.sizes[1] : 0)) * s;
    widest = std::max(widest, t * parameter.sizes[0] * s);
  }
  const int64_t gradients = trainable_elements(block) * s;
  return {.kept = kept,
          .plain = 4 * hidden + 4 * widest,
          .recording = kept + 4 * hidden,
          .backward = {{kept + 2 * widest, gradients / 2}, {kept / 2 + 4 * hidden, gradients}},
          .gradients = gradients,
          .trains = gradients > 0};
}

}  // namespace

BlockCost block_cost(const UnitShape& block, const PassSizes& pass, Recompute recompute) {
  const DecoderTape tape(block, pass, recompute);
  return tape.is_known() ? tape.cost(block) : unknown_block(block, pass);
}

HeadCost head_cost(const UnitShape& head, const PassSizes& pass, int64_t vocab_size, int64_t chunk) {
  const int64_t s = size_of(pass.dtype), m = pass.batch.targets, d = pass.hidden_size;
  const int64_t rows = std::min(chunk, m);
  const int64_t hidden = m * d * s, norm_copy = s < 4 ? 4 * m * d : 0;
  bool trains_weight = false, trains_norm = false;
  int64_t weight = 0;
  for (const ParameterShape& parameter : head.parameters) {
    const bool is_matrix = parameter.sizes.size() == 2;
    (is_matrix ? trains_weight : trains_norm) |= parameter.trainable;
    if (is_matrix) weight = std::max(weight, parameter.numel());  // an adapter's copy replaces the base's
  }
  const bool input_grad = pass.input_needs_grad || trains_norm;
  HeadCost cost;
  cost.trains = trains_weight || trains_norm;
  cost.gradients = trainable_elements(head) * s;
  const int64_t copied = pass.reads_few ? 0 : hidden;
  cost.kept =
      copied + 8 * m + (trains_weight ? 4 * m : 0);  // the rows; log-probabilities, and targets' places
  if (input_grad) cost.kept += norm_copy + 4 * m + (trains_norm ? hidden : 0) + hidden;
  if (trains_weight) cost.kept += hidden;
  const int64_t logits = 8 * rows * vocab_size;  // one chunk in fp32, and once more inside log-sum-exp
  cost.plain = copied + hidden + logits + 8 * m;
  cost.recording = cost.kept + (trains_weight ? 0 : hidden) + logits;
  const int64_t scaled = input_grad ? hidden : 0;
  if (trains_weight) {
    const int64_t chunks = (4 + (s < 4 ? s : 0)) * rows * vocab_size + (s < 4 ? 4 * rows * d : 0);
    cost.weight_sum = 4 * weight + std::max(chunks, s < 4 ? s * weight : 0);
  }
  cost.backward = cost.kept + scaled + std::max(cost.weight_sum, 5 * 4 * m * d);
  return cost;
}

}  // namespace apus::train
