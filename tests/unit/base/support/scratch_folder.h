#pragma once

#include <exception>
#include <string>

#include "tests/support/scratch_folder.h"

namespace apus {

// The message of the error that `action` throws; "" if it throws none, "another type" for another type.
template <typename ErrorType, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "";
}

}  // namespace apus
