#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apus/base/safetensors.h"
#include "apus/models/tensor_dtype.h"
#include "apus/nn/causal_lm.h"
#include "apus/nn/pass_context.h"
#include "apus/ops/token_log_probs.h"

/// One forward and backward of a stored batch, for the cases of kinds models and lora.
namespace apus::testing {

/// A copy of a stored tensor, in its dtype.
inline at::Tensor stored(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.at(name);
  void* data = const_cast<std::byte*>(view.data.data());
  return at::from_blob(data, view.shape, models::scalar_type(view.dtype)).clone();
}

/// A batch as the library sees it: the rows of a batch in one of the two layouts.
struct Rows {
  at::Tensor tokens_T;
  at::Tensor real_T;         ///< which row of [B * S] each of the T real rows is
  at::Tensor target_rows_M;  ///< rows of T that predict
  at::Tensor targets_M;
  std::shared_ptr<const nn::RowLayout> layout;
};

/// The batch of golden.safetensors.
struct Golden {
  explicit Golden(const std::filesystem::path& folder) : file(folder / "golden.safetensors") {
    tokens_BS = stored(file, "input_ids");
    mask_BS = stored(file, "attention_mask").to(at::kLong);
    labels_BS = stored(file, "labels");
    const at::Tensor counts = mask_BS.sum(1);
    for (int64_t b = 0; b < counts.size(0); ++b) lengths.push_back(counts[b].item<int64_t>());
  }

  int64_t width() const { return tokens_BS.size(1); }

  /// Position t predicts labels[t + 1].
  at::Tensor next_labels() const {
    const at::Tensor none = at::empty({labels_BS.size(0), 1}, at::kLong).fill_(-100);
    return at::cat({labels_BS.narrow(1, 1, width() - 1), none}, 1).flatten();
  }

  Rows padded() const {
    const at::Tensor next = next_labels();
    const at::Tensor rows = (next != -100).nonzero().squeeze(1);
    return {tokens_BS.flatten(), mask_BS.flatten().nonzero().squeeze(1), rows, next.index_select(0, rows),
            nn::RowLayout::padded(lengths, width())};
  }

  Rows packed() const {
    const at::Tensor real = mask_BS.flatten().nonzero().squeeze(1);
    const at::Tensor next = next_labels().index_select(0, real);
    const at::Tensor rows = (next != -100).nonzero().squeeze(1);
    return {tokens_BS.flatten().index_select(0, real), at::Tensor(), rows, next.index_select(0, rows),
            nn::RowLayout::packed(lengths)};
  }

  SafetensorsFile file;
  at::Tensor tokens_BS, mask_BS, labels_BS;
  std::vector<int64_t> lengths;
};

/// The summed loss of the rows that predict, with these adapters.
inline at::Tensor loss_sum(nn::CausalLm& model, const Rows& rows, std::vector<std::string> adapters = {}) {
  nn::PassContext context;
  context.adapters = std::move(adapters);
  context.rows = rows.layout;
  model.prepare(context);
  at::Tensor hidden = model.embed(rows.tokens_T, context);
  for (nn::Block* block : model.blocks()) hidden = block->forward(hidden, context);
  const at::Tensor selected = model.final_norm(hidden.index_select(0, rows.target_rows_M), context);
  return -ops::token_log_probs(selected, model.head_weight(context), rows.targets_M, {.chunk_tokens = 8})
              .sum();
}

/// What kind "models" consists of.
inline bool is_model_case(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "config.json") &&
         std::filesystem::exists(folder / "golden.safetensors") &&
         std::filesystem::exists(folder / "grads.safetensors");
}

}  // namespace apus::testing
