// A model that apus does not know, from its base to a preference-tuned adapter: docs/guide/add_a_model.md,
// step by step. Two ranks, here two threads.
//
//   custom_model FOLDER
//
// FOLDER/base gets a base model in Hugging Face layout, trained whole under ZeRO-2; it is loaded again
// through a registry that knows it, tuned by SFT and by DPO with LoRA, and FOLDER/adapter is what PEFT would
// call its adapter.
#include <apus/base/clock.h>
#include <apus/base/error.h>
#include <apus/base/log.h>
#include <apus/comm/gloo_communicator.h>
#include <apus/comm/store.h>
#include <apus/data/dataset.h>
#include <apus/models/init_random.h>
#include <apus/models/pretrained.h>
#include <apus/parallel/sharded_model.h>
#include <apus/peft/adapter_file.h>
#include <apus/peft/lora.h>
#include <apus/train/dpo_trainer.h>
#include <apus/train/sft_trainer.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include "parallel_lm.h"

namespace {

namespace fs = std::filesystem;
using apus::train::StepReport;

constexpr int kRanks = 2;
constexpr const char* kAdapter = "default";

/// A row that counts on from `start`: the next token follows from the two before it.
std::vector<int32_t> counted(int32_t start, int32_t stride, int32_t length) {
  const auto vocab = static_cast<int32_t>(example::ParallelConfig{}.vocab_size);
  std::vector<int32_t> ids;
  for (int32_t place = 0; place < length; ++place)
    ids.push_back(((start + place * stride) % vocab + vocab) % vocab);
  return ids;
}

/// Rows of one stride or of several.
std::shared_ptr<const apus::data::SftDataset> counting_rows(int32_t least, int32_t most) {
  std::vector<apus::data::SftRow> rows;
  for (int32_t row = 0; row < 32; ++row) {
    apus::data::SftRow item{.input_ids = counted(row * 7, least + row % (most - least + 1), 12)};
    item.labels = item.input_ids;
    rows.push_back(std::move(item));
  }
  return std::make_shared<apus::data::SftDataset>(std::move(rows));
}

/// Pairs that prefer counting by one to counting by two, after a prompt that says neither.
std::shared_ptr<const apus::data::DpoDataset> counting_pairs() {
  std::vector<apus::data::DpoRow> rows;
  for (int32_t row = 0; row < 32; ++row) {
    rows.push_back({.prompt_ids = {row * 2 % 64},
                    .chosen_ids = counted(row * 2 + 1, 1, 6),
                    .rejected_ids = counted(row * 2 + 2, 2, 6)});
  }
  return std::make_shared<apus::data::DpoDataset>(std::move(rows));
}

apus::train::TrainerOptions trainer_options(int64_t steps, double learning_rate) {
  apus::train::TrainerOptions options;
  options.max_steps = steps;
  options.micro_batch_rows = 4;
  options.update.lr = learning_rate;
  return options;
}

/// What one rank has: its communicator and the losses of each stage.
struct Rank {
  apus::comm::Communicator& world;
  fs::path folder;
  apus::SystemClock clock = {};
  apus::NullLogger logger = {};
  std::vector<double> base = {}, sft = {}, dpo = {};

  bool is_first() const { return world.rank() == 0; }
  apus::train::TrainerContext context(std::vector<double>& losses) {
    apus::train::TrainerContext made{.clock = &clock, .logger = &logger};
    made.callbacks.on_step = [&losses](const StepReport& report) { losses.push_back(report.loss); };
    return made;
  }
};

/// A base: all parameters trained under ZeRO-2, then written in Hugging Face layout. gather_masters() is
/// called by every rank; one writes.
void make_base(Rank& rank) {
  const example::ParallelConfig config;
  example::ParallelLm model(config, at::kFloat);
  apus::models::init_random(model, {.seed = 1, .standard_deviation = 0.1});
  apus::nn::make_trainable(model);
  apus::parallel::ShardedModel sharded(model, rank.world, {.policy = apus::parallel::Zero2()});
  apus::train::SftTrainer(sharded, {.trainer = trainer_options(40, 1e-2)}, rank.context(rank.base))
      .run(counting_rows(1, 4));
  const auto parameters = sharded.gather_masters();
  if (rank.is_first())
    apus::models::save_pretrained(rank.folder / "base", example::parallel_config_json(config), parameters);
  rank.world.barrier();
}

/// Step 5: a registry that knows the model loads its folder.
apus::models::PretrainedModel load_base(const fs::path& folder) {
  apus::models::ModelRegistry registry;
  apus::models::register_builtin_models(registry);
  registry.add(example::parallel_lm_spec());
  return apus::models::load_pretrained(folder, registry);
}

/// Step 6: LoRA by the names of the model's own projections.
apus::peft::LoraSummary put_adapter(apus::nn::CausalLm& model) {
  apus::peft::LoraConfig config{.r = 8, .lora_alpha = 16};
  config.targets = apus::peft::LoraTargets::from_names({"qkv_proj", "o_proj", "up_proj", "down_proj"});
  return apus::peft::apply_lora(model, config, kAdapter, {.seed = 2});
}

/// Step 7: the trainers, over one model and one adapter; the base is sharded over the ranks, too.
void tune(Rank& rank) {
  const auto loaded = load_base(rank.folder / "base");
  const apus::peft::LoraSummary adapter = put_adapter(*loaded.model);
  apus::parallel::ShardedModel sharded(
      *loaded.model, rank.world,
      {.policy = apus::parallel::Zero3(), .recompute = apus::parallel::Recompute::kBlock});
  apus::train::SftTrainer(sharded, {.adapters = {kAdapter}, .trainer = trainer_options(40, 1e-2)},
                          rank.context(rank.sft))
      .run(counting_rows(5, 6));
  apus::train::DpoTrainer(
      sharded,
      {.dpo = {.loss = {.beta = 0.1}, .policy_adapters = {kAdapter}}, .trainer = trainer_options(30, 5e-3)},
      rank.context(rank.dpo))
      .run(counting_pairs());
  const auto masters = sharded.gather_masters();
  if (rank.is_first())
    apus::peft::save_adapter((rank.folder / "adapter").string(), adapter.config, masters, kAdapter);
}

void show(const std::string& stage, const std::vector<double>& losses, double at_most) {
  std::cout << stage << ": loss " << losses.front() << " -> " << losses.back() << " in " << losses.size()
            << " steps\n";
  APUS_CHECK(std::isfinite(losses.back()) && losses.back() < at_most * losses.front(), Error, stage,
             ": the loss fell from ", losses.front(), " to ", losses.back(), " only");
}

/// Starts the ranks as threads; a real job has one process a rank (see ../dpo_lora).
void run_ranks(const std::function<void(apus::comm::Communicator&)>& body) {
  const auto store = apus::comm::make_hash_store();
  const auto device = apus::comm::GlooDevice::create();
  std::exception_ptr errors[kRanks];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<apus::comm::Communicator> world;
      try {
        world = apus::comm::GlooCommunicator::create(store, {.rank = rank, .size = kRanks, .device = device});
        body(*world);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        if (world) world->abort(error.what());  // the other rank must not wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void run_rank(apus::comm::Communicator& world, const fs::path& folder) {
  Rank rank{.world = world, .folder = folder};
  make_base(rank);
  tune(rank);
  if (!rank.is_first()) return;
  show("base", rank.base, 0.5);
  show("SFT with LoRA", rank.sft, 0.7);
  show("DPO with LoRA", rank.dpo, 0.8);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: custom_model FOLDER\n";
    return 2;
  }
  try {
    run_ranks([&](apus::comm::Communicator& world) { run_rank(world, argv[1]); });
    const apus::models::PretrainedModel base = load_base(fs::path(argv[1]) / "base");
    std::cout << "a token of 12 costs " << base.token_flops(12).train() << " FLOP; adapter in " << argv[1]
              << "/adapter\n";
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
