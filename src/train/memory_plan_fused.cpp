#include "train/memory_plan_fused.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "ops/attention_shape.h"
#include "train/memory_plan_projection.h"

namespace apus::train {
namespace {

using parallel::Recompute;

constexpr int64_t kGemmWorkspace = int64_t{32} << 20;  // ops::gemm's
constexpr int64_t kLogitBytes = int64_t{5} << 29;      // ops::gpu_logit_bytes of a large card
constexpr int64_t kAttentionSlots = 16;                // the smallest class of sequence counts

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Projections that are computed as one, and the room that their home makes.
struct JointShape {
  std::vector<ProjectionShape> parts;

  int64_t in() const { return parts.front().in; }
  int64_t out() const {
    int64_t sum = 0;
    for (const ProjectionShape& part : parts) sum += part.out;
    return sum;
  }
  bool keeps_input() const {
    return std::ranges::any_of(parts, [](const auto& part) { return part.keeps_input(); });
  }
  bool trains() const {
    return std::ranges::any_of(parts, [](const auto& part) { return part.trains; });
  }
  /// A base that is trained has no home.
  bool has_home() const {
    return std::ranges::none_of(parts, [](const auto& part) { return part.trains_weight; });
  }
  /// n r: columns of the inner rows of all parts.
  int64_t inner() const {
    int64_t rank = 0;
    for (const ProjectionShape& part : parts) rank = std::max(rank, part.widest_rank);
    return static_cast<int64_t>(parts.size()) * round_up(rank, 8);
  }
};

std::vector<JointShape> joints_of(const UnitShape& block) {
  const auto joint = [&](const std::vector<std::string_view>& modules) {
    JointShape shape;
    for (const std::string_view module : modules) shape.parts.push_back(projection(block, module));
    return shape;
  };
  return {joint({"q_proj", "k_proj", "v_proj"}), joint({"o_proj"}), joint({"gate_proj", "up_proj"}),
          joint({"down_proj"})};
}

/// A decoder block of fused operations: the sizes of its tensors, and which of them the tape keeps.
class FusedTape {
 public:
  FusedTape(const UnitShape& block, const PassSizes& pass, Recompute recompute)
      : pass_(pass),
        joints_(joints_of(block)),
        light_(recompute == Recompute::kPartial),
        norms_heads_(has_norm(block)),
        s_(size_of(pass.dtype)),
        t_(pass.batch.tokens),
        m_(rows_behind(pass)) {
    const bool normed1 = pass.input_needs_grad || projection(block, "input_layernorm").trains;
    attends_ = normed1 || qkv().trains();
    gates_ = attends_ || output().trains() || projection(block, "post_attention_layernorm").trains ||
             gate_up().trains();
    downs_ = gates_ || down().trains();
    heads_ = pass.attention_heads > 0 ? pass.attention_heads : std::max<int64_t>(1, query_ / 128);
  }

  BlockCost cost() const {
    BlockCost result{.kept = kept(), .plain = kGemmWorkspace + plain()};
    const int64_t made_again = light_ ? normed(qkv(), t_) + normed(gate_up(), m_) + normed(down(), m_) : 0;
    result.recording = kGemmWorkspace + result.kept + made_again + rows(pass_.hidden_size);
    result.backward = {{kGemmWorkspace + mlp_moment(), 0}, {kGemmWorkspace + attention_moment(), 0}};
    return result;
  }

 private:
  static bool has_norm(const UnitShape& block) {
    return std::ranges::any_of(block.parameters, [](const ParameterShape& parameter) {
      return parameter.name.find(".q_norm.") != std::string::npos;
    });
  }

  const JointShape& qkv() const { return joints_[0]; }
  const JointShape& output() const { return joints_[1]; }
  const JointShape& gate_up() const { return joints_[2]; }
  const JointShape& down() const { return joints_[3]; }

  /// T rows of so many elements.
  int64_t rows(int64_t columns) const { return t_ * columns * s_; }
  /// The same of the rows behind attention.
  int64_t behind(int64_t columns) const { return m_ * columns * s_; }
  int64_t room(const JointShape& joint) const {
    return pass_.has_homes && joint.has_home() ? joint.inner() : 0;
  }
  /// Inner rows: in the room beside the input, and apart without a home.
  int64_t inner(const JointShape& joint) const {
    int64_t ranks = 0;
    for (const ProjectionShape& part : joint.parts) ranks += part.rank;
    return room(joint) > 0 ? room(joint) : ranks;
  }
  /// A joint's input with its inner rows, where it is kept.
  int64_t normed(const JointShape& joint, int64_t rows) const {
    return joint.keeps_input() ? rows * (joint.in() + inner(joint)) * s_ : 0;
  }

  /// Of q, k and v as attention reads them.
  int64_t turned() const { return rows(qkv().out()); }
  int64_t stats() const { return 4 * t_ * heads_; }
  int64_t scales() const { return 4 * t_; }

  int64_t norm1() const { return scales() + (light_ ? 0 : normed(qkv(), t_)); }
  int64_t attention() const {
    const int64_t heads = norms_heads_ ? turned() + 2 * stats() : 0;  // q and k before their norms
    const int64_t read = attends_ ? turned() + stats() + heads : 0;
    if (!pass_.reads_few)
      return read + (attends_ || output().keeps_input() ? rows(query_ + inner(output())) : 0);
    return read + (attends_ ? rows(query_) : 0) + normed(output(), m_);
  }
  /// The sum that the second norm reads, and what it makes of it.
  int64_t norm2() const {
    return (gates_ ? behind(pass_.hidden_size) : 0) + 4 * m_ + (light_ ? 0 : normed(gate_up(), m_));
  }
  int64_t mlp() const { return (gates_ ? behind(gate_up().out()) : 0) + (light_ ? 0 : normed(down(), m_)); }
  int64_t kept() const { return norm1() + attention() + norm2() + mlp(); }

  /// Layers hold what their norms made until they return.
  int64_t plain() const {
    const int64_t d = pass_.hidden_size;
    const int64_t first = rows(d + room(qkv()));
    const int64_t attended = pass_.reads_few ? rows(query_) + behind(query_ + room(output()) + 2 * d)
                                             : rows(query_ + room(output()) + d);
    const int64_t attending = first + std::max(2 * turned(), turned() + attended);
    const int64_t second = first + behind(2 * d + room(gate_up()));
    return std::max(attending, second + behind(gate_up().out() + ffn_ + room(down()) + d));
  }

  /// SwiGLU's backward: gate and up, the gradient of their product, and theirs.
  int64_t mlp_moment() const {
    const int64_t below = norm1() + attention() + norm2();
    if (!gates_) return downs_ ? below + mlp() : 0;
    return below + behind(2 * gate_up().out() + ffn_ + room(gate_up()) + room(down()));
  }

  /// Gradients of attention's output and of q, k and v, and cuDNN's workspace.
  int64_t attention_moment() const {
    if (!attends_) return 0;
    const int64_t gradients =
        pass_.reads_few ? rows(query_) + behind(pass_.hidden_size) : rows(query_ + room(output()));
    return norm1() + attention() + gradients + turned() + workspace();
  }

  /// As ops::attention asks for it; in fp32 each sequence has its scores instead.
  int64_t workspace() const {
    const int64_t longest = std::min(pass_.batch.longest, t_);
    if (pass_.dtype == at::kFloat) return 2 * 4 * heads_ * longest * longest;
    const ops::cuda::AttentionSizes sizes{.heads = heads_,
                                          .kv_heads = std::max<int64_t>(1, heads_ * key_ / query_),
                                          .head_dim = query_ / heads_,
                                          .sequences = pass_.batch.sequences,
                                          .slots = std::max(kAttentionSlots, pass_.batch.sequences),
                                          .max_length = longest,
                                          .rows = t_,
                                          .out_stride = query_ + (pass_.reads_few ? 0 : room(output()))};
    const ops::cuda::PlanShape plan =
        pass_.deterministic ? ops::cuda::deterministic_backward_plan(sizes) : ops::cuda::backward_plan(sizes);
    const int64_t scores = pass_.deterministic ? ops::cuda::score_bytes(plan) : 0;
    return 12 * query_ * plan.max_rows + scores;
  }

  PassSizes pass_;
  std::vector<JointShape> joints_;
  bool light_, norms_heads_;
  int64_t s_, t_, m_;
  int64_t query_ = joints_[1].in(), key_ = joints_[0].parts[1].out, ffn_ = joints_[3].in();
  int64_t heads_ = 1;
  bool attends_ = false, gates_ = false, downs_ = false;
};

/// Rows of logits at a time.
int64_t chunk_rows(int64_t chunk, int64_t row_bytes, int64_t targets) {
  return std::min(chunk > 0 ? chunk : std::max<int64_t>(1, kLogitBytes / row_bytes), targets);
}

}  // namespace

bool is_fused_decoder(const UnitShape& block) {
  return std::ranges::all_of(joints_of(block), [](const JointShape& joint) {
    return std::ranges::all_of(joint.parts, [](const ProjectionShape& part) { return part.in > 0; });
  });
}

BlockCost fused_block_cost(const UnitShape& block, const PassSizes& pass, Recompute recompute) {
  BlockCost cost = FusedTape(block, pass, recompute).cost();
  cost.trains = std::ranges::any_of(block.parameters, &ParameterShape::trainable);
  return cost;
}

HeadCost fused_head_cost(const UnitShape& head, const PassSizes& pass, int64_t vocab_size, int64_t chunk) {
  const int64_t s = size_of(pass.dtype), m = pass.batch.targets, hidden = m * pass.hidden_size * s;
  bool trains_weight = false, trains_norm = false;
  for (const ParameterShape& parameter : head.parameters)
    (parameter.sizes.size() == 2 ? trains_weight : trains_norm) |= parameter.trainable;
  const bool input_grad = pass.input_needs_grad || trains_norm;
  const int64_t row_bytes = round_up(vocab_size * s, 128);
  const int64_t logits = kGemmWorkspace + chunk_rows(chunk, row_bytes, m) * row_bytes;
  HeadCost cost;
  cost.trains = trains_weight || trains_norm;
  // The selected rows, the norm's scales, rows of the gradient; the normed rows where dW is made later.
  const int64_t copied = pass.reads_few ? 0 : hidden;
  cost.kept = copied + 12 * m + (input_grad ? hidden : 0);
  const bool weight_later = trains_weight && !pass.scale_known;
  if (weight_later) cost.kept += hidden;
  cost.plain = copied + hidden + logits + 8 * m;
  cost.recording = cost.kept + (weight_later ? 0 : hidden) + logits;
  cost.backward = cost.kept + (input_grad ? hidden : 0) + (weight_later ? logits : 0);
  return cost;
}

int64_t home_elements(const UnitShape& block) {
  if (!is_fused_decoder(block)) return 0;
  int64_t sum = 0;
  for (const JointShape& joint : joints_of(block)) {
    const int64_t inner = joint.inner();
    if (joint.has_home()) sum += (joint.out() + inner) * (joint.in() + inner) - joint.out() * joint.in();
  }
  return sum;
}

}  // namespace apus::train
