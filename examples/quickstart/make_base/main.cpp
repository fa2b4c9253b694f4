// Makes the quickstart's base model: a Qwen2.5-architecture model of 1.2 million parameters, drawn at random
// from a seed and trained on ../data/corpus.jsonl, written beside the tokenizer in ../base.
//
//   make_base BASE_FOLDER CORPUS.jsonl
//
// Every token but the first of each conversation is trained, questions included: this is the base's
// pre-training, not a chat tuning. It must know how questions sound too, and DPO trains the newline after the
// end-of-turn token, which a mask over assistant turns would leave at random.
#include <apus/base/clock.h>
#include <apus/base/env.h>
#include <apus/base/error.h>
#include <apus/base/file.h>
#include <apus/base/json.h>
#include <apus/base/log.h>
#include <apus/comm/gloo_communicator.h>
#include <apus/comm/launch_environment.h>
#include <apus/data/chat_template.h>
#include <apus/data/collator.h>
#include <apus/data/row_stream.h>
#include <apus/data/tokenizer_config.h>
#include <apus/models/init_random.h>
#include <apus/models/pretrained.h>
#include <apus/models/qwen2.h>
#include <apus/parallel/sharded_model.h>
#include <apus/train/sft_trainer.h>

#include <iostream>

namespace {

constexpr uint64_t kSeed = 20;
constexpr double kEpochs = 4;
constexpr int64_t kRowsAStep = 16;
constexpr double kLearningRate = 3e-3;

apus::models::Qwen2Config base_config(int64_t vocab_size) {
  return {.vocab_size = vocab_size,
          .hidden_size = 128,
          .intermediate_size = 384,
          .num_hidden_layers = 4,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 32,
          .max_position_embeddings = 512,
          .rms_norm_eps = 1e-6,
          .rope_theta = 10000.0,
          .tie_word_embeddings = true};
}

apus::data::ChatTemplate chat_template(const apus::data::TokenizerFolder& folder) {
  APUS_CHECK(folder.chat_template, ConfigError, "the tokenizer has no chat template");
  return apus::data::ChatTemplate(apus::data::JinjaTemplate::parse(*folder.chat_template, "chat_template"),
                                  {.eos = folder.config.eos_token, .pad = folder.config.pad_token});
}

std::shared_ptr<const apus::data::SftDataset> read_corpus(const std::string& path,
                                                          const apus::data::TokenizerFolder& folder) {
  const apus::data::ChatTemplate chat = chat_template(folder);
  apus::data::RowStream file(apus::data::parse_dataset_source(path));
  apus::data::RowBlock block;
  std::vector<apus::data::SftRow> rows;
  while (file.next(block)) {
    for (int64_t index = 0; index < block.size(); ++index) {
      const auto json = apus::parse_ordered_json(block.text(index), path, block.line(index));
      apus::data::SftRow row{.input_ids = folder.tokenizer->encode(chat.render(json.at("messages")))};
      row.labels = row.input_ids;
      row.labels.front() = apus::data::kIgnoredLabel;
      row.place.line = block.line(index);
      rows.push_back(std::move(row));
    }
  }
  return std::make_shared<apus::data::SftDataset>(std::move(rows),
                                                  apus::data::DatasetOrigin{.files = {path}});
}

/// The folder's remaining files; the weights are rounded to bfloat16, which halves what the repository keeps.
void write_model(const std::string& folder, const apus::models::Qwen2& model,
                 const apus::data::TokenizerFolder& tokenizer) {
  auto parameters = model.named_parameters();
  for (auto& parameter : parameters) parameter.tensor = parameter.tensor.detach().to(at::kBFloat16);
  apus::models::save_pretrained(folder, apus::models::qwen2_config_json(model.config(), at::kBFloat16),
                                parameters);
  const nlohmann::ordered_json generation{{"do_sample", false},
                                          {"eos_token_id", *tokenizer.eos_id},
                                          {"pad_token_id", apus::data::padding_id(tokenizer)}};
  apus::write_file_atomic(folder + "/generation_config.json",
                          apus::dump_json(generation, {.indent = 2}) + "\n");
}

void make_base(const std::string& folder, const std::string& corpus) {
  const auto launch = apus::comm::resolve_launch(apus::Environment::from_process());
  const auto world = apus::comm::GlooCommunicator::create(apus::comm::rendezvous(launch),
                                                          {.rank = launch.rank, .size = launch.world_size});
  const apus::data::TokenizerFolder tokenizer = apus::data::load_tokenizer_folder(folder);
  const auto rows = read_corpus(corpus, tokenizer);

  apus::models::Qwen2 model(base_config(tokenizer.tokenizer->id_limit()), at::kFloat);
  apus::models::init_random(model, {.seed = kSeed});
  apus::nn::make_trainable(model);
  apus::parallel::ShardedModel sharded(
      model, *world, {.policy = apus::parallel::Zero2(), .recompute = apus::parallel::Recompute::kNone});
  apus::train::SftTrainerOptions options;
  options.trainer.num_train_epochs = kEpochs;
  options.trainer.micro_batch_rows = std::max<int64_t>(1, kRowsAStep / world->size());
  options.trainer.data_seed = kSeed;
  options.trainer.collate = {.layout = apus::data::BatchLayout::kPacked};
  options.trainer.warmup.warmup_ratio = 0.05;
  options.trainer.update.lr = kLearningRate;
  options.trainer.logging_steps = 25;
  apus::SystemClock clock;
  apus::NullLogger silent;
  apus::train::TrainerContext context{.clock = &clock, .logger = &silent};
  context.callbacks.on_log = [&](const std::string& line, const nlohmann::ordered_json&) {
    if (world->rank() == 0) std::cout << line << std::endl;
  };
  const auto summary = apus::train::SftTrainer(sharded, options, context).run(rows);
  if (world->rank() == 0) write_model(folder, model, tokenizer);
  if (world->rank() == 0) std::cout << summary.steps << " steps in " << summary.seconds << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_base BASE_FOLDER CORPUS.jsonl\n";
    return 2;
  }
  try {
    make_base(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
