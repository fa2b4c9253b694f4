#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "apus/base/error.h"

namespace apus::testing {

/// The message of the CommError that `call` must throw.
inline std::string comm_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected CommError";
  return "";
}

}  // namespace apus::testing

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
