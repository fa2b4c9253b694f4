#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apus/base/api.h"

namespace apus {

/// Whether this version of apus has a feature.
enum class Support {
  kYes,     ///< built, and shown by a test
  kNotYet,  ///< asked for by the project, refused by name until it is built
  kNo,      ///< will not be built; the note says what to use instead
};

/// "yes", "not yet" or "no".
APUS_API std::string_view support_word(Support status);

/// One line of the support matrix: a feature in the spelling of the files and flags that ask for it.
struct APUS_API SupportEntry {
  std::string_view area;     ///< "model_type", "loss", ...; entries of one area stand together
  std::string_view feature;  ///< unique within its area
  Support status = Support::kNotYet;
  std::string_view note;  ///< what the status covers, where the word alone would mislead; may be empty
};

/// Every feature, in the order in which it is shown. The one place that says what apus can do: README.md
/// prints it, and tests over reference cases ask it which cases can be run.
APUS_API std::span<const SupportEntry> support_matrix();

/// The entry of a feature; nullptr where the matrix does not name it.
APUS_API const SupportEntry* find_support(std::string_view area, std::string_view feature);

/// A table in Markdown with one row an entry; areas are named on their first row only. Ends in a newline.
APUS_API std::string render_support_matrix(std::span<const SupportEntry> entries);

}  // namespace apus
