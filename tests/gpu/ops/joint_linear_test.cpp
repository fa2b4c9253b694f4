#include "apus/ops/joint_linear.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "apus/memory/grad_sink.h"
#include "apus/memory/param_group.h"
#include "ops/joint_linear_cuda.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;
using Tensors = std::map<std::string, at::Tensor>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class JointLinearOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

struct Case {
  std::string name;
  int64_t rows = 129;
  std::vector<int64_t> outs = {64};
  std::vector<int64_t> ranks = {0};
  JointLayout layout = JointLayout::kFused;
  int64_t in = 96;
  bool bias = false;
  bool residual = false;
  bool trainable = false;  ///< full weights
  bool adjoining = false;  ///< weights one behind another, and biases
  bool home = true;
  bool roomy = true;  ///< x and dy have the room
  bool remake = false;
  bool unread = false;  ///< y may be anything
  at::ScalarType dtype = at::kBFloat16;
};

/// The operands of a case, random.
struct Operands {
  at::Tensor x, dy, residual;
  std::vector<JointPart> parts;
};

Operands operands_of(const Case& c) {
  at::Generator generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(1);
  const auto random = [&](at::IntArrayRef shape, double scale = 1.0) {
    return (at::randn(shape, generator, at::TensorOptions(at::kCUDA)) * scale).to(c.dtype);
  };
  int64_t out = 0;
  for (const int64_t columns : c.outs) out += columns;
  Operands result{random({c.rows, c.in}), random({c.rows, out}), {}, {}};
  if (c.residual) result.residual = random({c.rows, out});
  const at::Tensor all = random({out, c.in}, 0.1), biases = random({out});
  int64_t first = 0;
  for (size_t i = 0; i < c.outs.size(); ++i) {
    const at::Tensor weight = all.narrow(0, first, c.outs[i]);
    JointPart part{.weight_OD = c.adjoining ? weight.detach() : weight.clone()};
    const at::Tensor bias = biases.narrow(0, first, c.outs[i]);
    if (c.bias) part.bias_O = c.adjoining ? bias.detach() : bias.clone();
    first += c.outs[i];
    if (c.ranks[i] > 0) {
      part.a_RD = random({c.ranks[i], c.in}, 0.2);
      part.b_OR = random({c.outs[i], c.ranks[i]}, 0.3);
      part.scaling = i % 2 == 0 ? 0.5 : 2.0;
    }
    result.parts.push_back(part);
  }
  return result;
}

/// Marks what needs a gradient, in another dtype if told so; the list is x, residual, then by part.
std::vector<std::pair<std::string, at::Tensor>> leaves_of(Operands& o, const Case& c, at::ScalarType dtype) {
  std::vector<std::pair<std::string, at::Tensor>> leaves;
  const auto add = [&](const std::string& name, at::Tensor& operand, bool wanted) {
    if (!operand.defined()) return;
    if (operand.scalar_type() != dtype) operand = operand.to(dtype);
    operand = operand.detach();
    if (!wanted) return;
    operand.set_requires_grad(true);
    leaves.emplace_back(name, operand);
  };
  add("dx", o.x, true);
  add("dresidual", o.residual, true);
  for (size_t i = 0; i < o.parts.size(); ++i) {
    const std::string of = " of part " + std::to_string(i);
    add("dW" + of, o.parts[i].weight_OD, c.trainable);
    add("dbias" + of, o.parts[i].bias_O, c.trainable);
    add("dA" + of, o.parts[i].a_RD, true);
    add("dB" + of, o.parts[i].b_OR, true);
  }
  o.dy = o.dy.to(dtype);
  return leaves;
}

Tensors differentiate(const at::Tensor& y, const at::Tensor& dy,
                      const std::vector<std::pair<std::string, at::Tensor>>& leaves) {
  Tensors result = {{"y", y.detach().clone()}};
  torch::autograd::variable_list inputs;
  for (const auto& [name, leaf] : leaves) inputs.push_back(leaf);
  const auto grads = torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/false, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  for (size_t i = 0; i < grads.size(); ++i) result[leaves[i].first] = grads[i];
  return result;
}

/// The composition, in a dtype.
Tensors by_twin(const Case& c, at::ScalarType dtype) {
  Operands o = operands_of(c);
  const auto leaves = leaves_of(o, c, dtype);
  return differentiate(joint_linear_twin(o.x, o.parts, {.residual_TO = o.residual}), o.dy, leaves);
}

at::Tensor with_spare(const at::Tensor& x, RowRoom room) {
  const at::Tensor wide = at::full({x.size(0), room.width(x.size(1))}, kNaN, x.options());
  const at::Tensor inner = wide.narrow(1, room.before, x.size(1));
  inner.copy_(x);
  return inner;
}

/// Moves the weights into a home.
std::shared_ptr<JointHome> home_of(const Case& c, std::vector<JointPart>& parts) {
  if (!c.home) return nullptr;
  int64_t rank = 0;
  for (const int64_t r : c.ranks) rank = std::max(rank, r);
  auto home = std::make_shared<JointHome>(JointHomeOptions{.in_features = c.in,
                                                           .out_features = c.outs,
                                                           .rank = rank,
                                                           .layout = c.layout,
                                                           .bias = c.bias,
                                                           .dtype = c.dtype,
                                                           .device = at::kCUDA});
  for (size_t i = 0; i < parts.size(); ++i) {
    home->weight(i).copy_(parts[i].weight_OD);
    parts[i].weight_OD = home->weight(i);
    if (!c.bias) continue;
    home->bias(i).copy_(parts[i].bias_O);
    parts[i].bias_O = home->bias(i);
  }
  return home;
}

/// The operation under test.
Tensors by_kernel(const Case& c) {
  Operands o = operands_of(c);
  const std::shared_ptr<JointHome> home = home_of(c, o.parts);
  RowRoom x_room, dy_room;
  if (home && c.roomy) {
    x_room = home->input_room();
    dy_room = home->grad_room();
  }
  o.x = with_spare(o.x, x_room);
  const auto leaves = leaves_of(o, c, c.dtype);
  JointLinearOptions options{.home = home, .residual_TO = o.residual, .output_is_unread = c.unread};
  if (c.remake) options.remake_x = [x = o.x.detach().clone(), x_room] { return with_spare(x, x_room); };
  const at::Tensor y = joint_linear(o.x, o.parts, options);
  if (c.remake && c.rows > 0) {
    const at::NoGradGuard no_grad;
    o.x.fill_(kNaN);  // nothing may read it again
  }
  return differentiate(y, with_spare(o.dy, dy_room), leaves);
}

void compare(const Case& c, const Tensors& found) {
  const Tensors exact = by_twin(c, at::kDouble), rounded = by_twin(c, c.dtype);
  for (const auto& [name, wanted] : exact) {
    ASSERT_TRUE(found.at(name).defined()) << c.name << ": " << name;
    ASSERT_EQ(found.at(name).sizes(), wanted.sizes()) << c.name << ": " << name;
    if (wanted.numel() == 0 || (c.unread && name == "y")) continue;
    const double scale = wanted.square().mean().sqrt().item<double>();
    const double bound =
        c.dtype == at::kFloat ? 1e-5 * scale : 1.5 * rms_difference(rounded.at(name), wanted) + 1e-5 * scale;
    EXPECT_LE(rms_difference(found.at(name), wanted), bound) << c.name << ": " << name;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {.name = "one part", .residual = true},
      {.name = "one part with an adapter", .ranks = {16}, .bias = true, .residual = true},
      {.name = "q, k, v", .outs = {64, 16, 16}, .ranks = {16, 16, 16}, .bias = true},
      {.name = "adapters of some parts", .outs = {64, 16, 16}, .ranks = {16, 0, 8}},
      {.name = "no adapters", .outs = {64, 16, 16}, .ranks = {0, 0, 0}, .bias = true},
      {.name = "gate and up", .outs = {72, 72}, .ranks = {16, 16}, .layout = JointLayout::kBeside},
      {.name = "gate and up, biased",
       .outs = {72, 72},
       .ranks = {8, 16},
       .layout = JointLayout::kBeside,
       .bias = true},
      {.name = "no home", .outs = {64, 16}, .ranks = {16, 8}, .bias = true, .home = false},
      {.name = "an odd rank", .outs = {64, 16}, .ranks = {3, 0}, .home = false},
      {.name = "full weights",
       .outs = {64, 16},
       .ranks = {0, 0},
       .bias = true,
       .trainable = true,
       .home = false},
      {.name = "full adjoining weights",
       .outs = {72, 72},
       .ranks = {0, 0},
       .trainable = true,
       .adjoining = true,
       .home = false},
      {.name = "full adjoining q, k, v",
       .outs = {128, 64, 64},
       .ranks = {0, 0, 0},
       .bias = true,
       .trainable = true,
       .adjoining = true,
       .home = false},
      {.name = "full, one part", .residual = true, .trainable = true, .home = false},
      {.name = "odd sizes",
       .outs = {5, 3},
       .ranks = {2, 0},
       .in = 7,
       .bias = true,
       .trainable = true,
       .home = false},
  };
  return all;
}

TEST_F(JointLinearOnGpu, IsTheCompositionInEveryForm) {
  for (Case c : cases()) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
      for (const int64_t rows : {int64_t{129}, int64_t{1}, int64_t{127}}) {
        c.dtype = dtype;
        c.rows = rows;
        compare(c, by_kernel(c));
      }
    }
  }
}

TEST_F(JointLinearOnGpu, WorksWithoutRoomBesideTheRows) {
  for (Case c : cases()) {
    c.roomy = false;
    compare(c, by_kernel(c));
  }
}

TEST_F(JointLinearOnGpu, MakesItsInputAgain) {
  for (Case c : cases()) {
    c.remake = true;
    compare(c, by_kernel(c));
  }
}

TEST_F(JointLinearOnGpu, GradientsDoNotNeedTheResult) {
  for (Case c : cases()) {
    c.unread = true;
    compare(c, by_kernel(c));
  }
}

TEST_F(JointLinearOnGpu, TakesNoRows) {
  for (Case c : cases()) {
    c.rows = 0;
    const Tensors found = by_kernel(c);
    EXPECT_EQ(found.at("y").size(0), 0) << c.name;
    EXPECT_EQ(found.at("dx").sizes(), at::IntArrayRef({0, c.in})) << c.name;
  }
}

TEST_F(JointLinearOnGpu, IsRightAtTheSizeOfAModel) {
  Case c{.name = "7B's q, k, v",
         .rows = 2048,
         .outs = {3584, 512, 512},
         .ranks = {64, 64, 64},
         .in = 3584,
         .bias = true};
  compare(c, by_kernel(c));
  c = {.name = "7B's gate and up",
       .rows = 512,
       .outs = {18944, 18944},
       .ranks = {64, 64},
       .layout = JointLayout::kBeside,
       .in = 3584};
  compare(c, by_kernel(c));
}

/// Gradients of two passes, added by the op itself into a group's buffer.
void check_sink(const Case& c, at::ScalarType grad_dtype) {
  Operands o = operands_of(c);
  std::vector<memory::GroupParameter> parameters;
  const auto take = [&](const std::string& name, at::Tensor& leaf) {
    if (!leaf.defined()) return;
    leaf = leaf.detach().clone().set_requires_grad(true);
    parameters.push_back({name, leaf, 0});
  };
  for (size_t i = 0; i < o.parts.size(); ++i) {
    const std::string of = " of part " + std::to_string(i);
    if (c.trainable) take("dW" + of, o.parts[i].weight_OD);
    if (c.trainable) take("dbias" + of, o.parts[i].bias_O);
    take("dA" + of, o.parts[i].a_RD);
    take("dB" + of, o.parts[i].b_OR);
  }
  // As a model's groups are laid: what adjoins there is one product.
  std::ranges::stable_partition(parameters, [](const auto& parameter) { return parameter.tensor.dim() > 1; });
  memory::ParamGroup group(parameters, {.grad_dtype = grad_dtype});
  memory::GradSink sink({&group});
  const std::shared_ptr<JointHome> home = home_of(c, o.parts);
  const at::Tensor x = with_spare(o.x, home ? home->input_room() : RowRoom()).set_requires_grad(true);
  torch::autograd::variable_list inputs = {x};
  for (const auto& parameter : parameters) inputs.push_back(parameter.tensor);
  for (const auto& parameter : parameters) sink.expect(parameter.tensor);
  for (int pass = 0; pass < 2; ++pass) {
    const at::Tensor y = joint_linear(x, o.parts, {.home = home, .gradients = &sink});
    const auto grads = torch::autograd::grad({y}, inputs, {o.dy}, false, false, true);
    EXPECT_TRUE(grads[0].defined());
    for (size_t i = 1; i < grads.size(); ++i) EXPECT_FALSE(grads[i].defined()) << parameters[i - 1].name;
  }
  const Tensors exact = by_twin(c, at::kDouble);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto target = sink.target(parameters[i].tensor);
    ASSERT_TRUE(target) << parameters[i].name;
    EXPECT_FALSE(target->is_fresh) << parameters[i].name;
    const at::Tensor wanted = exact.at(parameters[i].name) * 2.0;
    const double scale = wanted.square().mean().sqrt().item<double>();
    EXPECT_LE(rms_difference(target->grad, wanted), 6e-3 * scale) << c.name << ": " << parameters[i].name;
  }
}

TEST_F(JointLinearOnGpu, AddsWeightGradientsWhereTheyAreSummed) {
  for (const Case& c : cases()) {
    if (c.residual) continue;
    bool has_any = c.trainable;
    for (const int64_t rank : c.ranks) has_any = has_any || rank > 0;
    if (!has_any) continue;
    check_sink(c, at::kFloat);
    check_sink(c, at::kBFloat16);
  }
}

TEST_F(JointLinearOnGpu, BackwardSeesTheAdapterOfItsForward) {
  Case c{.name = "two adapters", .outs = {64, 16}, .ranks = {16, 16}};
  Operands o = operands_of(c), other = operands_of(c);
  const std::shared_ptr<JointHome> home = home_of(c, o.parts);
  const auto leaves = leaves_of(o, c, c.dtype);
  const at::Tensor x = with_spare(o.x.detach(), home->input_room()).set_requires_grad(true);
  const at::Tensor y = joint_linear(x, o.parts, {.home = home});
  for (size_t i = 0; i < 2; ++i) {
    other.parts[i].weight_OD = o.parts[i].weight_OD;
    other.parts[i].a_RD = other.parts[i].a_RD * 3.0;
    other.parts[i].b_OR = other.parts[i].b_OR * -2.0;
  }
  {
    const at::NoGradGuard no_grad;
    joint_linear(with_spare(o.x, home->input_room()), other.parts, {.home = home});
  }
  auto own = leaves;
  own[0].second = x;
  compare(c, differentiate(y, with_spare(o.dy, home->grad_room()), own));
}

TEST_F(JointLinearOnGpu, LoadsAHomeAsTheCpuDoes) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const JointLayout layout : {JointLayout::kFused, JointLayout::kBeside}) {
      Case c{.name = "load", .outs = {40, 72}, .ranks = {16, 8}, .layout = layout, .dtype = dtype};
      Operands o = operands_of(c);
      JointHomeOptions shape{
          .in_features = c.in, .out_features = c.outs, .rank = 16, .layout = layout, .dtype = dtype};
      JointHome on_cpu(shape);
      shape.device = at::kCUDA;
      JointHome on_gpu(shape);
      on_gpu.a().fill_(kNaN);
      on_gpu.scaled_b(0).fill_(kNaN);
      on_gpu.scaled_b(1).fill_(kNaN);
      on_gpu.load(o.parts);
      for (JointPart& part : o.parts) {
        part.a_RD = part.a_RD.cpu();
        part.b_OR = part.b_OR.cpu();
      }
      on_cpu.load(o.parts);
      expect_equal(on_gpu.a().cpu(), on_cpu.a());
      for (size_t part = 0; part < 2; ++part)
        expect_equal(on_gpu.scaled_b(part).cpu(), on_cpu.scaled_b(part));
    }
  }
}

}  // namespace
}  // namespace apus::ops
