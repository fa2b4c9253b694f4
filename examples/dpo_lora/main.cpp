// DPO with LoRA under ZeRO-2 on any number of CPU ranks, written against the library.
//
//   dpo_lora MODEL_FOLDER TRAIN.jsonl EVAL.jsonl OUT_FOLDER [MAX_STEPS]
//
// Alone it is one rank; under `torchrun --no-python --nproc_per_node=4` or Slurm it takes its place from
// their variables. The program `apus dpo` does the same with flags, checkpoints and resuming.
#include <apus/base/clock.h>
#include <apus/base/env.h>
#include <apus/base/log.h>
#include <apus/comm/gloo_communicator.h>
#include <apus/comm/launch_environment.h>
#include <apus/data/collator.h>
#include <apus/data/prepare.h>
#include <apus/data/tokenizer_config.h>
#include <apus/models/pretrained.h>
#include <apus/parallel/sharded_model.h>
#include <apus/peft/adapter_file.h>
#include <apus/peft/lora.h>
#include <apus/train/dpo_trainer.h>

#include <iostream>
#include <nlohmann/json.hpp>

namespace {

constexpr int64_t kMaxLength = 128;     // tokens; longer pairs are left out
constexpr int64_t kMicroBatchRows = 2;  // pairs in one pass of a rank
constexpr int64_t kPairsAStep = 8;      // over all ranks

struct Arguments {
  std::string model, train, eval, out;
  int64_t max_steps = -1;
};

/// Where this process stands among the ranks, and how it talks to them.
std::unique_ptr<apus::comm::Communicator> join_world() {
  const auto launch = apus::comm::resolve_launch(apus::Environment::from_process());
  const bool one_machine = launch.local_world_size == launch.world_size;
  return apus::comm::GlooCommunicator::create(
      apus::comm::rendezvous(launch),
      {.rank = launch.rank,
       .size = launch.world_size,
       .device = one_machine ? apus::comm::GlooDevice::create() : apus::comm::GlooDevice::create_default()});
}

/// The adapter goes onto the model in place: low-rank updates of every projection but the vocabulary's.
apus::peft::LoraSummary put_adapter(const apus::models::PretrainedModel& loaded) {
  apus::peft::LoraConfig config{.r = 16, .lora_alpha = 32, .base_model_name_or_path = loaded.folder.string()};
  config.targets.all_linear = true;
  return apus::peft::apply_lora(*loaded.model, config, "default", {.seed = 42});
}

/// Reads and tokenises preference pairs, as the tokenizer's chat template says.
std::shared_ptr<const apus::data::DpoDataset> read_pairs(const std::string& file,
                                                         const apus::data::TokenizerFolder& tokenizer,
                                                         apus::Logger& logger) {
  apus::SystemClock clock;
  return apus::data::prepare_dpo(
      tokenizer, {.read = {.files = {file}, .max_length = kMaxLength}, .encode = {.clock = &clock}}, logger);
}

apus::train::DpoTrainerOptions trainer_options(const Arguments& arguments, int world, int64_t pad_id) {
  apus::train::DpoTrainerOptions options{.dpo = {.loss = {.beta = 0.1}, .policy_adapters = {"default"}}};
  options.trainer.num_train_epochs = 2;
  options.trainer.max_steps = arguments.max_steps;
  options.trainer.micro_batch_rows = kMicroBatchRows;
  options.trainer.eval_batch_rows = 4;
  options.trainer.accumulation = std::max<int64_t>(1, kPairsAStep / (kMicroBatchRows * world));
  options.trainer.collate.pad_id = pad_id;
  options.trainer.warmup.warmup_ratio = 0.03;
  options.trainer.update = {.lr = 1e-3, .weight_decay = 0.1, .max_grad_norm = 1.0};
  options.trainer.logging_steps = 5;
  options.trainer.eval_steps = 0;  // at the end only
  return options;
}

void train(const Arguments& arguments, apus::comm::Communicator& world) {
  const bool first = world.rank() == 0;

  // A model folder in Hugging Face layout; its weights come frozen, so only the adapter is trained.
  apus::models::ModelRegistry registry;
  apus::models::register_builtin_models(registry);
  const auto loaded = apus::models::load_pretrained(arguments.model, registry, {.dtype = at::kFloat});
  const auto tokenizer = apus::data::load_tokenizer_folder(arguments.model);
  const apus::peft::LoraSummary adapter = put_adapter(loaded);

  const auto console = apus::make_console_logger();
  apus::NullLogger silent;
  apus::Logger& logger = first ? *console : silent;
  const auto pairs = read_pairs(arguments.train, tokenizer, logger);
  const auto held_out = read_pairs(arguments.eval, tokenizer, logger);

  // Gradients, fp32 masters and moments are cut over the ranks; each block is run again in backward.
  apus::parallel::ShardedModel sharded(
      *loaded.model, world,
      {.policy = apus::parallel::Zero2(), .recompute = apus::parallel::Recompute::kBlock});

  apus::SystemClock clock;
  apus::train::TrainerContext context{.clock = &clock, .logger = &logger};
  context.callbacks.on_log = [&](const std::string& line, const nlohmann::ordered_json&) {
    logger.info(line);
  };
  apus::train::DpoTrainer trainer(
      sharded, trainer_options(arguments, world.size(), apus::data::padding_id(tokenizer)), context);
  const apus::train::RunSummary summary = trainer.run(pairs, held_out);

  // Every rank takes part in gathering the shards; one of them writes what PEFT reads.
  const auto masters = sharded.gather_masters();
  if (first) apus::peft::save_adapter(arguments.out, adapter.config, masters, "default");
  logger.info(std::to_string(summary.steps) + " steps in " + std::to_string(summary.seconds) +
              " s; adapter in " + arguments.out);
}

/// One rank's error must not leave the others waiting for it: they stop with its message.
void train_together(const Arguments& arguments) {
  const auto world = join_world();
  try {
    train(arguments, *world);
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::cerr << "usage: dpo_lora MODEL_FOLDER TRAIN.jsonl EVAL.jsonl OUT_FOLDER [MAX_STEPS]\n";
    return 2;
  }
  try {
    train_together({.model = argv[1],
                    .train = argv[2],
                    .eval = argv[3],
                    .out = argv[4],
                    .max_steps = argc == 6 ? std::stoll(argv[5]) : -1});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
