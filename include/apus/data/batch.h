#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/data/rows.h"
#include "apus/nn/pass_context.h"

namespace apus::data {

class BatchArrival;

/// One micro-batch of one rank, ready for the model. Both objectives read the same fields.
///
/// A supervised token is a (row, target) pair: the hidden row `target_rows[m]` predicts token `targets[m]`
/// (so the shift by one is already done here, and nowhere else).
/// DPO: sequences 0..P-1 are the chosen answers, P..2P-1 the rejected ones of the same pairs. With prompts
/// kept once (BatchLayout::kSharedPrompt) the layout has other sequences, but target_sequences_M still counts
/// answers so, and the last row of a prompt predicts the first token of both.
struct APUS_API Batch {
  at::Tensor tokens_T;                          ///< int64 [T] token ids (padding rows hold pad ids)
  std::shared_ptr<const nn::RowLayout> layout;  ///< how T splits into sequences
  at::Tensor target_rows_M;                     ///< int64 [M] rows of [T] that predict, never descending
  at::Tensor targets_M;                         ///< int64 [M] the tokens they predict
  at::Tensor target_sequences_M;                ///< int64 [M] the sequence each belongs to
  at::Tensor target_weights_M;                  ///< fp32 [M] what each counts in the loss; undefined: all 1
  at::Tensor pair_margins_P;                    ///< fp32 [P] margins of the pairs; undefined: no row has one
  /// fp32 [2P] what the reference says of each answer, by target_sequences_M; undefined: nobody computed it
  /// ahead (train::ReferencedDataset does).
  at::Tensor reference_log_probs_S;
  int64_t pairs = 0;              ///< DPO: P; SFT: 0
  int64_t rows = 0;               ///< rows in this micro-batch (pairs in DPO); 0 = empty
  std::vector<int64_t> ordinals;  ///< [rows] places in the prepared dataset, for reports
  std::vector<RowPlace> origins;  ///< [rows] where each came from, for messages
  /// [rows] how many rows stand before each in the epoch's order: the coordinate of its random numbers
  /// (SampleCoordinate::ordinal), whatever the world, packs and balance. Filled by the loader, else empty.
  std::vector<int64_t> places;
  /// Epoch in which the rows stand, the other coordinate. Filled by the loader, else 0.
  int64_t epoch = 0;
  /// SFT: [sequences] the channel of each (see SftRow::channel), "" = none; empty = no row has one.
  std::vector<std::string> channels;

  /// Supervised tokens in this micro-batch.
  int64_t target_count() const { return target_rows_M.defined() ? target_rows_M.numel() : 0; }
  /// The same on a GPU, on its way when this returns: all tensors in one pinned buffer and one copy on a
  /// stream of its own, behind what the current stream has to do so far; the host does not wait. Ask for it
  /// while the micro-batch before has still to run. Layout, ordinals, channels and the like are shared. A
  /// batch that is on the device already, and any batch asked onto the CPU by one that is there, is returned
  /// as it is. Memory:  the tensors' bytes, once pinned until they are copied, once on the device. Throws:
  /// NotSupported if there is no such device here, or tensors are to come back from one.
  Batch to_device(at::Device device) const;
  /// Makes the current stream wait until the tensors have arrived. Whoever reads them calls it first; it
  /// costs nothing once they have, and on the CPU.
  void wait_arrival() const;
  /// The micro-batch whose tensors host code may read: itself, or what to_device was called on.
  const Batch& on_host() const { return host ? *host : *this; }

  /// On a device: what to_device was called on. Null on the CPU.
  std::shared_ptr<const Batch> host;
  /// On a device: says when the tensors are there.
  std::shared_ptr<const BatchArrival> arrival;

  /// A rank without rows still runs such a batch, so that collectives stay in step.
  bool is_empty() const { return rows == 0; }
};

}  // namespace apus::data
