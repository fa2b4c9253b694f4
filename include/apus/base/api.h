#pragma once

/// Marks a symbol as part of the public interface of libapus.so.
/// Everything is compiled with hidden visibility; only what carries APUS_API can be linked
/// against from outside. Put it between `class` (or the return type) and the name.
#define APUS_API __attribute__((visibility("default")))
