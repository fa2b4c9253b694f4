#include "apus/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "apus/base/error.h"
#include "apus/ops/norm.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

TEST(RotaryTables, HoldTheAnglesOfBothHalves) {
  const at::Tensor positions = at::tensor({0, 3, 100}, at::kLong);
  const RotaryTables tables = rotary_tables(positions, 8, 10000.0, at::kFloat);
  ASSERT_EQ(tables.cos_TH.sizes(), at::IntArrayRef({3, 8}));
  const double place[] = {0, 3, 100};
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 8; ++i) {
      const double angle = place[t] * std::pow(10000.0, -2.0 * static_cast<double>(i % 4) / 8.0);
      EXPECT_NEAR(tables.cos_TH[t][i].item<double>(), std::cos(angle), 2e-5) << t << " " << i;
      EXPECT_NEAR(tables.sin_TH[t][i].item<double>(), std::sin(angle), 2e-5) << t << " " << i;
    }
}

TEST(RotaryTables, AreRoundedFromFp32) {
  const at::Tensor positions = at::arange(50, at::kLong);
  const RotaryTables wide = rotary_tables(positions, 8, 1e6, at::kFloat);
  const RotaryTables narrow = rotary_tables(positions, 8, 1e6, at::kBFloat16);
  expect_equal(narrow.cos_TH, wide.cos_TH.to(at::kBFloat16));
  expect_equal(narrow.sin_TH, wide.sin_TH.to(at::kBFloat16));
}

TEST(RotaryTables, RefuseAnOddHeadDim) {
  EXPECT_THROW(rotary_tables(at::arange(3, at::kLong), 7, 1e4, at::kFloat), ShapeError);
}

TEST(RotaryTables, TakeFrequenciesForAllRowsOrForEach) {
  const at::Tensor positions = at::tensor({0, 3, 100}, at::kLong);
  const at::Tensor slow = at::tensor({0.5, 0.1}, at::kFloat), fast = at::tensor({1.0, 0.3}, at::kFloat);
  const RotaryTables one = rotary_tables(positions, slow, 1.5, at::kFloat);
  EXPECT_NEAR(one.cos_TH[1][1].item<double>(), 1.5 * std::cos(0.3), 1e-6);
  EXPECT_NEAR(one.sin_TH[2][2].item<double>(), 1.5 * std::sin(50.0), 1e-4);
  const RotaryTables mixed = rotary_tables(positions, at::stack({slow, fast, slow}), 1.5, at::kFloat);
  expect_equal(mixed.cos_TH[0], one.cos_TH[0]);
  expect_equal(mixed.sin_TH[2], one.sin_TH[2]);
  EXPECT_NEAR(mixed.cos_TH[1][0].item<double>(), 1.5 * std::cos(3.0), 1e-6);
}

TEST(RotaryTables, RefuseFrequenciesThatDoNotFit) {
  const at::Tensor positions = at::arange(3, at::kLong);
  EXPECT_THROW(rotary_tables(positions, random_tensor({2, 4}, 1), 1.0, at::kFloat), ShapeError);
  EXPECT_THROW(rotary_tables(positions, random_tensor({3, 4, 1}, 1), 1.0, at::kFloat), ShapeError);
  EXPECT_THROW(rotary_tables(positions, random_tensor({4}, 1).to(at::kDouble), 1.0, at::kFloat), ShapeError);
  EXPECT_THROW(rotary_tables(positions.unsqueeze(0), random_tensor({4}, 1), 1.0, at::kFloat), ShapeError);
}

// Each pair (i, i + H/2) is a complex number that the angle turns.
TEST(Rotary, TurnsEachPairByItsAngle) {
  const at::Tensor q = random_tensor({4, 3, 8}, 1), k = random_tensor({4, 1, 8}, 2);
  const at::Tensor angles = random_tensor({4, 4}, 3);
  const at::Tensor cos = angles.cos().repeat({1, 2}), sin = angles.sin().repeat({1, 2});
  const Rotated turned = rotary(q, k, cos, sin);
  const auto expect_turned = [&](const at::Tensor& before, const at::Tensor& after) {
    const at::Tensor a = before.narrow(2, 0, 4), b = before.narrow(2, 4, 4);
    const at::Tensor c = angles.cos().unsqueeze(1), s = angles.sin().unsqueeze(1);
    expect_close(after.narrow(2, 0, 4), a * c - b * s, {.absolute = 1e-6});
    expect_close(after.narrow(2, 4, 4), b * c + a * s, {.absolute = 1e-6});
  };
  expect_turned(q, turned.q_TNH);
  expect_turned(k, turned.k_TKH);
}

TEST(Rotary, ProductsDependOnDistanceAlone) {
  const at::Tensor q = random_tensor({1, 1, 8}, 1).expand({6, 1, 8}),
                   k = random_tensor({1, 1, 8}, 2).expand({6, 1, 8});
  const RotaryTables tables = rotary_tables(at::arange(6, at::kLong), 8, 100.0, at::kFloat);
  const Rotated turned = rotary(q, k, tables.cos_TH, tables.sin_TH);
  const auto product = [&](int64_t i, int64_t j) {
    return (turned.q_TNH[i] * turned.k_TKH[j]).sum().item<double>();
  };
  EXPECT_NEAR(product(2, 0), product(5, 3), 1e-5);
  EXPECT_GT(std::abs(product(2, 0) - product(3, 0)), 1e-3);
}

TEST(Rotary, HasTheGradientsOfFiniteDifferences) {
  const RotaryTables tables = rotary_tables(at::arange(3, at::kLong), 4, 10.0, at::kFloat);
  check_gradients(
      [&](const auto& in) {
        const Rotated turned = rotary(in[0], in[1], tables.cos_TH, tables.sin_TH);
        return turned.q_TNH * turned.k_TKH;
      },
      {random_tensor({3, 2, 4}, 1), random_tensor({3, 1, 4}, 2)});
}

TEST(Rotary, Bf16StaysCloseToFp32) {
  const RotaryTables tables = rotary_tables(at::arange(9, at::kLong), 8, 1e4, at::kBFloat16);
  const at::Tensor q = random_tensor({9, 2, 8}, 1, at::kBFloat16);
  const Rotated narrow = rotary(q, q, tables.cos_TH, tables.sin_TH);
  EXPECT_EQ(narrow.q_TNH.scalar_type(), at::kBFloat16);
  const at::Tensor wide_q = q.to(at::kFloat);
  const Rotated wide = rotary(wide_q, wide_q, tables.cos_TH.to(at::kFloat), tables.sin_TH.to(at::kFloat));
  expect_close(narrow.q_TNH, wide.q_TNH, {.absolute = 3e-2});
}

TEST(Rotary, RefusesTablesThatDoNotFit) {
  const at::Tensor q = random_tensor({4, 2, 8}, 1), table = random_tensor({4, 8}, 2);
  EXPECT_THROW(rotary(q, q, random_tensor({3, 8}, 1), random_tensor({3, 8}, 1)), ShapeError);
  EXPECT_THROW(rotary(q, q, table, random_tensor({4, 6}, 1)), ShapeError);
  EXPECT_THROW(rotary(q, q, table.to(at::kBFloat16), table.to(at::kBFloat16)), ShapeError);
}

/// Columns of a fused projection as heads.
at::Tensor heads_of(const at::Tensor& qkv, int64_t first, int64_t count, int64_t head_dim) {
  return qkv.narrow(1, first * head_dim, count * head_dim).unflatten(1, {count, head_dim});
}

TEST(RotaryQkv, IsTheSplitAndTheRotation) {
  const QkvHeads heads{.heads = 3, .kv_heads = 2, .head_dim = 8};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const RotaryTables tables = rotary_tables(at::arange(5, at::kLong), 8, 10.0, dtype);
    const at::Tensor qkv = random_tensor({5, heads.columns() + 4}, 1, dtype).narrow(1, 2, heads.columns());
    const Qkv split = rotary_qkv(qkv, heads, tables.cos_TH, tables.sin_TH);
    const Rotated turned =
        rotary(heads_of(qkv, 0, 3, 8), heads_of(qkv, 3, 2, 8), tables.cos_TH, tables.sin_TH);
    expect_equal(split.q_TNH, turned.q_TNH);
    expect_equal(split.k_TKH, turned.k_TKH);
    expect_equal(split.v_TKH, heads_of(qkv, 5, 2, 8));
    EXPECT_TRUE(split.q_TNH.is_contiguous() && split.k_TKH.is_contiguous() && split.v_TKH.is_contiguous());
  }
}

TEST(RotaryQkv, NormsEachHeadBeforeItTurns) {
  const QkvHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 8};
  const RotaryTables tables = rotary_tables(at::arange(4, at::kLong), 8, 10.0, at::kFloat);
  const at::Tensor qkv = random_tensor({4, heads.columns()}, 1), q_weight = random_tensor({8}, 2),
                   k_weight = random_tensor({8}, 3);
  const Qkv split = rotary_qkv(qkv, heads, tables.cos_TH, tables.sin_TH, {q_weight, k_weight, 1e-5});
  const Rotated turned =
      rotary(rms_norm(heads_of(qkv, 0, 2, 8), q_weight, 1e-5),
             rms_norm(heads_of(qkv, 2, 1, 8), k_weight, 1e-5), tables.cos_TH, tables.sin_TH);
  expect_equal(split.q_TNH, turned.q_TNH);
  expect_equal(split.k_TKH, turned.k_TKH);
}

TEST(RotaryQkv, HasTheGradientsOfFiniteDifferences) {
  const QkvHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 4};
  const RotaryTables tables = rotary_tables(at::arange(3, at::kLong), 4, 10.0, at::kFloat);
  check_gradients(
      [&](const auto& in) {
        const Qkv split =
            rotary_qkv(in[0], heads, tables.cos_TH, tables.sin_TH, {in[1], in[2], 1e-5}, {0, 16});
        return split.q_TNH * split.k_TKH + split.v_TKH;
      },
      {random_tensor({3, 16}, 1), random_tensor({4}, 2), random_tensor({4}, 3)}, 4e-3);
}

TEST(RotaryQkv, RefusesWhatDoesNotFit) {
  const QkvHeads heads{.heads = 2, .kv_heads = 1, .head_dim = 4};
  const at::Tensor qkv = random_tensor({3, 16}, 1), table = random_tensor({3, 4}, 2);
  const at::Tensor weight = random_tensor({4}, 3);
  EXPECT_THROW(rotary_qkv(random_tensor({3, 20}, 1), heads, table, table), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, {.heads = 0, .kv_heads = 2, .head_dim = 4}, table, table), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, heads, random_tensor({2, 4}, 1), random_tensor({2, 4}, 1)), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, heads, table.to(at::kBFloat16), table.to(at::kBFloat16)), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, heads, table, table, {weight, {}, 1e-5}), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, heads, table, table, {weight, random_tensor({3}, 1), 1e-5}), ShapeError);
  EXPECT_THROW(rotary_qkv(qkv, heads, table, table, {}, {-8, 0}), ShapeError);
}

}  // namespace
}  // namespace apus::ops
