#include "apus/train/job.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/checkpoint/checkpoint.h"
#include "apus/comm/agreed_phase.h"
#include "apus/comm/device_mesh.h"
#include "apus/data/packing.h"
#include "apus/data/prepare.h"
#include "apus/models/pretrained.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/job_settings.h"
#include "apus/train/run_directory.h"
#include "train/run_lock.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// A number of the model's config.
int64_t config_number(const models::PretrainedModel& model, const std::string& key) {
  const std::string source = (model.folder / "config.json").string();
  const nlohmann::json config = parse_json(model.config_json, source);
  return JsonView(config, source).require<int64_t>(key);
}

/// A loaded adapter's own settings stand; a flag that says otherwise is refused, not ignored.
void take_adapter_settings(JobOptions& options, const peft::LoraConfig& adapter) {
  const JobOptions defaults;
  const auto take = [&](const std::string& flag, auto& option, const auto& unset, const auto& own) {
    APUS_CHECK(option == unset || option == own, ConfigError, "--", flag,
               " differs from that of --adapters ", options.adapters,
               " (its adapter_config.json decides); leave the flag out, or train a new adapter without --adapters");
    option = own;
  };
  take("lora_rank", options.lora_rank, defaults.lora_rank, adapter.r);
  take("lora_alpha", options.lora_alpha, defaults.lora_alpha, adapter.lora_alpha);
  take("lora_dropout", options.lora_dropout, defaults.lora_dropout, adapter.lora_dropout);
  take("use_rslora", options.use_rslora, defaults.use_rslora, adapter.use_rslora);
  take("target_regex", options.target_regex, defaults.target_regex, adapter.targets.regex);
  std::sort(options.target_modules.begin(), options.target_modules.end());
  std::vector<std::string> targets = adapter.targets.names;
  std::sort(targets.begin(), targets.end());
  take("target_modules", options.target_modules, defaults.target_modules, targets);
}

/// One run of the main job on one rank.
class TrainingJob {
 public:
  TrainingJob(const JobOptions& options, const JobContext& context)
      : context_(context), options_(resolve_job(options, context.world->size())) {}

  JobSummary run() {
    context_.logger->info(detail::concat("world_size=", world().size(), ", rank=", world().rank(),
                                         ", local_rank=", context_.launch.local_rank));
    comm::run_agreed(world(), "loading model and data", [&] { load(); });
    say("Using deepspeed config: " + dump_json(strategy_json(options_, world().size())));
    mesh_.emplace(context_.world, comm::MeshOptions{});
    decide();
    if (decision_.was_complete) return already_complete();
    build_engine();
    return train();
  }

 private:
  comm::Communicator& world() { return *context_.world; }
  bool is_first() { return context_.world->rank() == 0; }

  void say(const std::string& line) {
    if (is_first()) context_.logger->info(line);
  }

  void load() {
    tokenizer_ = data::load_tokenizer_folder(options_.model);
    models::ModelRegistry registry;
    models::register_builtin_models(registry);
    models::LoadOptions load;
    if (options_.torch_dtype) load.dtype = *options_.torch_dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
    model_ = models::load_pretrained(options_.model, registry, load);
    options_.torch_dtype = model_.dtype == at::kBFloat16 ? "bfloat16" : "float32";
    settle_max_length();
    check_data(options_, options_.max_length);
    put_adapter();
    NullLogger silent;
    Logger& logger = is_first() ? *context_.logger : silent;
    train_data_ = data::prepare_dpo(tokenizer_, prepare(DatasetPart::kTrain), logger);
    train_ = train_data_;
    if (!options_.val_dataset.empty()) held_out_ = data::prepare_dpo(tokenizer_, prepare(DatasetPart::kHeldOut), logger);
    if (options_.split_dataset_ratio > 0) split();
    if (options_.packing) pack();
  }

  void settle_max_length() {
    const std::string source = (model_.folder / "config.json").string();
    const nlohmann::json config = parse_json(model_.config_json, source);
    const JsonView view(config, source);
    const auto maximum = view.find<int64_t>("max_position_embeddings");
    const std::string warning = length_warning(options_.max_length, maximum);
    if (!warning.empty() && is_first()) context_.logger->warning(warning);
    if (!options_.max_length) options_.max_length = view.require<int64_t>("max_position_embeddings");
  }

  data::DpoPrepareOptions prepare(DatasetPart part) {
    data::DpoPrepareOptions options = prepare_options(options_, part, *options_.max_length, *context_.clock);
    options.read.cache_folder = context_.cache_folder;
    return options;
  }

  /// Evaluation takes rows as they are, so that its figures do not depend on packing.
  void pack() {
    const data::PackingOptions packing = packing_options(options_, *options_.max_length);
    options_.packing_length = packing.packing_length;
    const auto packs = std::make_shared<data::PackedDataset>(train_, packing);
    train_ = packs;
    packing_ = packs->report();
  }

  void split() {
    auto parts = data::split_dataset(train_, {.ratio = options_.split_dataset_ratio,
                                              .seed = static_cast<uint64_t>(*options_.data_seed)});
    train_ = parts.train;
    held_out_ = parts.held_out;
  }

  /// Adapters stay fp32 here: the engine keeps those values as masters and computes in the model's dtype.
  void put_adapter() {
    if (options_.adapters.empty()) {
      adapter_ = peft::apply_lora(*model_.model, lora_config(options_), kPolicyAdapter,
                                  {.seed = static_cast<uint64_t>(options_.seed)});
      return;
    }
    const peft::LoadedAdapter loaded = peft::load_adapter(options_.adapters, *model_.model, kPolicyAdapter);
    for (const std::string& warning : loaded.warnings) {
      if (is_first()) context_.logger->warning(warning);
    }
    adapter_ = loaded.summary;
    take_adapter_settings(options_, adapter_.config);
  }

  /// Rank 0 decides which run this is; all follow.
  void decide() {
    std::string fingerprint = train_->origin().fingerprint;
    if (held_out_) fingerprint += " " + held_out_->origin().fingerprint;
    args_ = to_json(options_);
    args_["world_size"] = world().size();
    args_["data_fingerprint"] = fingerprint;
    std::string text;
    comm::run_agreed(world(), "choosing the output directory", [&] {
      if (!is_first()) return;
      decision_ = decide_run(args_, {.output_dir = options_.output_dir,
                                     .add_version = options_.add_version,
                                     .overwrite = options_.overwrite,
                                     .resume = options_.resume_from_checkpoint}, *context_.clock);
      if (!decision_.was_complete) {
        lock_.emplace(decision_.run_dir);
        open_run(decision_, args_);
      }
      text = nlohmann::json{{"run_dir", decision_.run_dir.string()},
                            {"checkpoint", decision_.checkpoint.value_or("").string()},
                            {"complete", decision_.was_complete}}.dump();
    });
    const nlohmann::json agreed = nlohmann::json::parse(comm::broadcast_text(world(), text));
    decision_.run_dir = agreed.at("run_dir").get<std::string>();
    decision_.was_complete = agreed.at("complete").get<bool>();
    const auto checkpoint = agreed.at("checkpoint").get<std::string>();
    if (!checkpoint.empty()) decision_.checkpoint = checkpoint;
    for (const std::string& line : decision_.differences) say("not resumed: " + line);
    for (const std::string& line : decision_.damaged) {
      context_.logger->warning("passed over a damaged checkpoint: " + line);
    }
  }

  JobSummary already_complete() {
    say(detail::concat("The run in ", decision_.run_dir.string(), " is complete: nothing to do. Change an argument, or give "
                       "--overwrite true, to train again."));
    JobSummary summary{.run_dir = decision_.run_dir, .was_complete = true, .finished = true};
    const auto checkpoints = checkpoint::whole_checkpoints(decision_.run_dir);
    if (!checkpoints.empty()) {
      summary.last_checkpoint = checkpoints.back().path;
      summary.steps = checkpoints.back().step;
    }
    return summary;
  }

  void build_engine() {
    engine_.emplace(*model_.model, *mesh_->group("dp"), engine_options(options_));
    int64_t all = 0;
    for (const auto& parameter : model_.model->named_parameters()) all += parameter.tensor.numel();
    const DpoOptions dpo = dpo_options(options_);
    if (!dpo.reference.adapters.empty()) peft::copy_adapter(*model_.model, kPolicyAdapter, kReferenceAdapter);
    say("Reference: " + dpo.reference.sentence());
    const int64_t trainable = engine_->trainable_elements();
    say(detail::concat("Trainable parameters: ", trainable, " of ", all, " (",
                       static_cast<double>(trainable * 10000 / all) / 100.0, " %), LoRA rank ", adapter_.config.r,
                       " on ", adapter_.modules.size(), " projections"));
    say_data();
    say("Output: " + decision_.run_dir.string());
  }

  void say_data() {
    say(data::describe_first_pair(*train_data_, *tokenizer_.tokenizer));
    if (packing_) {
      say(detail::concat("Packing: ", packing_->rows, " pairs in ", packing_->packs, " packs of ",
                         *options_.packing_length, " tokens, ", std::llround(100 * packing_->efficiency()),
                         " % full; ", packing_->oversized, " pairs are longer and stand alone (a pair has up to "
                         "twice --max_length tokens); a row of --per_device_train_batch_size is a pack"));
    }
    say(balance_text(options_, world().size()));
    const std::string margins = is_first() ? margin_text(*train_data_) : "";
    if (!margins.empty()) say(margins);
  }

  JobSummary train() {
    TrainerState state;
    if (decision_.checkpoint) {
      const std::string source = (*decision_.checkpoint / "trainer_state.json").string();
      const std::string text = checkpoint::load_checkpoint(*decision_.checkpoint, *engine_);
      state = trainer_state_from_json(parse_json(text, source), source);
      say(detail::concat("Resuming from ", decision_.checkpoint->string(), " at step ", state.global_step));
    }
    TrainerContext surroundings{.clock = context_.clock, .logger = context_.logger.get(), .stop = context_.stop};
    surroundings.callbacks.on_log = [&](const std::string& line, const nlohmann::ordered_json& record) {
      if (!is_first()) return;
      context_.logger->info(line);
      append_log(decision_.run_dir, record);
    };
    surroundings.callbacks.on_save = [&](const TrainerState& now) { save(now); };
    TrainerOptions loop = trainer_options(options_, tokenizer_);
    loop.balance = balance_model(options_, world().size(), config_number(model_, "hidden_size"));
    DpoTrainer trainer(*engine_, {.dpo = dpo_options(options_), .trainer = std::move(loop)}, surroundings);
    const RunSummary result = trainer.run(train_, held_out_, state);
    settle(state, result);
    JobSummary summary{.run_dir = decision_.run_dir, .last_checkpoint = last_saved_, .steps = result.steps,
                       .finished = result.finished};
    if (result.finished) conclude(result, result.steps > state.global_step);
    return summary;
  }

  /// A run that had no step left (it was killed after its last save, or was started from a finished checkpoint)
  /// still owes its folder a checkpoint and its links.
  void settle(const TrainerState& state, const RunSummary& result) {
    if (!last_saved_.empty() || !result.finished || !decision_.checkpoint) return;
    std::string kept;
    if (is_first()) {
      for (const auto& found : checkpoint::whole_checkpoints(decision_.run_dir)) {
        if (found.step == state.global_step) kept = found.path.string();
      }
    }
    last_saved_ = comm::broadcast_text(world(), kept);
    if (last_saved_.empty()) return save(state);
    if (is_first()) tidy_checkpoints(decision_.run_dir, options_.save_total_limit);
  }

  void save(const TrainerState& state) {
    const checkpoint::CheckpointContents contents{
        .write_weights = [&](const fs::path& folder, const std::vector<nn::NamedParameter>& masters) {
          peft::save_adapter(folder.string(), adapter_.config, saved_adapter(masters), kPolicyAdapter);
          write_args(folder);
        },
        .trainer_state = [&] { return to_json(state); }};
    last_saved_ = checkpoint::save_checkpoint(decision_.run_dir, state.global_step, *engine_, contents);
    if (is_first()) tidy_checkpoints(decision_.run_dir, options_.save_total_limit);
    say("Saved " + last_saved_.string());
  }

  std::vector<nn::NamedParameter> saved_adapter(std::vector<nn::NamedParameter> masters) {
    if (options_.lora_dtype == "bfloat16") {
      for (auto& parameter : masters) parameter.tensor = parameter.tensor.to(at::kBFloat16);
    }
    return masters;
  }

  void write_args(const fs::path& folder) {
    write_file_atomic(folder / "args.json", dump_json(args_, {.indent = 2}) + "\n");
  }

  void conclude(const RunSummary& result, bool has_trained) {
    if (is_first()) finish_run(decision_.run_dir, result.steps);
    say(train_->origin().report.summary());
    const std::string loss = has_trained ? detail::concat("; last loss ", result.last_loss) : "";
    say(detail::concat("Finished ", result.steps, " steps", loss, "; adapter in ", last_saved_.string()));
  }

  JobContext context_;
  JobOptions options_;
  data::TokenizerFolder tokenizer_;
  models::PretrainedModel model_;
  peft::LoraSummary adapter_;
  std::shared_ptr<const data::DpoDataset> train_data_;
  std::shared_ptr<const data::Dataset> train_, held_out_;
  std::optional<data::PackingReport> packing_;
  std::optional<comm::DeviceMesh> mesh_;
  nlohmann::ordered_json args_;
  RunDecision decision_;
  std::optional<RunLock> lock_;  // rank 0
  std::optional<parallel::ShardedModel> engine_;
  fs::path last_saved_;
};

}  // namespace

JobSummary run_job(const JobOptions& options, const JobContext& context) {
  APUS_CHECK(context.world && context.logger && context.clock, ConfigError,
             "a job needs a communicator, a logger and a clock");
  try {
    return TrainingJob(options, context).run();
  } catch (const std::exception& error) {
    context.world->abort(error.what());
    throw;
  }
}

}  // namespace apus::train
