#include "apus/train/job.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/checkpoint/checkpoint.h"
#include "apus/checkpoint/merge_adapter.h"
#include "apus/checkpoint/merge_places.h"
#include "apus/comm/agreed_phase.h"
#include "apus/comm/device_mesh.h"
#include "apus/train/curve.h"
#include "apus/train/dpo_trainer.h"
#include "apus/train/event_file.h"
#include "apus/train/job_settings.h"
#include "apus/train/run_directory.h"
#include "apus/train/sft_trainer.h"
#include "train/job_data.h"
#include "train/job_device.h"
#include "train/job_engine.h"
#include "train/job_folder.h"
#include "train/job_model.h"
#include "train/job_report.h"
#include "train/job_save.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// One run of a job on one rank.
class TrainingJob {
 public:
  TrainingJob(const JobOptions& options, const JobContext& context)
      : context_(context),
        device_(job_device(context)),
        options_(resolve_job(options, context.world->size(),
                             device_.is_cuda() ? JobDevice::kGpu : JobDevice::kCpu)),
        scope_(device_, options_.full_determinism) {}

  JobSummary run() {
    try {
      return run_to_end();
    } catch (const c10::OutOfMemoryError& error) {
      if (folder_) folder_->discard();
      throw OutOfMemory(out_of_memory_text(error.what(), device_, plan_.plan));
    } catch (const std::exception&) {
      if (folder_) folder_->discard();
      throw;
    }
  }

 private:
  JobSummary run_to_end() {
    context_.logger->info(detail::concat("world_size=", world().size(), ", rank=", world().rank(),
                                         ", local_rank=", context_.launch.local_rank));
    comm::run_agreed(world(), "checking --output_dir", [&] {
      if (is_first()) check_output_dir();
    });
    comm::run_agreed(world(), "loading model and data", [&] { load(); });
    say((options_.fsdp.empty() ? "Using deepspeed config: " : "Using fsdp config: ") +
        dump_json(strategy_json(options_, layout(), total_steps())));
    if (!strategy_note(options_).empty()) say(strategy_note(options_));
    decide();
    if (folder_->decision().was_complete) return already_complete();
    build_engine();
    return train();
  }

  comm::Communicator& world() { return *context_.world; }
  bool is_first() { return context_.world->rank() == 0; }
  bool is_dpo() const { return options_.task == "dpo"; }
  RankLayout layout() { return {.world = world().size(), .local_world = context_.launch.local_world_size}; }
  Logger& first_logger() { return is_first() ? *context_.logger : static_cast<Logger&>(silent_); }

  const fs::path& run_dir() const { return folder_->decision().run_dir; }
  /// What the run goes on from.
  const std::optional<fs::path>& resumed_from() const { return folder_->decision().checkpoint; }

  void say(const std::string& line) { first_logger().info(line); }

  void check_output_dir() {
    require_writable(options_.output_dir);
    std::error_code absent;
    APUS_CHECK(options_.add_version || !fs::equivalent(options_.output_dir, options_.model, absent),
               ConfigError, "--output_dir ", options_.output_dir,
               " is the folder of --model; choose another one");
  }

  void load() {
    Logger& logger = first_logger();
    const fs::path folder = options_.model;
    APUS_CHECK(fs::exists(folder / "config.json") || !fs::exists(folder / "adapter_config.json"), ConfigError,
               "--model ", options_.model, " is an adapter; give it to --adapters, and its base to --model");
    tokenizer_ = load_job_tokenizer(options_, logger);
    limits_ = read_model_limits(options_, tokenizer_, logger);
    APUS_CHECK(limits_.max_length, ConfigError,
               "--max_length is missing: neither config.json nor the tokenizer of ", options_.model,
               " says how long rows may be");
    options_.max_length = limits_.max_length;
    check_data(options_, limits_.max_length);
    model_ = load_job_model(options_, logger);
    rows_ = prepare_job_rows(options_, {.task = job_data_task(options_),
                                        .tokenizer = &tokenizer_,
                                        .max_length = limits_.max_length,
                                        .clock = context_.clock,
                                        .logger = &logger,
                                        .cache_folder = context_.cache_folder});
    if (rows_.packing)
      options_.packing_length = packing_options(options_, *limits_.max_length).packing_length;
    train_ = rows_.train;
    held_out_ = rows_.held_out;
  }

  /// As the trainer counts them.
  int64_t total_steps() {
    const data::StepPlan plan({.rows = train_->size(),
                               .micro_batch_rows = options_.per_device_train_batch_size,
                               .world = world().size(),
                               .accumulation = options_.gradient_accumulation_steps.value_or(1),
                               .drop_last = options_.dataloader_drop_last});
    return options_.max_steps > 0 ? options_.max_steps : plan.total_steps(options_.num_train_epochs);
  }

  /// Which run this is.
  void decide() {
    args_ = to_json(options_);
    args_["world_size"] = world().size();
    args_["data_fingerprint"] = rows_.fingerprint();
    args_["data_files"] = rows_.files();
    args_[kModelFolderKey] = fs::absolute(options_.model).lexically_normal().string();
    folder_.emplace(
        world(),
        RunDirectoryOptions{.output_dir = options_.output_dir,
                            .add_version = options_.add_version,
                            .overwrite = options_.overwrite,
                            .resume = options_.resume_from_checkpoint,
                            .resume_only_model = options_.resume_only_model},
        TidyOptions{.save_total_limit = options_.save_total_limit, .metric = options_.metric_for_best_model},
        *context_.clock);
    const RunDecision& decision = folder_->decide(args_);
    for (const std::string& line : decision.differences) say("not resumed: " + line);
    if (!decision.differences.empty())
      say("a new run begins; --resume_from_checkpoint CHECKPOINT goes on from an earlier one all the same");
    if (options_.resume_only_model && !decision.checkpoint && !decision.was_complete)
      say("Weights alone from " + options_.resume_from_checkpoint + ": this run begins at step 0");
    for (const std::string& line : decision.damaged) {
      context_.logger->warning("passed over a damaged checkpoint: " + line);
    }
    if (!decision.damaged.empty() && !decision.checkpoint)
      say("no whole checkpoint is left: starting at step 0");
    for (const std::string& line : decision.named_differences) {
      context_.logger->warning("--resume_from_checkpoint was made with another " + line);
    }
  }

  JobSummary already_complete() {
    say(detail::concat("The run in ", run_dir().string(),
                       " is complete: nothing to do. Change an argument, or give "
                       "--overwrite true, to train again."));
    JobSummary summary{.run_dir = run_dir(), .was_complete = true, .finished = true};
    const auto checkpoints = checkpoint::whole_checkpoints(run_dir());
    if (!checkpoints.empty()) {
      summary.last_checkpoint = checkpoints.back().path;
      summary.steps = checkpoints.back().step;
    }
    std::error_code absent;
    const fs::path last = fs::canonical(run_dir() / "last", absent);
    if (!absent) summary.last_checkpoint = run_dir() / last.filename();
    if (is_first()) {
      summary.report = report_of_complete(run_dir(), summary.last_checkpoint, options_, summary.steps);
    }
    return summary;
  }

  void build_engine() {
    const JobEngineContext around{
        .layout = layout(), .rows = &rows_.all, .logger = &first_logger(), .device = device_};
    plan_ = plan_engine(options_, model_, world(), around);
    load_product_choices(context_, device_);
    engine_.emplace(options_, model_, context_.world, around, plan_.recompute);
    if (is_dpo()) {
      dpo_ = dpo_options(options_);
      dpo_.reference = engine_->reference();
      say("Reference: " + dpo_.reference.sentence());
    }
    say(trainable_text(model_, engine_->model().trainable_elements()));
    say_data();
  }

  void say_data() {
    const bool has_template = rows_.task == data::DataTask::kDpo || rows_.task == data::DataTask::kChat;
    const bool uses_template = has_template && options_.use_chat_template.value_or(true);
    if (uses_template && !tokenizer_.chat_template_source.empty())
      say("Template: " + tokenizer_.chat_template_source);
    say(rows_.all.first_row(*tokenizer_.tokenizer));
    if (rows_.packing) say(packing_text(*rows_.packing, options_));
    say(balance_text(options_, world().size()));
    const std::string margins = is_dpo() && is_first() ? margin_text(*rows_.all.pairs, options_) : "";
    if (!margins.empty()) say(margins);
  }

  /// The reference runs once over all rows, and not in training.
  void precompute() {
    if (!is_dpo() || !options_.precompute_ref_log_probs) return;
    const PrecomputeOptions base =
        precompute_options(options_, model_, tokenizer_, *context_.clock, first_logger());
    const auto ahead = [&](std::shared_ptr<const data::Dataset>& rows, const char* what) {
      if (!rows) return;
      PrecomputeOptions options = base;
      options.cache_folder = context_.cache_folder;
      options.what = what;
      rows = precompute_reference(rows, dpo_.reference, engine_->model(), options);
    };
    ahead(train_, "training");
    ahead(held_out_, "evaluation");
    dpo_.reference.is_precomputed = true;
    engine_->release_reference();
    dpo_.reference.model = nullptr;
  }

  void restore() {
    if (!resumed_from()) return;
    const std::string source = (*resumed_from() / "trainer_state.json").string();
    const auto check =
        folder_->decision().is_checked ? checkpoint::FileCheck::kSizes : checkpoint::FileCheck::kHashes;
    const std::string text = checkpoint::load_checkpoint(*resumed_from(), engine_->model(), check);
    state_ = trainer_state_from_json(parse_json(text, source), source);
    resumed_step_ = state_.global_step;
    say(detail::concat("Resuming from ", resumed_from()->string(), " at step ", state_.global_step));
  }

  JobSummary train() {
    saving_ = {.options = &options_, .model = &model_, .args = args_, .free_space = context_.free_space};
    if (options_.chat_template != "auto") saving_.chat_template = tokenizer_.chat_template.value_or("");
    restore();
    if (!resumed_from()) require_space();
    precompute();
    const TrainerState start = state_;
    const RunSummary result = run_trainer(start);
    settle(start, result);
    if (is_first()) keep_product_choices(context_, device_);
    JobSummary summary{.run_dir = run_dir(),
                       .last_checkpoint = last_saved_,
                       .steps = result.steps,
                       .finished = result.finished};
    if (result.finished) conclude(summary, result);
    return summary;
  }

  RunSummary run_trainer(const TrainerState& start) {
    TrainerOptions loop = trainer_options(options_, tokenizer_);
    loop.balance = balance_model(options_, world().size(), limits_.hidden_size);
    if (plan_.plan)
      loop.flops = {flops_per_token(plan_.plan->input, plan_.plan->flops),
                    peak_flops(device_, plan_.plan->input.dtype)};
    if (is_dpo()) {
      DpoTrainer trainer(engine_->model(), {.dpo = dpo_, .trainer = std::move(loop)}, surroundings());
      return trainer.run(train_, held_out_, start);
    }
    SftTrainerOptions sft{.seed = static_cast<uint64_t>(options_.seed), .trainer = std::move(loop)};
    if (model_.adapter) sft.adapters = {kPolicyAdapter};
    SftTrainer trainer(engine_->model(), sft, surroundings());
    return trainer.run(train_, held_out_, start);
  }

  TrainerContext surroundings() {
    TrainerContext around{.clock = context_.clock, .logger = &first_logger(), .stop = context_.stop};
    around.callbacks.on_begin = [this](const TrainerState& state) { begin(state); };
    around.callbacks.on_step = [this](const StepReport& step) {
      if (!is_first() || !context_.on_step) return;
      context_.on_step({.step = step.step,
                        .max_steps = state_.max_steps,
                        .loss = step.loss,
                        .learning_rate = step.learning_rate,
                        .tokens = step.tokens});
    };
    around.callbacks.on_log = [this](const std::string& line, const nlohmann::ordered_json& record) {
      if (!is_first()) return;
      context_.logger->info(line);
      append_log(run_dir(), record);
      add_event(record);
    };
    around.callbacks.on_save = [this](const TrainerState& now) { save(now); };
    return around;
  }

  /// All that needs no step has been looked at: now the folder is made.
  void begin(const TrainerState& state) {
    state_.max_steps = state.max_steps;
    if (resumed_from() && state.global_step < state.max_steps) require_space();
    folder_->open();
    say("Output: " + run_dir().string());
  }

  /// One checkpoint must find room; how many bytes it has is known before the first step.
  void require_space() {
    comm::run_agreed(world(), "looking for room for a checkpoint", [&] {
      if (is_first()) require_job_space(saving_, run_dir(), engine_->model());
    });
  }

  /// The file begins with its first record, so that a run that records nothing leaves none.
  void add_event(const nlohmann::ordered_json& record) {
    if (!reports_to(options_, "tensorboard")) return;
    if (!events_) {
      events_ = std::make_unique<EventFile>(run_dir(), *context_.clock,
                                            EventFileOptions{.resume_step = resumed_step_});
    }
    events_->add_record(record);
  }

  void save(const TrainerState& state) {
    state_ = state;
    last_saved_ = save_job(saving_, run_dir(), engine_->model(), state);
    if (is_first()) {
      tidy_checkpoints(run_dir(), folder_->tidy());
      write_curves(run_dir());
    }
    say("Saved " + last_saved_.string());
  }

  /// A run that had no step left still owes its folder a checkpoint and its links: it was started from
  /// another run's finished checkpoint, which is worth a warning, or was killed after its own last save.
  void settle(const TrainerState& state, const RunSummary& result) {
    if (!last_saved_.empty() || !result.finished || !resumed_from()) return;
    std::string kept;
    if (is_first()) {
      for (const auto& found : checkpoint::whole_checkpoints(run_dir())) {
        if (found.step == state.global_step) kept = found.path.string();
      }
    }
    last_saved_ = comm::broadcast_text(world(), kept);
    if (last_saved_.empty()) save(state);
    std::error_code absent;
    if (is_first() && !fs::equivalent(resumed_from()->parent_path(), run_dir(), absent)) {
      context_.logger->warning(detail::concat("nothing was left to train: ", resumed_from()->string(),
                                              " has all ", state.global_step, " steps"));
    }
  }

  /// Links, the merged model, the table; only then the run counts as finished, so that what fails is done
  /// again.
  void conclude(JobSummary& summary, const RunSummary& result) {
    fs::path merged;
    std::string last;
    comm::run_agreed(world(), "finishing the run", [&] {
      if (!is_first()) return;
      TidyOptions tidy = folder_->tidy();
      tidy.last_is_best = options_.load_best_model_at_end;
      last = tidy_checkpoints(run_dir(), tidy).string();
      write_curves(run_dir());
      if (options_.merge_lora) merged = merge(last);
      finish_run(run_dir(), result.steps);
    });
    summary.last_checkpoint = comm::broadcast_text(world(), last);
    if (!is_first()) return;
    if (options_.load_best_model_at_end) say("The best checkpoint is the result: " + last);
    say(rows_.train->origin().report.summary());
    summary.report = report_of({.options = &options_,
                                .rows = &rows_,
                                .run_dir = run_dir(),
                                .checkpoint = last,
                                .merged = merged,
                                .result = result,
                                .state = state_,
                                .ranks = world().size()});
    if (context_.say_report) say("\n" + closing_table(*summary.report));
  }

  fs::path merge(const std::string& adapter) {
    const checkpoint::AdapterPlace place = checkpoint::find_adapter(adapter);
    const checkpoint::MergeReport report =
        checkpoint::merge_adapter({.base = options_.model,
                                   .adapter = place.adapter,
                                   .target = checkpoint::merge_target(place),
                                   .overwrite = true,  // of this run's own earlier attempt
                                   .rope_scaling = options_.rope_scaling,
                                   .max_model_len = options_.max_model_len},
                                  *context_.logger);
    checkpoint::link_newest_merge(place);
    for (const std::string& note : report.notes) context_.logger->info("Note: " + note);
    return run_dir() / report.target.filename();  // below --output_dir, as it was typed
  }

  JobContext context_;
  at::Device device_;
  JobOptions options_;
  DeviceScope scope_;
  NullLogger silent_;
  data::TokenizerFolder tokenizer_;
  ModelLimits limits_;
  JobModel model_;
  JobRows rows_;
  std::shared_ptr<const data::Dataset> train_, held_out_;
  nlohmann::ordered_json args_;
  std::optional<JobFolder> folder_;
  int64_t resumed_step_ = 0;
  EnginePlan plan_;
  std::optional<JobEngine> engine_;
  DpoOptions dpo_;
  JobSaving saving_;
  std::unique_ptr<EventFile> events_;  // rank 0
  TrainerState state_;
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
