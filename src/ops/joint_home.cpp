#include "apus/ops/joint_home.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "apus/base/error.h"
#include "ops/joint_linear_cuda.h"

namespace apus::ops {
namespace {

void check(const JointHomeOptions& options) {
  APUS_CHECK(options.in_features > 0 && !options.out_features.empty(), ConfigError,
             "a joint home needs parts with positive sizes, it has ", options.out_features.size(),
             " parts of in_features ", options.in_features);
  for (const int64_t out : options.out_features)
    APUS_CHECK(out > 0, ConfigError, "a joint home's part has out_features ", out, ", expected 1 or more");
  APUS_CHECK(options.rank >= 0 && options.rank % 8 == 0, ConfigError,
             "a joint home's rank must be a multiple of 8, "
             "it is ",
             options.rank);
  APUS_CHECK(options.layout == JointLayout::kFused || options.out_features.size() == 2, ConfigError,
             "the layout beside is for two parts, there are ", options.out_features.size());
}

void copy_segment(const cuda::HomeSegment& segment) {
  at::Tensor a = segment.a_into, b = segment.b_into;
  const int64_t rank = segment.a_RD.defined() ? segment.a_RD.size(0) : 0;
  if (rank < a.size(0)) {
    a.narrow(0, rank, a.size(0) - rank).zero_();
    b.narrow(1, rank, b.size(1) - rank).zero_();
  }
  if (rank == 0) return;
  a.narrow(0, 0, rank).copy_(segment.a_RD);
  b.narrow(1, 0, rank).copy_(segment.b_OR * segment.scaling);
}

std::vector<const void*> adapters_of(const std::vector<JointPart>& parts) {
  std::vector<const void*> result;
  for (const JointPart& part : parts)
    result.push_back(part.has_adapter() ? part.a_RD.unsafeGetTensorImpl() : nullptr);
  return result;
}

}  // namespace

JointHome::JointHome(const JointHomeOptions& options) : options_(options) {
  check(options_);
  const at::NoGradGuard no_grad;
  first_row_.push_back(0);
  for (const int64_t out : options_.out_features) first_row_.push_back(first_row_.back() + out);
  const auto like = at::TensorOptions().dtype(options_.dtype).device(options_.device);
  matrix_ = at::zeros({out_columns() + inner_columns(), input_room().width(options_.in_features)}, like);
  if (options_.bias) bias_ = at::zeros({out_columns()}, like);
}

RowRoom JointHome::input_room() const {
  if (options_.layout == JointLayout::kBeside) return {.before = options_.rank, .after = options_.rank};
  return {.before = 0, .after = inner_columns()};
}

int64_t JointHome::inner_column(size_t part) const {
  const int64_t r = options_.rank, d = options_.in_features;
  if (options_.layout == JointLayout::kBeside) return part == 0 ? 0 : r + d;
  return d + static_cast<int64_t>(part) * r;
}

at::Tensor JointHome::weight(size_t part) const {
  return weights().narrow(0, first(part), options_.out_features.at(part));
}

at::Tensor JointHome::bias(size_t part) const {
  return bias_.defined() ? bias_.narrow(0, first(part), options_.out_features.at(part)) : at::Tensor();
}

at::Tensor JointHome::weights() const {
  return weights_and_a().narrow(0, 0, out_columns());
}

at::Tensor JointHome::weights_and_a() const {
  return matrix_.narrow(1, input_room().before, options_.in_features);
}

at::Tensor JointHome::a() const {
  return weights_and_a().narrow(0, out_columns(), inner_columns());
}

at::Tensor JointHome::scaled_b(size_t part) const {
  return matrix_.narrow(0, first(part), options_.out_features.at(part))
      .narrow(1, inner_column(part), options_.rank);
}

at::Tensor JointHome::scaled_b() const {
  APUS_ASSERT(options_.layout == JointLayout::kFused, "only a fused home has its B in one block");
  return matrix_.narrow(0, 0, out_columns()).narrow(1, options_.in_features, inner_columns());
}

at::Tensor JointHome::weight_with_b(size_t part) const {
  APUS_ASSERT(options_.layout == JointLayout::kBeside, "only parts beside each other have a B each");
  return matrix_.narrow(0, first(part), options_.out_features.at(part))
      .narrow(1, part == 0 ? 0 : options_.rank, options_.in_features + options_.rank);
}

at::Tensor JointHome::weights_with_b() const {
  APUS_ASSERT(options_.layout == JointLayout::kFused, "only a fused home has all B beside all W");
  return matrix_.narrow(0, 0, out_columns());
}

bool JointHome::holds(const at::Tensor& tensor) const {
  return tensor.defined() && (tensor.is_alias_of(matrix_) || (bias_.defined() && tensor.is_alias_of(bias_)));
}

bool JointHome::fits(const std::vector<JointPart>& parts) const {
  if (parts.size() != this->parts()) return false;
  for (const JointPart& part : parts) {
    if (!part.has_adapter()) continue;
    const int64_t rank = part.a_RD.size(0);
    if (rank > options_.rank || rank % 8 != 0) return false;
    for (const at::Tensor& matrix : {part.a_RD, part.b_OR}) {
      if (matrix.scalar_type() != options_.dtype || matrix.device() != matrix_.device() ||
          !matrix.is_contiguous())
        return false;
    }
  }
  return true;
}

void JointHome::load(const std::vector<JointPart>& parts) {
  APUS_ASSERT(fits(parts), "adapters are loaded into a joint home that they do not fit");
  loaded_ = adapters_of(parts);
  if (options_.rank == 0) return;
  const at::NoGradGuard no_grad;
  std::vector<cuda::HomeSegment> segments;
  for (size_t part = 0; part < parts.size(); ++part) {
    const int64_t row = static_cast<int64_t>(part) * options_.rank;
    segments.push_back({.a_RD = parts[part].a_RD,
                        .b_OR = parts[part].b_OR,
                        .scaling = parts[part].scaling,
                        .a_into = a().narrow(0, row, options_.rank),
                        .b_into = scaled_b(part)});
  }
  if (matrix_.is_cuda() && cuda::load_home(segments)) return;
  for (const cuda::HomeSegment& segment : segments) copy_segment(segment);
}

bool JointHome::is_loaded(const std::vector<JointPart>& parts) const {
  return loaded_ == adapters_of(parts);
}

}  // namespace apus::ops
