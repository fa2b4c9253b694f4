#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/store.h"
#include "apus/data/dataset.h"
#include "apus/models/init_random.h"
#include "apus/models/qwen2.h"
#include "apus/parallel/sharded_model.h"
#include "apus/train/sft_objective.h"
#include "apus/train/trainer.h"

// A user of the installed (or added) library: one training step of a random Qwen2, which must start near the
// loss of guessing, and an error of the library that must arrive here as its own type.
namespace {

constexpr int64_t kVocabulary = 128;

std::shared_ptr<const apus::data::Dataset> rows() {
  std::vector<apus::data::SftRow> rows;
  for (int32_t first = 1; first <= 4; ++first) {
    apus::data::SftRow row{.input_ids = {first, first + 20, first + 40, first + 60, first + 80}};
    row.labels = row.input_ids;
    rows.push_back(std::move(row));
  }
  return std::make_shared<apus::data::SftDataset>(std::move(rows));
}

double train_one_step(apus::models::Qwen2& model, apus::comm::Communicator& dp) {
  apus::nn::make_trainable(model);
  apus::parallel::ShardedModel engine(model, dp, {.policy = apus::parallel::Zero2{}});
  apus::SystemClock clock;
  apus::NullLogger logger;
  apus::train::TrainerContext context{.clock = &clock, .logger = &logger};
  apus::train::TrainerOptions options;
  options.max_steps = 1;
  options.micro_batch_rows = 4;
  options.update = {.lr = 1e-3};
  apus::train::Trainer trainer(engine, std::make_shared<apus::train::SftObjective>(), options, context);
  return trainer.run(rows(), nullptr).last_loss;
}

bool frozen_model_is_refused(apus::models::Qwen2& model, apus::comm::Communicator& dp) {
  try {
    apus::parallel::ShardedModel engine(model, dp, {});
  } catch (const apus::ConfigError& error) {
    std::cout << "refused as it should be: " << error.what() << "\n";
    return true;
  }
  return false;
}

}  // namespace

int main() {
  const auto dp = apus::comm::GlooCommunicator::create(apus::comm::make_hash_store(), {});
  apus::models::Qwen2 model({.vocab_size = kVocabulary}, at::kFloat);
  apus::models::init_random(model, {.seed = 1});
  if (!frozen_model_is_refused(model, *dp)) return 1;
  const double loss = train_one_step(model, *dp);
  std::cout << "loss " << loss << "\n";
  return std::abs(loss - std::log(double{kVocabulary})) < 0.2 ? 0 : 1;
}
