#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "apus/comm/fake_communicator.h"
#include "apus/data/collator.h"
#include "apus/models/init_random.h"
#include "apus/models/qwen2.h"
#include "apus/nn/module.h"

/// A trainable tiny model and one batch for it.
namespace apus::testing {

/// A tied Qwen2 of the default tiny size, all of it trainable.
inline std::unique_ptr<models::Qwen2> tiny_qwen2() {
  auto model = std::make_unique<models::Qwen2>(models::Qwen2Config{.tie_word_embeddings = true}, at::kFloat);
  models::init_random(*model, {.seed = 3, .standard_deviation = 0.2});
  nn::make_trainable(*model);
  return model;
}

/// Two SFT rows of different lengths.
inline data::Batch tiny_batch() {
  std::vector<data::SftRow> rows{{.input_ids = {1, 2, 3, 4, 5, 6}, .labels = {-100, 2, 3, 4, 5, 6}},
                                 {.input_ids = {9, 8, 7}, .labels = {-100, 8, 7}}};
  return data::collate_sft(rows, std::vector<int64_t>{0, 1}, {});
}

}  // namespace apus::testing
