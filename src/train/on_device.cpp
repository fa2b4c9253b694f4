#include "train/on_device.h"

namespace apus::train {

at::Device device_of(parallel::ShardedModel& model) {
  return model.model().embed_parameters().at(0).tensor.device();
}

data::Batch on_device(parallel::ShardedModel& model, const data::Batch& batch) {
  data::Batch placed = batch.to_device(device_of(model));
  placed.wait_arrival();
  return placed;
}

}  // namespace apus::train
