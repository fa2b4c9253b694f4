#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apus/base/json.h"
#include "data/tokenizer_json.h"

namespace apus::data {

/// The members of one of a tokenizer.json's components in order: of a Sequence its list, nested ones
/// flattened; any other component by itself; nothing where the file has null. The views refer to the file.
/// `list_key` is the name of a Sequence's list.
/// Throws: DataError if a Sequence has no list, or something in it has no type.
std::vector<JsonView> component_list(const TokenizerJson& file, const std::string& name,
                                     const std::string& list_key);

/// Throws NotSupported naming file, component and type; `known` lists what is supported.
[[noreturn]] void refuse_component(const JsonView& view, std::string_view type, std::string_view known);

}  // namespace apus::data
