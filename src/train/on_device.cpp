#include "train/on_device.h"

#include "apus/nn/dropout_rows.h"

namespace apus::train {

at::Device device_of(parallel::ShardedModel& model) {
  if (!model.groups().empty()) return model.groups().front()->device();
  const auto parameters = model.model().embed_parameters();  // of a reference, which trains nothing
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().tensor.device();
}

data::Batch on_device(parallel::ShardedModel& model, const data::Batch& batch) {
  data::Batch placed = batch.to_device(device_of(model));
  placed.wait_arrival();
  return placed;
}

nn::ReadRows read_rows(const data::Batch& placed, const nn::PassContext& context) {
  nn::ReadRows read{.rows_M = placed.target_rows_M};
  if (context.dropout) read.dropout = nn::dropout_at(*context.dropout, placed.on_host().target_rows_M);
  return read;
}

}  // namespace apus::train
