#include "cli/training_run.h"

#include <chrono>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/cli/program.h"
#include "apus/cli/training_command.h"
#include "apus/comm/gloo_communicator.h"
#include "apus/comm/launch_environment.h"
#include "apus/data/data_task.h"
#include "apus/launch/rank_error.h"
#include "cli/compute_threads.h"
#include "cli/console.h"
#include "cli/model_folder.h"
#include "cli/signals.h"
#include "cli/spawn.h"

namespace apus::cli {
namespace {

/// `apus train` trains what the data's columns say.
void check_task(const Call& call, const TrainingCommand& command) {
  if (call.arguments.front() != "train") return;
  APUS_CHECK(!command.job.dataset.empty(), ConfigError,
             "--dataset is missing: its columns say what is trained");
  const std::string& columns = command.job.columns;
  const data::DataTask task = data::find_data_task(
      command.job.dataset, columns.empty() ? data::ColumnMap() : data::ColumnMap::parse(columns));
  if (task != data::DataTask::kDpo) {
    throw NotSupported(detail::concat("apus train: by its columns, ", command.job.dataset.front(),
                                      " is data for ", data::data_task_name(task),
                                      "; other tasks than DPO are not supported yet"));
  }
}

/// Checks the job, and puts a folder for a hub id; the run's folder keeps the name that was given.
void settle_model(train::JobOptions& job, int world, const Environment& environment) {
  job.output_dir = train::resolve_job(job, world).output_dir;
  job.model = resolve_model_folder(job.model, environment);
}

/// One rank of a training command.
class RankRun final {
 public:
  RankRun(const Call& call, comm::LaunchEnvironment launch)
      : call_(call), launch_(std::move(launch)), console_(make_rank_console(launch_.rank)) {}

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
    TrainingCommand command = parse_training_command(call_.flags());
    check_world(command, launch_.world_size);
    check_task(call_, command);
    settle_model(command.job, launch_.world_size, call_.environment);
    const std::string device = choose_device(command, survey_gpus(call_.environment));
    set_compute_threads(compute_threads(call_.environment, launch_.local_world_size));
    if (launch_.rank != 0) return command;
    console_->info(device);
    for (const std::string& note : command.notes) console_->info(note);
    for (const std::string& warning : command.warnings) console_->warning(warning);
    return command;
  }

  train::JobSummary train(const TrainingCommand& command, const SignalFlags& signals) {
    const std::chrono::seconds timeout(command.job.ddp_timeout);
    const std::shared_ptr<comm::Store> store = comm::rendezvous(launch_, {.timeout = timeout});
    const std::shared_ptr<comm::Communicator> world =
        comm::GlooCommunicator::create(store, {.rank = launch_.rank,
                                               .size = launch_.world_size,
                                               .timeout = timeout,
                                               .device = network(),
                                               .logger = console_});
    return train::run_job(command.job, {.world = world,
                                            .launch = launch_,
                                            .logger = console_,
                                            .clock = &clock_,
                                            .cache_folder = cache_directory(call_.environment),
                                            .stop = &signals.stop});
  }

  /// Ranks of one machine talk over loopback; GLOO_SOCKET_IFNAME names another interface.
  std::shared_ptr<comm::GlooDevice> network() const {
    const std::string interface = call_.environment.get_or("GLOO_SOCKET_IFNAME", "");
    if (!launch_.distributed()) return nullptr;
    if (!interface.empty()) return comm::GlooDevice::create_for_interface(interface);
    const bool one_machine = launch_.local_world_size == launch_.world_size;
    return one_machine ? comm::GlooDevice::create() : comm::GlooDevice::create_default();
  }

  int finish(const train::JobSummary& summary, const SignalFlags& signals) {
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
    launch::leave_error(call_.environment, launch::describe_error(launch_.rank, error, clock_));
    if (say) console_->error(error.what());
    return exit_code_of(error);
  }

  const Call& call_;
  comm::LaunchEnvironment launch_;
  std::shared_ptr<Logger> console_;
  SystemClock clock_;
};

}  // namespace

void check_training(const Call& call, int world) {
  TrainingCommand command = parse_training_command(call.flags());
  check_world(command, world);
  check_task(call, command);
  settle_model(command.job, world, call.environment);
  choose_device(command, survey_gpus(call.environment));
}

int run_training(const Call& call) {
  const comm::LaunchEnvironment launch = comm::resolve_launch(call.environment);
  if (launch.source != comm::LaunchSource::kSpawn) return RankRun(call, launch).run();
  check_training(call, launch.world_size);
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
