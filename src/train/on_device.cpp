#include "train/on_device.h"

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

}  // namespace apus::train
