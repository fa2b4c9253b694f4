#include "apus/cli/program.h"

int main(int argc, char** argv) {
  return apus::cli::run_program({argv + 1, argv + argc}, apus::Environment::from_process());
}
