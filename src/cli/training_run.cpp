#include "cli/training_run.h"

#include <chrono>
#include <optional>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/cli/program.h"
#include "apus/cli/training_command.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/launch_environment.h"
#include "apus/comm/nccl_communicator.h"
#include "apus/launch/rank_error.h"
#include "apus/train/job_settings.h"
#include "cli/choose_device.h"
#include "cli/compute_threads.h"
#include "cli/error_text.h"
#include "cli/growing_segments.h"
#include "cli/job_task.h"
#include "cli/model_folder.h"
#include "cli/product_cache.h"
#include "cli/run_console.h"
#include "cli/signals.h"
#include "cli/spawn.h"
#include "cli/terminal.h"

namespace apus::cli {
namespace {

TrainingCommand read_command(const Call& call) {
  const FlagTable table = training_flags();
  const FlagValues values = parse_flags(call.flags(), table);
  TrainingCommand command = read_training_command(values, table);
  const std::string named = task_of_command(call.arguments.front());
  settle_task(command, values, table, named.empty() ? task_of_data(command.job) : named);
  return command;
}

/// Checks the job and its strategy, and puts a folder for a hub id; the run's folder keeps the name that was
/// given.
void settle_model(train::JobOptions& job, const WorldSize& size, const Environment& environment) {
  const train::JobOptions resolved = train::resolve_job(job, size.world);
  train::engine_options(resolved, {.world = size.world, .local_world = size.local_world});
  job.output_dir = resolved.output_dir;
  job.model = resolve_model_folder(job.model, environment);
}

/// One rank of a training command.
class RankRun final {
 public:
  RankRun(const Call& call, comm::LaunchEnvironment launch)
      : call_(call),
        launch_(std::move(launch)),
        console_(std::make_shared<RunConsole>(launch_.rank, call.environment, clock_)) {}

  int run() {
    const SignalFlags& signals = watch_signals();
    TrainingCommand command;
    try {
      command = prepare();
    } catch (const std::exception& error) {
      // The same in all ranks, as a rule: where somebody collects the errors, one rank says it.
      return fail(error, launch_.rank == 0 || !launch::collects_errors(call_.environment));
    }
    try {
      const train::JobSummary summary = train(command, signals);
      return finish(summary, signals);
    } catch (const std::exception& error) {
      // What is wrong with flags or files is so in all ranks: a launcher of ours says it once, at the end.
      const bool is_everywhere = launch::error_kind(error) == launch::ErrorKind::kConfiguration;
      const bool is_said = !call_.environment.get_or(launch::kErrorFolderVariable, "").empty();
      return fail(error, !(is_everywhere && is_said));
    }
  }

 private:
  TrainingCommand prepare() {
    TrainingCommand command = read_command(call_);
    check_world(command, launch_.world_size);
    settle_model(command.job, {.world = launch_.world_size, .local_world = launch_.local_world_size},
                 call_.environment);
    DeviceFacts facts = read_device_facts(call_.environment);
    facts.local_rank = launch_.local_rank;
    facts.local_world_size = launch_.local_world_size;
    device_ = choose_device(command, facts);
    if (device_.gpu) {
      grow_segments(call_.environment, *device_.gpu);
    } else {
      bound_product_cache(call_.environment);
    }
    set_compute_threads(compute_threads(call_.environment, launch_.local_world_size));
    if (launch_.rank != 0) return command;
    if (call_.arguments.front() == "train")
      console_->info("By its columns, the data is for " + command.job.task);
    console_->info(device_.sentence);
    for (const std::string& note : command.notes) console_->info(note);
    for (const auto* warnings : {&device_.warnings, &command.warnings}) {
      for (const std::string& warning : *warnings) console_->warning(warning);
    }
    return command;
  }

  train::JobSummary train(const TrainingCommand& command, const SignalFlags& signals) {
    const std::chrono::seconds timeout(command.job.ddp_timeout);
    const std::shared_ptr<comm::Store> store = comm::rendezvous(launch_, {.timeout = timeout});
    std::shared_ptr<comm::Communicator> world =
        comm::GlooCommunicator::create(store, {.rank = launch_.rank,
                                               .size = launch_.world_size,
                                               .timeout = timeout,
                                               .device = network(),
                                               .logger = console_});
    if (device_.gpu && launch_.distributed())
      world = comm::NcclCommunicator::create(std::move(world), {.device = *device_.gpu});
    return train::run_job(command.job, {.world = world,
                                        .launch = launch_,
                                        .gpu = device_.gpu,
                                        .logger = console_,
                                        .clock = &clock_,
                                        .cache_folder = cache_directory(call_.environment),
                                        .stop = &signals.stop,
                                        .on_step = [this](const train::JobProgress& step) { show(step); },
                                        .say_report = false});
  }

  /// Ranks of one machine talk over loopback; GLOO_SOCKET_IFNAME names another interface.
  std::shared_ptr<comm::GlooDevice> network() const {
    const std::string interface = call_.environment.get_or("GLOO_SOCKET_IFNAME", "");
    if (!launch_.distributed()) return nullptr;
    if (!interface.empty()) return comm::GlooDevice::create_for_interface(interface);
    const bool one_machine = launch_.local_world_size == launch_.world_size;
    return one_machine ? comm::GlooDevice::create() : comm::GlooDevice::create_default();
  }

  /// The rate is that of all steps but the first, which warms up.
  void show(const train::JobProgress& step) {
    const Clock::Duration now = clock_.steady_now();
    ProgressFigures figures{.step = step.step,
                            .max_steps = step.max_steps,
                            .loss = step.loss,
                            .learning_rate = step.learning_rate};
    if (first_step_at_) {
      tokens_ += step.tokens;
      const double seconds = seconds_between(*first_step_at_, now);
      if (seconds > 0) figures.tokens_per_second = static_cast<double>(tokens_) / seconds;
    } else {
      first_step_at_ = now;
    }
    console_->progress(figures);
  }

  int finish(const train::JobSummary& summary, const SignalFlags& signals) {
    console_->end_progress();
    if (summary.report) {
      const int width = progress_wanted(call_.environment) ? terminal_columns() : 0;
      console_->info(train::closing_table(*summary.report, {.width = width}));
    }
    const int signal = signals.signal.load();
    if (summary.finished || signal == 0) return 0;
    if (launch_.rank == 0) {
      console_->info(detail::concat("Stopped after step ", summary.steps,
                                    "; run the same command again to go on from ",
                                    summary.last_checkpoint.string()));
    }
    return 128 + signal;
  }

  int fail(const std::exception& error, bool say) {
    console_->end_progress();
    launch::RankError note = launch::describe_error(launch_.rank, error, clock_);
    note.message = error_text(error);
    launch::leave_error(call_.environment, note);
    if (say) console_->error(note.message);
    return exit_code_of(error);
  }

  const Call& call_;
  comm::LaunchEnvironment launch_;
  SystemClock clock_;
  std::shared_ptr<RunConsole> console_;
  DeviceChoice device_;
  std::optional<Clock::Duration> first_step_at_;
  int64_t tokens_ = 0;  ///< since then
};

}  // namespace

bool trains(std::string_view command) {
  return command == "train" || !task_of_command(command).empty();
}

void check_training(const Call& call, const WorldSize& size) {
  TrainingCommand command = read_command(call);
  check_world(command, size.world);
  settle_model(command.job, size, call.environment);
  DeviceFacts facts = read_device_facts(call.environment);
  facts.local_world_size = size.local_world;
  choose_device(command, facts);
}

int run_training(const Call& call) {
  const comm::LaunchEnvironment launch = comm::resolve_launch(call.environment);
  if (launch.source != comm::LaunchSource::kSpawn) return RankRun(call, launch).run();
  check_training(call, {.world = launch.world_size, .local_world = launch.spawn});
  const int nodes = launch.world_size / launch.spawn;
  return spawn_ranks({.arguments = call.arguments,
                      .environment = call.environment,
                      .nproc_per_node = launch.spawn,
                      .nnodes = nodes,
                      .node_rank = launch.node_rank,
                      .master_addr = launch.master_addr,
                      .master_port = launch.master_port});
}

}  // namespace apus::cli
