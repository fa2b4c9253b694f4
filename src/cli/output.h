#pragma once

#include <filesystem>
#include <string_view>

namespace apus::cli {

/// Writes all of a text to an open file; `name` is for messages.
/// Throws: FileError.
void write_fully(int descriptor, const std::filesystem::path& name, std::string_view text);

/// Writes a text and a line end to standard output: what a command was called for, so that losing it is an
/// error.
/// Throws: FileError, where the stream is closed or its disk full.
void write_output(std::string_view text);

/// Takes the numbers of standard streams that are closed, so that no file that is opened later gets one of
/// them; using such a stream stays an error.
void hold_standard_streams();

}  // namespace apus::cli
