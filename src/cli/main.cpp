#include "apus/cli/program.h"
#include "cli/thread_waiting.h"

int main(int argc, char** argv) {
  const apus::Environment environment = apus::Environment::from_process();
  apus::cli::wait_patiently(argv, environment);
  return apus::cli::run_program({argv + 1, argv + argc}, environment);
}
