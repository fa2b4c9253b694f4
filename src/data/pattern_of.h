#pragma once

#include <string>

#include "apus/base/json.h"
#include "data/pretokenize.h"
#include "data/pretokenize_text.h"

namespace apus::data {

/// What finds a component's "pattern": {"String": ...} literally, {"Regex": ...} by PCRE2.
/// Throws: DataError if it has neither; NotSupported for a regular expression that is not supported.
PatternFinder pattern_of(const JsonView& component);

/// A member that must be a string of one character.
/// Throws: DataError if it is not.
std::string character_of(const JsonView& component, const std::string& key);

/// The options of a Metaspace, which is a pre-tokenizer or a decoder, in today's or older spelling.
/// Throws: DataError if they are malformed or contradict one another.
MetaspaceOptions metaspace_options(const JsonView& component);

}  // namespace apus::data
