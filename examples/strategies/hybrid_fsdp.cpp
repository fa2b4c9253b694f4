// Hybrid sharding: two copies of the model, each sharded over two ranks.
#include "ranks.h"
#include "user_module.h"

namespace ap = apus::parallel;

int main() {
  return train_on_ranks(4, [](const std::shared_ptr<apus::comm::Communicator>& world) {
    UserMlp mlp;
    const ap::ShardPolicy policy = ap::HybridFsdp({.replicate = 2});
    const apus::comm::DeviceMesh mesh(world, policy.mesh());
    ap::ShardedUnits engine(units_of(mlp), ap::DataParallel::of(mesh), {.policy = policy});
    double first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      last = 0;
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        const auto [x, target] = rows_of(world->rank(), micro_batch);
        const at::Tensor loss = (run(engine, mlp, x) - target).square().mean() / (2 * world->size());
        last += loss.item<double>();
        engine.backward(loss, micro_batch == 1 ? ap::MicroBatchPlace::kLast : ap::MicroBatchPlace::kNotLast);
      }
      engine.update({.lr = 5e-3});
      if (step == 0) first = last;
    }
    return std::pair(first, last);
  });
}
